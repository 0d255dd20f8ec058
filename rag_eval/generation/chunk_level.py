"""Chunk-level ground truth from a language model: questions, and the ids of the chunks that answer them."""

from typing import ClassVar, Unpack

from rag_eval.generation.answers import ChunkQuestion, ChunkQuestions
from rag_eval.generation.assignments import Reply
from rag_eval.generation.briefs import Brief
from rag_eval.generation.calling import ChatClient
from rag_eval.generation.candidates import (
    AnyQuestion,
    Candidate,
    DropError,
    check_needs_several,
    documents_of,
    known_chunks,
)
from rag_eval.generation.generator import GeneratorSettings, SyntheticDatasetGenerator
from rag_eval.generation.planning import Level
from rag_eval.generation.windows import Window, chunk_windows
from rag_eval.retrieval.chunked import AnyChunker, cut, usable_chunker
from rag_eval.types.chunk import Chunk
from rag_eval.types.document import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query
from rag_eval.types.ids import DocumentId, EvaluationType


class ChunkLevelSyntheticDatasetGenerator(SyntheticDatasetGenerator[ChunkLevelGroundTruth]):
    """Questions with the ids of the chunks that answer them: true for this chunker with these settings alone.

    The chunker's name, which holds its settings, is in the metadata of each question. A question that names an id
    which was not shown is dropped and counted.
    ``ChunkLevelSyntheticDatasetGenerator(llm_client, corpus, chunker, model=…)``; the other arguments are those of
    ``SyntheticDatasetGenerator``. Raises ``ConfigurationError`` when the chunker is none, or makes no chunk.
    """

    evaluation_type: ClassVar[EvaluationType] = "chunk-level"
    level = Level("chunk_level", "cross_document_chunks", ChunkQuestions)

    def __init__(
        self, llm_client: ChatClient, corpus: Corpus, chunker: AnyChunker, **settings: Unpack[GeneratorSettings]
    ) -> None:
        super().__init__(llm_client, corpus, **settings)
        self._chunker_name = usable_chunker(chunker, "chunk-level").name
        self._chunks: dict[DocumentId, list[Chunk]] = {}
        for chunk in cut(chunker, corpus, "chunk-level"):
            self._chunks.setdefault(chunk.doc_id, []).append(chunk)

    def _windows(self, document: Document, size: int) -> list[Window]:
        return chunk_windows(self._chunks.get(document.id, []), size, self._options.encoding)

    def _place(self, reply: Reply, brief: Brief, text: str, question: AnyQuestion) -> Candidate:
        if not isinstance(question, ChunkQuestion):
            raise DropError("no excerpt", text)
        windows = reply.assignment.windows
        chunks = known_chunks(question, windows)
        if reply.assignment.purpose == "cross-document":
            check_needs_several(chunks, windows)
        evidence, ids, documents = tuple(chunks.values()), tuple(chunks), tuple(documents_of(chunks, windows))
        return Candidate(text, reply, brief, evidence, chunk_ids=ids, chunk_documents=documents)

    def _metadata(self, candidate: Candidate) -> dict[str, object]:
        return {**super()._metadata(candidate), "chunker": self._chunker_name}

    def _truth(self, query: Query, candidate: Candidate) -> ChunkLevelGroundTruth:
        return ChunkLevelGroundTruth(query, candidate.chunk_ids, candidate.unanswerable)


ChunkLevelDataGenerator = ChunkLevelSyntheticDatasetGenerator
