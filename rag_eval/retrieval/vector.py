"""Retrieval by vectors: chunk, embed, store, search, and rerank where a reranker is given."""

from collections.abc import Sequence, Sized
from contextlib import suppress
from typing import Literal, overload

import numpy as np

from rag_eval.embedding.embedder import Embedder, Vectors, check_embedder, embed_queries, text_vectors
from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.retriever import (
    AnyChunker,
    C,
    ChunkRetriever,
    Hit,
    Ranking,
    Reranker,
    candidates_for,
    check_k,
    check_part,
    rerank,
)
from rag_eval.retrieval.scoring import VECTORS_AT_ONCE, VectorScoring, VectorSums
from rag_eval.retrieval.selection import search_deeper
from rag_eval.stores.exact_search import Mask, unit_vectors
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.store import BuiltInStore, VectorStore
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.evidence import Query
from rag_eval.types.ids import EvaluationType

_FILLING = "_rag_eval_filling"


def search_vectors(store: VectorStore, vectors: Vectors, k: int, chunks: int, among: Mask | None = None) -> Ranking:
    """Return the k nearest of so many chunks for every vector, the chunks being numbered as they were added.

    ``among`` says which may be found; a store that takes no filter is asked for more. Raises ``ConfigurationError``,
    naming the store, on a number that no chunk has.
    """
    if among is None:
        found = store.search_many(vectors, k)
    elif isinstance(store, BuiltInStore):
        found = store.search_many(vectors, k, among)
    else:
        return search_deeper(lambda depth: search_vectors(store, vectors, depth, chunks), len(vectors), among, k)
    last = int(found.numbers.max(initial=-1))
    if last >= chunks:
        raise ConfigurationError(
            f"the store {store.name} found chunk number {last}, it was given {chunks}: "
            "it must number chunks from 0 in the order they were added, and forget all on clear()"
        )
    search, place = np.nonzero(found.numbers >= 0)
    return Ranking(search, found.numbers[search, place], found.scores[search, place].astype(np.float64))


class VectorRAGRetriever(ChunkRetriever[C]):
    """Chunker, embedder, store and an optional reranker.

    With a reranker, ``fetch_k`` candidates are fetched (ten times k and at least 50 unless said) and the reranker
    keeps k of them; a hit's score is then 1 / rank, as rerankers' own scores do not compare.
    A plain chunker is wrapped by ``ChunkerPositionAdapter`` for token-level evaluation.
    A store serves one retriever at a time: one whose store was filled by another since refuses to search.
    Raises ``ConfigurationError`` on a part that is not what it should be, and on ``fetch_k`` below 1.
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
        check_embedder(embedder)
        if vector_store is not None:
            check_part(vector_store, "vector store")
        if reranker is not None:
            check_part(reranker, "reranker")
        if fetch_k is not None:
            check_k(fetch_k, "fetch_k")
        super().__init__(chunker, evaluation_type)
        self._embedder = embedder
        self._store = InMemoryVectorStore() if vector_store is None else vector_store
        self._reranker = reranker
        self._fetch_k = fetch_k
        self._filling = object()
        self._sums: VectorSums | None = None

    @property
    def scores_any_chunk(self) -> bool:
        """Whether ``scoring`` can be asked: a reranker does not tell how it would rank other chunks."""
        return self._reranker is None

    @property
    def name(self) -> str:
        """The names of the parts, and ``fetch_k`` where it is said and makes a difference."""
        parts = [self.chunker_name, self._embedder.name, self._store.name]
        if self._reranker is not None:
            parts.append(self._reranker.name + (f" of {self._fetch_k}" if self._fetch_k is not None else ""))
        return " + ".join(parts)

    def _fill(self, chunks: list[C]) -> None:
        vectors = text_vectors(self._embedder, [chunk.content for chunk in chunks])
        self._chunks = self._sums = None
        self._store.clear()
        self._store.add(chunks, vectors)
        with suppress(AttributeError):  # a store that takes no attributes cannot be marked
            setattr(self._store, _FILLING, self._filling)

    def _ranking(self, texts: Sequence[str], k: int) -> Ranking:
        if self._reranker is None:
            return self._search(self._store, texts, k)
        found = self._search(self._store, texts, candidates_for(k, self._fetch_k))
        return rerank(found, self._reranker, texts, self.indexed_chunks()).first(k)

    def stages(self, queries: Sequence[Query], k: int) -> tuple[list[list[Hit[C]]], ...]:
        """Return what exact search finds, what the store finds, and what is left of it after the reranker.

        For the exact search the chunks are embedded once more, unless the store is the one in memory.
        """
        chunks, texts = self.indexed_chunks(), [query.text for query in queries]
        exact = searched = self._search(self._store, texts, k)
        if not isinstance(self._store, InMemoryVectorStore):
            store = InMemoryVectorStore()
            store.add(chunks, text_vectors(self._embedder, [chunk.content for chunk in chunks]))
            exact = self._search(store, texts, k)
        return exact.hits(chunks, len(texts)), searched.hits(chunks, len(texts)), self.retrieve(queries, k)

    def scoring(self, queries: Sequence[Query]) -> VectorScoring:
        """Return how any indexed chunk scores for these queries; raises ``ConfigurationError`` before ``index``.

        The chunks are embedded once more where the store does not give their vectors.
        """
        chunks, store = self.indexed_chunks(), self._store
        if isinstance(store, BuiltInStore):
            vectors = store.vectors
        else:
            embedded = InMemoryVectorStore()
            embedded.add(chunks, text_vectors(self._embedder, [chunk.content for chunk in chunks]))
            vectors = embedded.vectors
        if self._sums is None:
            numbers = np.arange(len(chunks))
            parts = (numbers[begin : begin + VECTORS_AT_ONCE] for begin in range(0, len(chunks), VECTORS_AT_ONCE))
            self._sums = VectorSums.of((vectors(part), np.ones(len(part), np.int64)) for part in parts)
        searches = unit_vectors(embed_queries(self._embedder, [query.text for query in queries]), "query vectors")
        return VectorScoring(searches, vectors, self._sums, len(chunks))

    def _search(self, store: VectorStore, texts: Sequence[str], k: int) -> Ranking:
        """Return what a store finds before any reranking."""
        chunks = len(self.indexed_chunks())
        refilled = getattr(store, _FILLING, self._filling) is not self._filling
        if refilled or (isinstance(store, Sized) and len(store) != chunks):
            raise ConfigurationError(
                f"the store of {self.name} was filled with other chunks since: give each retriever a store of its own"
            )
        return search_vectors(store, embed_queries(self._embedder, texts), k, chunks)
