"""Retrieve in Python: by vectors, by words, or fused. These retrievers chunk and index a corpus themselves."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, Literal, overload

import numpy as np

from rag_eval.embedding.embedder import Embedder, check_embedder, embed_queries, text_vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import label
from rag_eval.retrieval import FUSION
from rag_eval.retrieval.bm25 import BM25Index, WordScoring, check_parameters
from rag_eval.retrieval.fusion import Found, Fusion, ZScoreFusion
from rag_eval.retrieval.retriever import (
    AnyChunker,
    C,
    Hit,
    Reranker,
    candidates_for,
    check_k,
    check_part,
    cut,
    hits_of,
    rerank,
    usable_chunker,
)
from rag_eval.retrieval.scoring import VECTORS_AT_ONCE, Scoring, VectorScoring, VectorSums
from rag_eval.retrieval.tokenizers import Tokenizer, WordTokenizer
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.rankings import Ranking
from rag_eval.stores.store import BuiltInStore, VectorStore
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query
from rag_eval.types.ids import EvaluationType


class ChunkRetriever(ABC, Generic[C]):
    """A retriever that chunks its corpus, and may rerank; a subclass indexes and searches the chunks.

    Raises ``ConfigurationError`` if a part is not what it should be, or ``fetch_k`` is below 1.
    """

    fetches_more = False
    """Whether it fetches more candidates than it returns even without a reranker."""

    def __init__(
        self,
        chunker: AnyChunker,
        evaluation_type: EvaluationType,
        reranker: Reranker | None = None,
        fetch_k: int | None = None,
    ) -> None:
        if reranker is not None:
            check_part(reranker, "reranker")
        if fetch_k is not None:
            check_k(fetch_k, "fetch_k")
        self.chunker, self.evaluation_type = chunker, evaluation_type
        self.chunker_name = usable_chunker(chunker, evaluation_type).name
        """The chunker and its settings."""
        self.reranker, self._fetch_k = reranker, fetch_k
        self._chunks: list[C] | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The retriever and its settings."""

    def index(self, corpus: Corpus) -> None:
        """Chunk and index a corpus, replacing any previous one.

        Raises ``ConfigurationError`` if there are no chunks, and any error of the parts. The previous index then stays,
        unless the store failed.
        """
        self.index_chunks(cut(self.chunker, corpus, self.evaluation_type))

    def index_chunks(self, chunks: list[C]) -> None:
        """Index chunks, replacing any previous ones."""
        self._fill(chunks)
        self._chunks = chunks

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """Return the k best chunks of each query.

        Raises ``ConfigurationError`` if there is no index yet, if k is below 1, or if the store was filled again.
        """
        check_k(k)
        chunks = self.indexed_chunks()
        return hits_of(self.ranking([query.text for query in queries], k), chunks, len(queries))

    def indexed_chunks(self) -> list[C]:
        """Return the chunks of the indexed corpus; raises ``ConfigurationError`` if there is none yet."""
        if self._chunks is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        return self._chunks

    def ranking(self, texts: Sequence[str], k: int) -> Ranking:
        """Return the k best of the indexed chunks for each text, reranked if there is a reranker."""
        is_deeper = self.fetches_more or self.reranker is not None
        found = self._search(texts, candidates_for(k, self._fetch_k) if is_deeper else k)
        if self.reranker is not None:
            found = rerank(found, self.reranker, texts, self.indexed_chunks())
        return found.first(k)

    @abstractmethod
    def scoring(self, texts: Sequence[str]) -> Scoring | None:
        """Return the scores of all indexed chunks for these texts; None if only hits have a score."""

    @abstractmethod
    def _fill(self, chunks: list[C]) -> None:
        """Index these chunks."""

    @abstractmethod
    def _search(self, texts: Sequence[str], k: int) -> Ranking:
        """Return the k best of the indexed chunks for each text, before reranking."""


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
        super().__init__(chunker, evaluation_type, reranker, fetch_k)
        self._embedder = embedder
        self._store: VectorStore = InMemoryVectorStore() if vector_store is None else vector_store
        self._filled = (0, 0)
        self._sums: VectorSums | None = None

    @property
    def name(self) -> str:
        parts = [self.chunker_name, self._embedder.name, self._store.name]
        if self.reranker is not None:
            parts.append(self.reranker.name + (f" of {self._fetch_k}" if self._fetch_k is not None else ""))
        return " + ".join(parts)

    def _fill(self, chunks: list[C]) -> None:
        vectors = text_vectors(self._embedder, [chunk.content for chunk in chunks])
        self._chunks = self._sums = None
        self._store.clear()
        self._store.add(chunks, vectors)
        if isinstance(self._store, BuiltInStore):
            self._filled = self._store.filling

    def _search(self, texts: Sequence[str], k: int) -> Ranking:
        if isinstance(self._store, BuiltInStore) and self._store.filling != self._filled:
            raise ConfigurationError(
                f"the store of {self.name} has since been filled with other chunks: give each retriever its own store"
            )
        return self._store.search_many(embed_queries(self._embedder, texts), k)

    def scoring(self, texts: Sequence[str]) -> VectorScoring | None:
        """Return the cosine similarities of all chunks; None with a reranker, which scores only its hits.

        The chunks are embedded again if the store does not return their vectors.
        """
        if self.reranker is not None:
            return None
        chunks, store = self.indexed_chunks(), self._store
        if not isinstance(store, BuiltInStore):
            store = InMemoryVectorStore()
            store.add(chunks, text_vectors(self._embedder, [chunk.content for chunk in chunks]))
        if self._sums is None:
            parts = np.split(np.arange(len(chunks)), range(VECTORS_AT_ONCE, len(chunks), VECTORS_AT_ONCE))
            self._sums = VectorSums.of((store.vectors(part), np.ones(len(part), np.int64)) for part in parts)
        searches = unit_vectors(embed_queries(self._embedder, texts), "query vectors")
        return VectorScoring(searches, store.vectors, self._sums, len(chunks))


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
        tokenizer = "" if self._tokenizer == WordTokenizer() else f", {label(self._tokenizer)}"
        return f"{self.chunker_name} + BM25(k1={self._k1}, b={self._b}{tokenizer})"

    def _fill(self, chunks: list[C]) -> None:
        self._words = BM25Index((chunk.content for chunk in chunks), self._k1, self._b, self._tokenizer)

    def _search(self, texts: Sequence[str], k: int) -> Ranking:
        return self._words.search(texts, k)

    def scoring(self, texts: Sequence[str]) -> WordScoring:
        return WordScoring(self._words, texts)


class HybridRetriever(ChunkRetriever[C]):
    """Several retrievers with the same chunker, fused.

    Each is asked for ``fetch_k`` chunks (default: ten times k, at least 50). The default ``fusion`` is by z-scores; a
    retriever that cannot score all chunks, such as one with a reranker, is then fused by rank, as the name says.
    Raises ``ConfigurationError`` with fewer than two retrievers, or if their chunkers or evaluation types differ.
    """

    fetches_more = True

    def __init__(
        self,
        retrievers: Sequence[ChunkRetriever[C]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None:
        if len(retrievers) < 2:
            raise ConfigurationError(f"a hybrid needs two or more retrievers, found {len(retrievers)}")
        for retriever in retrievers:
            if not isinstance(retriever, ChunkRetriever):
                raise ConfigurationError(
                    f"{preview(repr(retriever))} cannot be fused: give VectorRAGRetriever, BM25Retriever or "
                    "HybridRetriever"
                )
        chunkings = dict.fromkeys(f"{retriever.chunker_name} ({retriever.evaluation_type})" for retriever in retrievers)
        if len(chunkings) > 1:
            raise ConfigurationError(f"a hybrid has retrievers of {' and '.join(chunkings)}: give all the same chunker")
        super().__init__(retrievers[0].chunker, retrievers[0].evaluation_type, reranker, fetch_k)
        self._retrievers: tuple[ChunkRetriever[C], ...] = tuple(retrievers)
        self._fusion: Fusion = ZScoreFusion() if fusion is None else FUSION.take(fusion)

    @property
    def name(self) -> str:
        parts = [part.name + (" by rank" if self._is_fused_by_rank(part) else "") for part in self._retrievers]
        depth = f"; fetch_k={self._fetch_k}" if self._fetch_k is not None else ""
        reranker = f" + {self.reranker.name}" if self.reranker else ""
        return f"{label(self._fusion)}({'; '.join(parts)}{depth}){reranker}"

    def _is_fused_by_rank(self, retriever: ChunkRetriever[C]) -> bool:
        has_scores = retriever.reranker is None and not isinstance(retriever, HybridRetriever)
        return self._fusion.reads_scores and not has_scores

    def scoring(self, texts: Sequence[str]) -> None:
        return None

    def _fill(self, chunks: list[C]) -> None:
        for retriever in self._retrievers:
            retriever.index_chunks(chunks)

    def _search(self, texts: Sequence[str], k: int) -> Ranking:
        rankings = [retriever.ranking(texts, k) for retriever in self._retrievers]
        scorings = [retriever.scoring(texts) for retriever in self._retrievers] if self._fusion.reads_scores else []
        return self._fusion.fuse(Found(rankings, len(texts), scorings, len(self.indexed_chunks())), k)
