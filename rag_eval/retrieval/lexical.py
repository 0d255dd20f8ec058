"""Retrieval by words."""

from collections.abc import Sequence
from typing import Generic, Literal, overload

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.base import C, Hit
from rag_eval.retrieval.bm25 import BM25Index, best_first, check_parameters
from rag_eval.retrieval.checks import check_k
from rag_eval.retrieval.chunked import AnyChunker, cut, usable_chunker
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query
from rag_eval.types.ids import EvaluationType


class BM25Retriever(Generic[C]):
    """BM25 over the chunks' words; a chunk that shares no word with the query is not retrieved.

    Raises ``ConfigurationError`` on k1 < 0, b outside [0, 1], or what is not a chunker.
    """

    @overload
    def __init__(
        self: "BM25Retriever[PositionAwareChunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        evaluation_type: Literal["token-level"] = "token-level",
    ) -> None: ...

    @overload
    def __init__(
        self: "BM25Retriever[Chunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        evaluation_type: Literal["chunk-level"],
    ) -> None: ...

    def __init__(
        self,
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        evaluation_type: EvaluationType = "token-level",
    ) -> None:
        check_parameters(k1, b)
        self._chunker = chunker
        self._k1, self._b = k1, b
        self._evaluation_type: EvaluationType = evaluation_type
        self._chunker_name = usable_chunker(chunker, evaluation_type).name
        self._indexed: tuple[list[C], BM25Index] | None = None

    @property
    def name(self) -> str:
        """The chunker and the parameters of BM25."""
        return f"{self.chunker_name} + BM25(k1={self._k1}, b={self._b})"

    @property
    def chunker_name(self) -> str:
        """The chunker and its settings, as this evaluation type uses it."""
        return self._chunker_name

    def indexed_chunks(self) -> list[C]:
        """The chunks of the indexed corpus; raises ``ConfigurationError`` before ``index``."""
        return self._ready()[0]

    def index(self, corpus: Corpus) -> None:
        """Chunk a corpus and count its words, in place of any before; raises ``ConfigurationError`` without chunks."""
        chunks: list[C] = cut(self._chunker, corpus, self._evaluation_type)
        self._indexed = chunks, BM25Index([chunk.content for chunk in chunks], self._k1, self._b)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """For each query its k best chunks; raises ``ConfigurationError`` before ``index``, and on k below 1."""
        check_k(k)
        chunks, index = self._ready()
        found = []
        for query in queries:
            scores = index.scores(query.text)
            found.append([Hit(chunks[number], float(scores[number])) for number in best_first(scores, k).tolist()])
        return found

    def _ready(self) -> tuple[list[C], BM25Index]:
        if self._indexed is None:
            raise ConfigurationError(f"{self.name} has no corpus yet: call index(corpus) first")
        return self._indexed
