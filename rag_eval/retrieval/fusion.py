"""Several rankings as one, by reciprocal rank fusion.

G. V. Cormack, C. L. A. Clarke, S. Büttcher, *Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning
Methods*, 2009: the score of a chunk is Σ over the retrievers of 1 / (60 + its rank there).
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Generic, overload

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.retriever import (
    RERANKER,
    RETRIEVER,
    C,
    Hit,
    Ranking,
    Reranker,
    Retriever,
    candidates_for,
    check_k,
    check_part,
    checked_hits,
    place_of,
    rerank,
)
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import Query

RANK_CONSTANT = 60


class HybridRetriever(Generic[C]):
    """Fuses what its retrievers find, each asked for ``fetch_k`` chunks (ten times k and at least 50 unless said).

    A chunk is the same for all when its place is. Raises ``ConfigurationError`` with fewer than two retrievers, on a
    part that is not what it should be, and on ``fetch_k`` below 1.
    """

    @overload
    def __init__(
        self: "HybridRetriever[PositionAwareChunk]",
        retrievers: Sequence[Retriever[PositionAwareChunk]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "HybridRetriever[Chunk]",
        retrievers: Sequence[Retriever[Chunk]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
    ) -> None: ...

    def __init__(
        self, retrievers: Sequence[Retriever[Any]], reranker: Reranker | None = None, *, fetch_k: int | None = None
    ) -> None:
        if len(retrievers) < 2:
            raise ConfigurationError(f"a hybrid needs two retrievers or more, it was given {len(retrievers)}")
        for retriever in retrievers:
            check_part(retriever, "retriever", RETRIEVER)
        if reranker is not None:
            check_part(reranker, "reranker", RERANKER)
        if fetch_k is not None:
            check_k(fetch_k, "fetch_k")
        self._retrievers: tuple[Retriever[C], ...] = tuple(retrievers)
        self._reranker = reranker
        self._fetch_k = fetch_k

    @property
    def name(self) -> str:
        """The names of the parts, and ``fetch_k`` where it is said."""
        depth = f"; fetch_k={self._fetch_k}" if self._fetch_k is not None else ""
        reranker = f" + {self._reranker.name}" if self._reranker else ""
        return f"RRF({'; '.join(retriever.name for retriever in self._retrievers)}{depth}){reranker}"

    @property
    def retrievers(self) -> tuple[Retriever[C], ...]:
        """The parts."""
        return self._retrievers

    def index(self, corpus: Corpus) -> None:
        """Index a corpus in every part."""
        for retriever in self._retrievers:
            retriever.index(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """For each query the k best chunks of the fused ranking, reranked where there is a reranker.

        Raises ``ConfigurationError`` on k below 1, and when a part does not give hits for every query or the parts
        give chunks of different kinds.
        """
        check_k(k)
        depth = candidates_for(k, self._fetch_k)
        found: list[list[list[Hit[C]]]] = [
            checked_hits(one.retrieve(queries, depth), len(queries), one.name, Chunk, PositionAwareChunk)
            for one in self._retrievers
        ]
        if len({isinstance(hit.chunk, Chunk) for hit in chain.from_iterable(chain.from_iterable(found))}) > 1:
            raise ConfigurationError(f"{self.name} has chunk-level and token-level parts: use retrievers of one type")
        chunks, rankings = number_by_place(found)
        fused = fuse(rankings, depth)
        if self._reranker is not None:
            fused = rerank(fused, self._reranker, [query.text for query in queries], chunks)
        return fused.first(k).hits(chunks, len(queries))


def number_by_place(found: Sequence[Sequence[Sequence[Hit[C]]]]) -> tuple[list[C], list[Ranking]]:
    """The chunks of several retrievers' hits, numbered by place, and the hits of each; a place counts once a query."""
    chunks: dict[tuple[str, int, int], C] = {}
    for hit in chain.from_iterable(chain.from_iterable(found)):
        chunks.setdefault(place_of(hit.chunk), hit.chunk)
    places = sorted(chunks)
    numbers = {place: number for number, place in enumerate(places)}
    rankings = []
    for lists in found:
        rows = [np.array(list(dict.fromkeys(numbers[place_of(hit.chunk)] for hit in hits)), np.int64) for hits in lists]
        rankings.append(Ranking.of((row, np.zeros(len(row))) for row in rows))
    return [chunks[place] for place in places], rankings


def fuse(rankings: Sequence[Ranking], depth: int) -> Ranking:
    """The first ``depth`` chunks of the rankings as one, by reciprocal rank fusion; equal scores by number."""
    searches, chunks = (np.concatenate(rows) for rows in zip(*((r.searches, r.chunks) for r in rankings), strict=True))
    gains = np.concatenate([1.0 / (RANK_CONSTANT + ranking.ranks) for ranking in rankings])
    size = int(chunks.max(initial=0)) + 1
    found, row = np.unique(searches * size + chunks, return_inverse=True)
    scores = np.bincount(row, gains, len(found)).astype(np.float64, copy=False)
    search, chunk = np.divmod(found, size)
    order = np.lexsort((chunk, -scores, search))
    return Ranking(search[order], chunk[order], scores[order]).first(depth)
