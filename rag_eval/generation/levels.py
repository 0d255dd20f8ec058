"""The generators of token-level and chunk-level ground truth."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from rag_eval.generation.candidates import Candidate, Draft, DropError, Reason
from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.questions import (
    Assignment,
    ChunkQuestion,
    ChunkQuestions,
    Excerpt,
    SpanQuestion,
    SpanQuestions,
    label,
)
from rag_eval.generation.windows import Window, chunk_windows, text_windows
from rag_eval.ground_truth.locating import Hint, Locator, Rejected
from rag_eval.llm.chat import ChatClient
from rag_eval.retrieval.retriever import AnyChunker, cut, usable_chunker
from rag_eval.types.chunks import CharacterSpan, Chunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType

_UNPLACED: Mapping[str, Reason] = {"empty": "no excerpt", "ambiguous": "excerpt ambiguous"}


class TokenLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[TokenLevelGroundTruth]):
    """Generates questions with verbatim excerpts, located as spans, which can evaluate any chunker.

    A question is dropped if one of its excerpts cannot be located.
    ``TokenLevelSyntheticDatasetGenerator(llm_client, corpus, model=…)`` takes the arguments of
    ``SyntheticDatasetGenerator``.
    """

    evaluation_type: ClassVar[EvaluationType] = "token-level"
    answer = SpanQuestions
    truth_type = TokenLevelGroundTruth

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._corpus.documents)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return text_windows(document, size)

    def _place(self, draft: Draft) -> Candidate:
        question, assignment = draft.question, draft.assignment
        if not isinstance(question, SpanQuestion):
            raise DropError("no excerpt", draft.text)
        found = [self._located(excerpt, assignment) for excerpt in question.excerpts]
        spans = {(span.doc_id, span.start, span.end): span for span in found}
        if not spans:
            raise DropError("no excerpt", question.question)
        ordered = tuple(spans[key] for key in sorted(spans))
        documents = {span.doc_id for span in ordered}
        if assignment.purpose == "cross-document" and len(documents) < 2:
            raise DropError("one document only", ordered[0].doc_id)
        return Candidate(draft, tuple(span.text for span in ordered), documents, ordered)

    def _located(self, excerpt: Excerpt, assignment: Assignment) -> CharacterSpan:
        windows = {label(number): window for number, window in enumerate(assignment.windows)}
        window = windows.get(excerpt.document)
        if window is not None:
            hint = Hint(before=excerpt.before, window=(window.start, window.end))
            place = self._locator.locate(excerpt.text, window.doc_id, hint)
        elif excerpt.document:
            raise DropError("unknown document", excerpt.document)
        else:  # a verdict quotes passages without naming their documents
            place = self._locator.locate(excerpt.text)
        if isinstance(place, Rejected):
            raise DropError(_UNPLACED.get(place.reason, "excerpt not found"), excerpt.text)
        return place.span


class ChunkLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[ChunkLevelGroundTruth]):
    """Generates questions with the ids of the chunks that answer them, which are valid for this chunker only.

    The name of the chunker is in the metadata of each question. A question is dropped if it names an unknown id.
    ``ChunkLevelSyntheticDatasetGenerator(llm_client, corpus, chunker, model=…)`` takes the other arguments of
    ``SyntheticDatasetGenerator``. Raises ``ConfigurationError`` if the chunker cannot be used.
    """

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    answer = ChunkQuestions
    truth_type = ChunkLevelGroundTruth

    def __init__(self, llm_client: ChatClient, corpus: Corpus, chunker: AnyChunker, **settings: Any) -> None:
        super().__init__(llm_client, corpus, **settings)
        self._metadata["chunker"] = usable_chunker(chunker, "chunk-level").name
        self._chunker = chunker

    @cached_property
    def _chunks(self) -> dict[DocumentId, list[Chunk]]:
        chunks: dict[DocumentId, list[Chunk]] = {}
        for chunk in cut(self._chunker, self._corpus, "chunk-level"):
            chunks.setdefault(chunk.doc_id, []).append(chunk)
        return chunks

    def _windows(self, document: Document, size: int) -> list[Window]:
        return chunk_windows(self._chunks.get(document.id, []), size)

    def _place(self, draft: Draft) -> Candidate:
        question, assignment = draft.question, draft.assignment
        if not isinstance(question, ChunkQuestion):
            raise DropError("no excerpt", draft.text)
        texts: dict[ChunkId, str] = {}
        ids_of: dict[DocumentId, set[ChunkId]] = {}
        for window in assignment.windows:
            texts |= {chunk.id: chunk.content for chunk in window.chunks}
            ids_of.setdefault(window.doc_id, set()).update(chunk.id for chunk in window.chunks)
        named = dict.fromkeys(ChunkId(name.strip()) for name in question.chunk_ids)
        for chunk_id in named:
            if chunk_id not in texts:
                raise DropError("unknown chunk id", chunk_id)
        if not named:
            raise DropError("no excerpt", question.question)
        # If several documents contain a text, its id counts for each of them.
        documents = sorted(doc_id for doc_id, ids in ids_of.items() if not ids.isdisjoint(named))
        alone = [doc_id for doc_id in documents if ids_of[doc_id] >= named.keys()]
        if alone and assignment.purpose == "cross-document":
            raise DropError("one document only", alone[0])
        return Candidate(draft, tuple(texts[chunk_id] for chunk_id in named), documents, tuple(named))


SyntheticDataGenerator = SyntheticDatasetGenerator
TokenLevelDataGenerator = TokenLevelSyntheticDatasetGenerator
ChunkLevelDataGenerator = ChunkLevelSyntheticDatasetGenerator
