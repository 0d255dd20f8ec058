"""The generators of token-level and chunk-level ground truth."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from rag_eval.generation.candidates import AnyQuestion, Candidate, DropError, Reason
from rag_eval.generation.generator import SyntheticDatasetGenerator
from rag_eval.generation.questions import (
    Brief,
    ChunkQuestion,
    ChunkQuestions,
    SpanQuestion,
    SpanQuestions,
    label,
)
from rag_eval.generation.windows import Window, chunk_windows, text_windows
from rag_eval.ground_truth.locating import Hint, Located, Locator, Rejected
from rag_eval.llm.asking import Reply
from rag_eval.llm.chat import ChatClient
from rag_eval.retrieval.retriever import AnyChunker, cut, usable_chunker
from rag_eval.types.chunks import Chunk
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
        return text_windows(document, size, self._options.window_overlap, self._options.encoding)

    def _place(self, reply: Reply, brief: Brief, text: str, question: AnyQuestion) -> Candidate:
        if not isinstance(question, SpanQuestion):
            raise DropError("no excerpt", text)
        windows = {label(number): window for number, window in enumerate(reply.assignment.windows)}
        places: dict[tuple[str, int, int], Located] = {}
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
            places.setdefault((place.span.doc_id, place.span.start, place.span.end), place)
        if not places:
            raise DropError("no excerpt", question.question)
        located = [places[key] for key in sorted(places)]
        spans = tuple(place.span for place in located)
        documents = {span.doc_id for span in spans}
        if reply.assignment.purpose == "cross-document" and len(documents) < 2:
            raise DropError("one document only", spans[0].doc_id)
        evidence, hows = tuple(span.text for span in spans), tuple(place.how for place in located)
        return Candidate(text, reply, brief, evidence, documents, spans, hows=hows)

    def _truth(self, query: Query, candidate: Candidate) -> TokenLevelGroundTruth:
        return TokenLevelGroundTruth(query, candidate.spans, unanswerable=not candidate.spans)


TokenLevelDataGenerator = TokenLevelSyntheticDatasetGenerator


class ChunkLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[ChunkLevelGroundTruth]):
    """Questions with the ids of the chunks that answer them: true for this chunker with these settings alone.

    The chunker's name, which holds its settings, is in the metadata of each question. A question that names an id
    which was not shown is dropped and counted.
    ``ChunkLevelSyntheticDatasetGenerator(llm_client, corpus, chunker, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``. Raises ``ConfigurationError`` when the chunker is none, or makes no chunk.
    """

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    answer = ChunkQuestions

    def __init__(self, llm_client: ChatClient, corpus: Corpus, chunker: AnyChunker, **settings: Any) -> None:
        super().__init__(llm_client, corpus, **settings)
        self._metadata["chunker"] = usable_chunker(chunker, "chunk-level").name
        self._chunks: dict[DocumentId, list[Chunk]] = {}
        for chunk in cut(chunker, corpus, "chunk-level"):
            self._chunks.setdefault(chunk.doc_id, []).append(chunk)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return chunk_windows(self._chunks.get(document.id, []), size, self._options.encoding)

    def _place(self, reply: Reply, brief: Brief, text: str, question: AnyQuestion) -> Candidate:
        if not isinstance(question, ChunkQuestion):
            raise DropError("no excerpt", text)
        shown: dict[ChunkId, str] = {}
        held: dict[DocumentId, set[ChunkId]] = {}
        for window in reply.assignment.windows:
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
        if alone and reply.assignment.purpose == "cross-document":
            raise DropError("one document only", alone[0])
        evidence = tuple(shown[chunk_id] for chunk_id in named)
        return Candidate(text, reply, brief, evidence, documents, chunk_ids=tuple(named))

    def _truth(self, query: Query, candidate: Candidate) -> ChunkLevelGroundTruth:
        return ChunkLevelGroundTruth(query, candidate.chunk_ids, unanswerable=not candidate.chunk_ids)


SyntheticDataGenerator = SyntheticDatasetGenerator
ChunkLevelDataGenerator = ChunkLevelSyntheticDatasetGenerator
