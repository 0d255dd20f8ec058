"""Retrieval by vectors: chunk, embed, store, search, and rerank where a reranker is given."""

from collections.abc import Sequence
from typing import Generic, Literal, overload

from rag_eval.embedding.base import Embedder, embed_queries, text_vectors
from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.base import C, Hit, Reranker, candidates_for
from rag_eval.retrieval.chunked import AnyChunker, chunker_name, cut
from rag_eval.stores.base import SearchResult, VectorStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query
from rag_eval.types.ids import EvaluationType


class VectorRAGRetriever(Generic[C]):
    """Chunker, embedder, store and an optional reranker.

    With a reranker, ``fetch_k`` candidates are fetched (ten times k and at least 50 unless said) and the reranker
    keeps k of them; a hit's score is then 1 / rank, as rerankers' own scores do not compare.
    A plain chunker is wrapped by ``ChunkerPositionAdapter`` for token-level evaluation.
    """

    @overload
    def __init__(
        self: "VectorRAGRetriever[PositionAwareChunk]",
        chunker: AnyChunker,
        embedder: Embedder,
        vector_store: VectorStore | None = None,
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        evaluation_type: Literal["token-level"] = "token-level",
    ) -> None: ...

    @overload
    def __init__(
        self: "VectorRAGRetriever[Chunk]",
        chunker: AnyChunker,
        embedder: Embedder,
        vector_store: VectorStore | None = None,
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        evaluation_type: Literal["chunk-level"],
    ) -> None: ...

    def __init__(
        self,
        chunker: AnyChunker,
        embedder: Embedder,
        vector_store: VectorStore | None = None,
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        evaluation_type: EvaluationType = "token-level",
    ) -> None:
        self._chunker = chunker
        self._embedder = embedder
        self._store = InMemoryVectorStore() if vector_store is None else vector_store
        self._reranker = reranker
        self._fetch_k = fetch_k
        self._evaluation_type: EvaluationType = evaluation_type
        self._chunks: list[C] | None = None

    @property
    def name(self) -> str:
        """The names of the parts."""
        parts = [self.chunker_name, self._embedder.name, self._store.name]
        if self._reranker is not None:
            parts.append(self._reranker.name)
        return " + ".join(parts)

    @property
    def chunker_name(self) -> str:
        """The chunker and its settings, as this evaluation type uses it."""
        return chunker_name(self._chunker, self._evaluation_type)

    def indexed_chunks(self) -> list[C]:
        """The chunks of the indexed corpus; raises ``ConfigurationError`` before ``index``."""
        if self._chunks is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        return self._chunks

    def index(self, corpus: Corpus) -> None:
        """Chunk and embed a corpus and put it into the store, in place of any before."""
        chunks: list[C] = cut(self._chunker, corpus, self._evaluation_type)
        self._store.clear()
        self._store.add(chunks, text_vectors(self._embedder, [chunk.content for chunk in chunks]))
        self._chunks = chunks

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """For each query its k best chunks, reranked where there is a reranker."""
        if self._reranker is None:
            return self.search(queries, k)
        candidates = self.search(queries, candidates_for(k, self._fetch_k))
        return [
            rerank_hits(self._reranker, query.text, found, k) for query, found in zip(queries, candidates, strict=True)
        ]

    def search(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """For each query its k best chunks as the store ranks them, before any reranking."""
        chunks = self.indexed_chunks()
        found = self._store.search_many(embed_queries(self._embedder, [query.text for query in queries]), k)
        return hits_of(found, chunks)


def hits_of(found: SearchResult, chunks: Sequence[C]) -> list[list[Hit[C]]]:
    """A store's result as hits, the chunks being numbered as they were added."""
    return [
        [Hit(chunks[number], score) for number, score in zip(numbers, scores, strict=True) if number >= 0]
        for numbers, scores in zip(found.numbers.tolist(), found.scores.tolist(), strict=True)
    ]


def rerank_hits(reranker: Reranker, query: str, hits: Sequence[Hit[C]], k: int) -> list[Hit[C]]:
    """The k best hits after reranking, with 1 / rank as their score."""
    if not hits:
        return []
    kept = reranker.rerank(query, [hit.chunk for hit in hits], k)[:k]
    return [Hit(chunk, 1 / rank) for rank, chunk in enumerate(kept, start=1)]
