"""Exact search in one pass over vectors that come in tiles, wherever they are kept."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.stores.ordering import Blocks, score_margin
from rag_eval.stores.places import Integers

Tiles = Callable[[], Iterable[tuple[Integers, Vectors]]]
"""Begins a pass: the numbers of chunks and their unit vectors, at most ``Blocks.rows`` at once, none twice."""


def near_pairs(units: Vectors, k: int, tiles: Tiles, blocks: Blocks) -> Iterator[tuple[Integers, Integers]]:
    """Rows of ``units``, and for each the numbers of the chunks that may be among its best k.

    In memory are one tile of scores and the candidates of a block of queries, never all queries times all chunks.
    """
    buffer = np.empty(min(blocks.queries, len(units)) * blocks.rows, np.float32)
    for begin in range(0, len(units), blocks.queries):
        block = slice(begin, min(begin + blocks.queries, len(units)))
        yield from _near(units, block, k, tiles, blocks, buffer)


def _near(
    units: Vectors, block: slice, k: int, tiles: Tiles, blocks: Blocks, buffer: NDArray[np.float32]
) -> Iterator[tuple[Integers, Integers]]:
    """One pass; a block with too many ties is cut in two."""
    pool = _filled(units[block], k, tiles, blocks, buffer)
    if pool is None:
        middle = (block.start + block.stop) // 2
        yield from _near(units, slice(block.start, middle), k, tiles, blocks, buffer)
        yield from _near(units, slice(middle, block.stop), k, tiles, blocks, buffer)
    else:
        yield pool.queries + block.start, pool.numbers


def _filled(queries: Vectors, k: int, tiles: Tiles, blocks: Blocks, buffer: NDArray[np.float32]) -> "_Pool | None":
    """The candidates of the queries; None when several queries have more than memory should hold."""
    pool = _Pool(len(queries), k, np.float32(score_margin(queries.shape[1])))
    for numbers, rows in tiles():
        scores = buffer[: len(queries) * len(rows)].reshape(len(queries), len(rows))
        pool.take(np.matmul(queries, rows.T, out=scores), numbers)
        if pool.size > blocks.candidates and len(queries) > 1:
            return None
    pool.prune()
    return pool


class _Pool:
    """The candidates of a block of queries, and the floor of each query that a candidate must reach.

    No chunk below the floor can matter: it stands a margin below the k-th best seen so far, and rises with it.
    """

    def __init__(self, queries: int, k: int, margin: np.float32) -> None:
        self.queries = np.empty(0, np.int64)
        self.numbers = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self._floor: NDArray[np.float32] | None = None
        self._k, self._margin = k, margin
        self._pruned_size = queries * k

    @property
    def size(self) -> int:
        return len(self.numbers)

    def take(self, scores: NDArray[np.float32], numbers: Integers) -> None:
        """Take from a tile what reaches the floor."""
        width = scores.shape[1]
        if self._floor is None and width > self._k:
            self._floor = np.partition(scores, width - self._k, axis=1)[:, width - self._k] - self._margin
        found = np.arange(scores.size) if self._floor is None else np.flatnonzero(scores >= self._floor[:, None])
        queries, columns = np.divmod(found, width)
        self.queries = np.concatenate([self.queries, queries])
        self.numbers = np.concatenate([self.numbers, numbers[columns]])
        self._scores = np.concatenate([self._scores, scores.ravel()[found]])
        if self.size > 2 * self._pruned_size:  # seldom enough that pruning costs little
            self.prune()

    def prune(self) -> None:
        """Raise the floor to what the best k allow, and let go what is below."""
        order = np.lexsort((-self._scores, self.queries))
        self.queries, self.numbers, self._scores = self.queries[order], self.numbers[order], self._scores[order]
        position = np.arange(self.size) - np.searchsorted(self.queries, self.queries)
        kth = position == self._k - 1
        if not kth.any():
            return
        # Every query has seen the same chunks: all of them have a k-th best, or none.
        self._floor = self._scores[kth] - self._margin
        kept = self._scores >= self._floor[self.queries]
        self.queries, self.numbers, self._scores = self.queries[kept], self.numbers[kept], self._scores[kept]
        self._pruned_size = max(self.size, self._pruned_size)
