"""Retrievers in Python: by vectors, by words, and several of them fused. They chunk and index a corpus themselves."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Generic, Literal, overload

import numpy as np

from rag_eval.embedding.embedder import Embedder, check_embedder, embed_queries, text_vectors
from rag_eval.errors import ConfigurationError
from rag_eval.parts import label
from rag_eval.retrieval import FUSION
from rag_eval.retrieval.bm25 import BM25Index, WordScoring, check_parameters
from rag_eval.retrieval.fusion import Found, Fusion, ZScoreFusion
from rag_eval.retrieval.retriever import (
    AnyChunker,
    C,
    ChunkPlace,
    Hit,
    Reranker,
    Retriever,
    candidates_for,
    check_k,
    check_part,
    checked_hits,
    cut,
    hits_of,
    place_of,
    rerank,
    usable_chunker,
)
from rag_eval.retrieval.scoring import VECTORS_AT_ONCE, Renumbered, Scoring, VectorScoring, VectorSums
from rag_eval.retrieval.tokenizers import Tokenizer, WordTokenizer
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.rankings import Numbers, Ranking, Scores
from rag_eval.stores.store import BuiltInStore, VectorStore
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query
from rag_eval.types.ids import EvaluationType


class ChunkRetriever(ABC, Generic[C]):
    """A retriever that chunks its corpus; raises ``ConfigurationError`` if the chunker is none."""

    scores_any_chunk = True
    """Whether ``scoring`` can be used: a reranker does not tell how it would rank other chunks."""

    def __init__(self, chunker: AnyChunker, evaluation_type: EvaluationType) -> None:
        self._chunker = chunker
        self.evaluation_type: EvaluationType = evaluation_type
        """The type of evaluation that its chunks are for."""
        self.chunker_name = usable_chunker(chunker, evaluation_type).name
        """The chunker and its settings."""
        self._chunks: list[C] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The retriever and its settings."""

    def index(self, corpus: Corpus) -> None:
        """Chunk and index a corpus, in place of any before.

        Raises ``ConfigurationError`` if there are no chunks, and what the parts raise. The previous index is kept then,
        unless the store failed.
        """
        chunks: list[C] = cut(self._chunker, corpus, self.evaluation_type)
        self._fill(chunks)
        self._chunks = chunks

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """Return the k best chunks of each query.

        Raises ``ConfigurationError`` before ``index``, if k is below 1, and if the store was filled again.
        """
        check_k(k)
        chunks = self.indexed_chunks()
        return hits_of(self._ranking([query.text for query in queries], k), chunks, len(queries))

    def indexed_chunks(self) -> list[C]:
        """Return the chunks of the indexed corpus; raises ``ConfigurationError`` before ``index``."""
        if self._chunks is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        return self._chunks

    @abstractmethod
    def scoring(self, queries: Sequence[Query]) -> Scoring:
        """Return the scores of all indexed chunks for these queries; raises ``ConfigurationError`` before ``index``."""

    @abstractmethod
    def _fill(self, chunks: list[C]) -> None:
        """Index these chunks."""

    @abstractmethod
    def _ranking(self, texts: Sequence[str], k: int) -> Ranking:
        """Return the k best of the indexed chunks for each text."""


class VectorRAGRetriever(ChunkRetriever[C]):
    """Chunker, embedder, store and an optional reranker.

    With a reranker, ``fetch_k`` candidates are fetched (default: ten times k, at least 50) and the reranker keeps k of
    them; a hit's score is then 1 / rank. A store serves one retriever at a time. Raises ``ConfigurationError`` if a
    part is not what it should be, or ``fetch_k`` is below 1.

    >>> retriever = VectorRAGRetriever(chunker, LocalEmbedder())  # doctest: +SKIP
    >>> retriever.index(corpus); hits = retriever.retrieve([Query.from_text("When?")], k=5)  # doctest: +SKIP
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
        _check_candidates(reranker, fetch_k)
        super().__init__(chunker, evaluation_type)
        self._embedder, self._reranker, self._fetch_k = embedder, reranker, fetch_k
        self._store: VectorStore = InMemoryVectorStore() if vector_store is None else vector_store
        self._filled = (0, 0)
        self._sums: VectorSums | None = None
        self.scores_any_chunk = reranker is None

    @property
    def name(self) -> str:
        """The names of the parts, and ``fetch_k`` if it is given and has an effect."""
        parts = [self.chunker_name, self._embedder.name, self._store.name]
        if self._reranker is not None:
            parts.append(self._reranker.name + (f" of {self._fetch_k}" if self._fetch_k is not None else ""))
        return " + ".join(parts)

    def _fill(self, chunks: list[C]) -> None:
        vectors = text_vectors(self._embedder, [chunk.content for chunk in chunks])
        self._chunks = self._sums = None
        self._store.clear()
        self._store.add(chunks, vectors)
        if isinstance(self._store, BuiltInStore):
            self._filled = self._store.filling

    def _ranking(self, texts: Sequence[str], k: int) -> Ranking:
        if self._reranker is None:
            return self._search(self._store, texts, k)
        found = self._search(self._store, texts, candidates_for(k, self._fetch_k))
        return rerank(found, self._reranker, texts, self.indexed_chunks()).first(k)

    def _search(self, store: VectorStore, texts: Sequence[str], k: int) -> Ranking:
        """Return what a store finds before reranking."""
        if isinstance(self._store, BuiltInStore) and self._store.filling != self._filled:
            raise ConfigurationError(
                f"the store of {self.name} was filled with other chunks since: give each retriever a store of its own"
            )
        return store.search_many(embed_queries(self._embedder, texts), k)

    def _exact_store(self) -> BuiltInStore:
        """Return the store if it returns vectors and searches exactly, else one that the chunks are embedded into."""
        if isinstance(self._store, InMemoryVectorStore):
            return self._store
        chunks, store = self.indexed_chunks(), InMemoryVectorStore()
        store.add(chunks, text_vectors(self._embedder, [chunk.content for chunk in chunks]))
        return store

    def stages(self, queries: Sequence[Query], k: int) -> tuple[list[list[Hit[C]]], ...]:
        """Return what exact search finds, what the store finds, and what the reranker keeps.

        For the exact search the chunks are embedded again, unless the store is in memory.
        """
        chunks, texts = self.indexed_chunks(), [query.text for query in queries]
        exact, searched = (self._search(store, texts, k) for store in (self._exact_store(), self._store))
        count = len(texts)
        return hits_of(exact, chunks, count), hits_of(searched, chunks, count), self.retrieve(queries, k)

    def scoring(self, queries: Sequence[Query]) -> VectorScoring:
        """Return the scores of all indexed chunks for these queries; raises ``ConfigurationError`` before ``index``.

        The chunks are embedded again if the store does not return their vectors.
        """
        count = len(self.indexed_chunks())
        vectors = (self._store if isinstance(self._store, BuiltInStore) else self._exact_store()).vectors
        if self._sums is None:
            parts = np.split(np.arange(count), range(VECTORS_AT_ONCE, count, VECTORS_AT_ONCE))
            self._sums = VectorSums.of((vectors(part), np.ones(len(part), np.int64)) for part in parts)
        searches = unit_vectors(embed_queries(self._embedder, [query.text for query in queries]), "query vectors")
        return VectorScoring(searches, vectors, self._sums, count)


def _check_candidates(reranker: object, fetch_k: int | None) -> None:
    if reranker is not None:
        check_part(reranker, "reranker")
    if fetch_k is not None:
        check_k(fetch_k, "fetch_k")


class BM25Retriever(ChunkRetriever[C]):
    """BM25 over the words of the chunks; a chunk that shares no word with the query is not retrieved.

    Raises ``ConfigurationError`` on k1 < 0, b outside [0, 1], or an object that is not a chunker.
    """

    @overload
    def __init__(
        self: "BM25Retriever[PositionAwareChunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        tokenizer: Tokenizer | None = None,
        evaluation_type: Literal["token-level"] = "token-level",
    ) -> None: ...

    @overload
    def __init__(
        self: "BM25Retriever[Chunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        tokenizer: Tokenizer | None = None,
        evaluation_type: Literal["chunk-level"],
    ) -> None: ...

    def __init__(
        self,
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        tokenizer: Tokenizer | None = None,
        evaluation_type: EvaluationType = "token-level",
    ) -> None:
        check_parameters(k1, b)
        super().__init__(chunker, evaluation_type)
        self._k1, self._b, self._tokenizer = k1, b, tokenizer or WordTokenizer()
        self._words = BM25Index([])

    @property
    def name(self) -> str:
        """The chunker and the parameters of BM25."""
        tokenizer = "" if self._tokenizer == WordTokenizer() else f", {label(self._tokenizer)}"
        return f"{self.chunker_name} + BM25(k1={self._k1}, b={self._b}{tokenizer})"

    def _fill(self, chunks: list[C]) -> None:
        self._words = BM25Index((chunk.content for chunk in chunks), self._k1, self._b, self._tokenizer)

    def _ranking(self, texts: Sequence[str], k: int) -> Ranking:
        return self._words.search(texts, k)

    def scoring(self, queries: Sequence[Query]) -> WordScoring:
        """Return the scores of all indexed chunks for these queries; raises ``ConfigurationError`` before ``index``."""
        self.indexed_chunks()
        return WordScoring(self._words, [query.text for query in queries])


class HybridRetriever(Generic[C]):
    """Several retrievers, fused.

    Each is asked for ``fetch_k`` chunks (default: ten times k, at least 50). The default ``fusion`` is by z-scores; a
    retriever that cannot score all chunks, such as one with a reranker, is then fused by rank, as the name says.
    Chunks are the same if their place is. Raises ``ConfigurationError`` with fewer than two retrievers, if a part is
    not what it should be, or ``fetch_k`` is below 1.
    """

    @overload
    def __init__(
        self: "HybridRetriever[PositionAwareChunk]",
        retrievers: Sequence[Retriever[PositionAwareChunk]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "HybridRetriever[Chunk]",
        retrievers: Sequence[Retriever[Chunk]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None: ...

    def __init__(
        self,
        retrievers: Sequence[Retriever[Any]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None:
        if len(retrievers) < 2:
            raise ConfigurationError(f"a hybrid needs two or more retrievers, found {len(retrievers)}")
        for retriever in retrievers:
            check_part(retriever, "retriever")
        _check_candidates(reranker, fetch_k)
        self.retrievers: tuple[Retriever[C], ...] = tuple(retrievers)
        """The retrievers that are fused."""
        self._reranker, self._fetch_k = reranker, fetch_k
        self._fusion: Fusion = ZScoreFusion() if fusion is None else FUSION.take(fusion)

    @property
    def name(self) -> str:
        """The names of the parts, and ``fetch_k`` if it is given."""
        parts = [
            retriever.name + (" by rank" if self._fusion.reads_scores and not _scores_any_chunk(retriever) else "")
            for retriever in self.retrievers
        ]
        depth = f"; fetch_k={self._fetch_k}" if self._fetch_k is not None else ""
        reranker = f" + {self._reranker.name}" if self._reranker else ""
        return f"{label(self._fusion)}({'; '.join(parts)}{depth}){reranker}"

    def index(self, corpus: Corpus) -> None:
        """Index a corpus in every retriever."""
        for retriever in self.retrievers:
            retriever.index(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """Return for each query the k best chunks of the fused, and perhaps reranked, ranking.

        Raises ``ConfigurationError`` if k is below 1, a retriever does not answer every query, or they return chunks of
        different types.
        """
        check_k(k)
        depth = candidates_for(k, self._fetch_k)
        found: list[list[list[Hit[C]]]] = [
            checked_hits(retriever.retrieve(queries, depth), len(queries), retriever.name, Chunk, PositionAwareChunk)
            for retriever in self.retrievers
        ]
        if len({isinstance(hit.chunk, Chunk) for lists in found for hit in chain.from_iterable(lists)}) > 1:
            raise ConfigurationError(f"{self.name} has chunk-level and token-level parts: use retrievers of one type")
        chunks, rankings = number_by_place(found)
        indexed = [part.indexed_chunks() for part in self.retrievers if isinstance(part, ChunkRetriever)]
        scorings = [_scoring(part, queries, chunks) for part in self.retrievers] if self._fusion.reads_scores else []
        held = max(map(len, indexed), default=0)
        fused = self._fusion.fuse(Found(rankings, len(queries), scorings, held), depth)
        if self._reranker is not None:
            fused = rerank(fused, self._reranker, [query.text for query in queries], chunks)
        return hits_of(fused.first(k), chunks, len(queries))


def _scores_any_chunk(retriever: object) -> bool:
    return isinstance(retriever, ChunkRetriever) and retriever.scores_any_chunk


def _scoring(retriever: object, queries: Sequence[Query], chunks: Sequence[C]) -> Scoring | None:
    """Return a retriever's scores of these chunks; None if it has scores for its hits alone."""
    if not isinstance(retriever, ChunkRetriever) or not retriever.scores_any_chunk:
        return None
    numbers = {place_of(chunk): number for number, chunk in enumerate(retriever.indexed_chunks())}
    rows = np.array([numbers.get(place_of(chunk), -1) for chunk in chunks], np.int64)
    return Renumbered(retriever.scoring(queries), rows)


def number_by_place(found: Sequence[Sequence[Sequence[Hit[C]]]]) -> tuple[list[C], list[Ranking]]:
    """Number the chunks of several retrievers' hits by place; a place counts once in a ranking, where it is first."""
    chunks: dict[ChunkPlace, C] = {}
    for hit in chain.from_iterable(chain.from_iterable(found)):
        chunks.setdefault(place_of(hit.chunk), hit.chunk)
    places = sorted(chunks)
    numbers = {place: number for number, place in enumerate(places)}
    rankings = [Ranking.of(_numbered(hits, numbers) for hits in lists) for lists in found]
    return [chunks[place] for place in places], rankings


def _numbered(hits: Sequence[Hit[C]], numbers: Mapping[ChunkPlace, int]) -> tuple[Numbers, Scores]:
    scores: dict[int, float] = {}
    for hit in hits:
        scores.setdefault(numbers[place_of(hit.chunk)], hit.score)
    return np.array([*scores], np.int64), np.array([*scores.values()], np.float64)
