"""Define rankings: what a search finds, as chunk numbers. Stores, BM25, fusion and rerankers use them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Scores = NDArray[np.float64]

Mask = NDArray[np.bool_]
"""For every chunk, by number, whether it may be found."""

DEEPER = 4


@dataclass(frozen=True)
class Ranking:
    """The chunks found by many searches: row i says that search ``searches[i]`` found ``chunks[i]``.

    Rows are sorted by search, and within a search from the best hit to the worst. Chunks are numbered in the order of
    their places, so that equal scores are ordered by place.
    """

    searches: Numbers
    chunks: Numbers
    scores: Scores

    @classmethod
    def of(cls, found: Iterable[tuple[Numbers, NDArray[np.floating]]]) -> "Ranking":
        """Join the chunks and scores that each search found, in the order of the searches."""
        pairs = list(found)
        none = [(np.empty(0, np.int64), np.empty(0))]
        chunks, scores = (np.concatenate(column) for column in zip(*(pairs or none), strict=True))
        searches = np.repeat(np.arange(len(pairs)), [len(numbers) for numbers, _ in pairs])
        return cls(searches, chunks.astype(np.int64), scores.astype(np.float64))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Numbers, "Ranking"]]) -> "Ranking":
        """Join rankings of different searches, each with the numbers of its searches in the joined ranking."""
        if not parts:
            return cls.of([])
        searches = np.concatenate([numbers[ranking.searches] for numbers, ranking in parts])
        order = np.argsort(searches, kind="stable")
        chunks, scores = (np.concatenate([getattr(part, name) for _, part in parts]) for name in ("chunks", "scores"))
        return cls(searches[order], chunks[order], scores[order])

    @property
    def ranks(self) -> Numbers:
        """The rank of each row within its search, from 1."""
        return np.arange(1, len(self.searches) + 1) - np.searchsorted(self.searches, self.searches)

    def where(self, kept: Mask) -> "Ranking":
        return Ranking(self.searches[kept], self.chunks[kept], self.scores[kept])

    def first(self, depth: int) -> "Ranking":
        """Return the first ``depth`` hits of each search."""
        return self.where(self.ranks <= depth)

    def by_search(self, searches: int) -> list[Numbers]:
        """Return the chunks of each of the searches."""
        return np.split(self.chunks, np.searchsorted(self.searches, np.arange(1, searches)))[:searches]


class BestPairs:
    """Memory depends on k, not on the number of pairs: the worst pairs are dropped from time to time.

    Memory follows k, not the number of pairs: the worst are dropped from time to time.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.floor: NDArray[np.float32] | None = None
        """The k-th best score of each query when pairs were last dropped; None while a query has fewer than k."""
        self._queries, self._k = queries, k
        self._parts: list[tuple[Numbers, Numbers, NDArray[np.float32]]] = []
        self._held, self._limit = 0, queries * k - 1

    def add(self, queries: Numbers, numbers: Numbers, scores: NDArray[np.float32]) -> None:
        """Add scored pairs of a query's row and a chunk's number, no pair twice."""
        self._parts.append((queries, numbers, scores))
        self._held += len(queries)
        if self._held > self._limit:
            self._drop()

    def _drop(self) -> None:
        queries, numbers, scores = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.lexsort((numbers, -scores, queries))
        ranks = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        kept = order[ranks < self._k]
        self._parts, self._held = [(queries[kept], numbers[kept], scores[kept])], len(kept)
        self._limit = 2 * self._queries * self._k
        if len(kept) == self._queries * self._k:
            self.floor = scores[kept].reshape(self._queries, self._k)[:, -1]

    def ranking(self) -> Ranking:
        if not self._parts:
            return Ranking.of([])
        self._drop()
        ((queries, numbers, scores),) = self._parts
        return Ranking(queries, numbers, scores.astype(np.float64))


def search_deeper(search: Callable[[int], Ranking], searches: int, k: int, among: Mask | None) -> Ranking:
    """Return the k best chunks within a mask from a search that takes no filter, by requesting more chunks.

    ``search`` returns so many best chunks for each of ``searches``; fewer mean that there are no more.
    """
    if among is None:
        return search(k)
    depth, wanted = k, min(k, int(among.sum()))
    while True:
        found = search(depth)
        kept = among[found.chunks]
        given = np.bincount(found.searches, minlength=searches)
        inside = np.bincount(found.searches[kept], minlength=searches)
        if depth >= len(among) or ((inside >= wanted) | (given < depth)).all():
            return found.where(kept).first(k)
        depth = min(DEEPER * depth, len(among))
