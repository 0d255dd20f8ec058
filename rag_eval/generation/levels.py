"""The generators of token-level and chunk-level ground truth."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from rag_eval.generation.candidates import Candidate, Draft, DropError, Reason
from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.questions import ChunkQuestion, ChunkQuestions, SpanQuestion, SpanQuestions, label
from rag_eval.generation.windows import Window, chunk_windows, text_windows
from rag_eval.ground_truth.locating import Hint, Locator, Rejected
from rag_eval.llm.chat import ChatClient
from rag_eval.retrieval.retriever import AnyChunker, cut, usable_chunker
from rag_eval.types.chunks import CharacterSpan, Chunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, DocumentId, EvaluationType

_UNPLACED: Mapping[str, Reason] = {"empty": "no excerpt", "ambiguous": "excerpt ambiguous"}


class TokenLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[TokenLevelGroundTruth]):
    """Questions with verbatim excerpts, located as character spans: no chunker is needed, and any can be evaluated.

    A question with an excerpt that cannot be placed for sure is dropped and counted.
    ``TokenLevelSyntheticDatasetGenerator(llm_client, corpus, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``.
    """

    evaluation_type: ClassVar[EvaluationType] = "token-level"
    answer = SpanQuestions

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._corpus.documents)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return text_windows(document, size)

    def _place(self, draft: Draft) -> Candidate:
        question, assignment = draft.question, draft.assignment
        if not isinstance(question, SpanQuestion):
            raise DropError("no excerpt", draft.text)
        windows = {label(number): window for number, window in enumerate(assignment.windows)}
        places: dict[tuple[str, int, int], CharacterSpan] = {}
        for excerpt in question.excerpts:
            window = windows.get(excerpt.document)
            if window is not None:
                hint = Hint(before=excerpt.before, window=(window.start, window.end))
                place = self._locator.locate(excerpt.text, window.doc_id, hint)
            elif excerpt.document:
                raise DropError("unknown document", excerpt.document)
            else:  # quoted from passages of any documents
                place = self._locator.locate(excerpt.text)
            if isinstance(place, Rejected):
                # The whole question goes: with a part of its answer it would be wrong.
                raise DropError(_UNPLACED.get(place.reason, "excerpt not found"), excerpt.text)
            places[place.span.doc_id, place.span.start, place.span.end] = place.span
        if not places:
            raise DropError("no excerpt", question.question)
        spans = tuple(places[key] for key in sorted(places))
        documents = {span.doc_id for span in spans}
        if assignment.purpose == "cross-document" and len(documents) < 2:
            raise DropError("one document only", spans[0].doc_id)
        return Candidate(draft, tuple(span.text for span in spans), documents, spans)

    def _truth(self, query: Query, candidate: Candidate) -> TokenLevelGroundTruth:
        return TokenLevelGroundTruth(query, candidate.spans, unanswerable=not candidate.spans)


TokenLevelDataGenerator = TokenLevelSyntheticDatasetGenerator


class ChunkLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[ChunkLevelGroundTruth]):
    """Questions with the ids of the chunks that answer them: true for this chunker with these settings alone.

    The chunker's name, which holds its settings, is in the metadata of each question. A question that names an id
    which was not shown is dropped and counted.
    ``ChunkLevelSyntheticDatasetGenerator(llm_client, corpus, chunker, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``. Raises ``ConfigurationError`` when the chunker cannot be used.
    """

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    answer = ChunkQuestions

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
        shown: dict[ChunkId, str] = {}
        held: dict[DocumentId, set[ChunkId]] = {}
        for window in assignment.windows:
            shown |= {chunk.id: chunk.content for chunk in window.chunks}
            held.setdefault(window.doc_id, set()).update(chunk.id for chunk in window.chunks)
        named = dict.fromkeys(ChunkId(name.strip()) for name in question.chunk_ids)
        for chunk_id in named:
            if chunk_id not in shown:
                raise DropError("unknown chunk id", chunk_id)
        if not named:
            raise DropError("no excerpt", question.question)
        # A text that several documents hold counts for each.
        documents = sorted(doc_id for doc_id, ids in held.items() if not ids.isdisjoint(named))
        alone = [doc_id for doc_id in documents if held[doc_id] >= named.keys()]
        if alone and assignment.purpose == "cross-document":
            raise DropError("one document only", alone[0])
        evidence = tuple(shown[chunk_id] for chunk_id in named)
        return Candidate(draft, evidence, documents, chunk_ids=tuple(named))

    def _truth(self, query: Query, candidate: Candidate) -> ChunkLevelGroundTruth:
        return ChunkLevelGroundTruth(query, candidate.chunk_ids, unanswerable=not candidate.chunk_ids)


SyntheticDataGenerator = SyntheticDatasetGenerator
ChunkLevelDataGenerator = ChunkLevelSyntheticDatasetGenerator
