"""Vectors in memory, searched exactly: the default of the library."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.stores.base import AnyChunk
from rag_eval.stores.builtin import BuiltInStore
from rag_eval.stores.ordering import DEFAULT, Blocks, Candidates, score_margin
from rag_eval.stores.places import Places

Integers = NDArray[np.int64]


class InMemoryVectorStore(BuiltInStore):
    """One matrix of unit vectors, multiplied tile by tile.

    A search needs memory for one tile of scores and the candidates, never for all queries times all chunks; ``blocks``
    says how much that is.
    """

    def __init__(self, *, blocks: Blocks = DEFAULT) -> None:
        self._blocks = blocks
        self.clear()

    @property
    def name(self) -> str:
        """The store."""
        return "in-memory"

    def chunks(self, numbers: Integers) -> list[AnyChunk]:
        """The chunks of these numbers, in the order asked for."""
        return [self._chunks[number] for number in numbers]

    def clear(self) -> None:
        """Forget all chunks; the next may have another dimension."""
        self._places, self._dimension = Places(), None
        self._chunks: list[AnyChunk] = []
        self._parts: list[Vectors] = []

    def _keep(self, chunks: Sequence[AnyChunk], units: Vectors, places: Places) -> None:
        self._chunks.extend(chunks)
        self._parts.append(units)

    def _vectors(self, numbers: Integers) -> Vectors:
        return self._matrix()[numbers]

    def _matrix(self) -> Vectors:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def _candidates(self, units: Vectors, k: int) -> Iterator[Candidates]:
        most, rows = self._blocks.queries, self._blocks.rows
        tile = np.empty(min(most, len(units)) * min(rows, len(self)), np.float32)
        for begin in range(0, len(units), most):
            for queries, numbers in self._near(units, slice(begin, min(begin + most, len(units))), k, tile):
                yield from self._scored(units, queries, numbers)

    def _near(
        self, units: Vectors, block: slice, k: int, tile: NDArray[np.float32]
    ) -> Iterator[tuple[Integers, Integers]]:
        """Rows of ``units`` in a block, and for each the numbers of the chunks that may be among its best k.

        One pass over the chunks: each tile is compared with the floor below which no chunk can matter, and the floor
        rises with the best k seen so far. A block with too many ties is cut in two.
        """
        pool = self._filled(units[block], k, tile)
        if pool is None:
            middle = (block.start + block.stop) // 2
            yield from self._near(units, slice(block.start, middle), k, tile)
            yield from self._near(units, slice(middle, block.stop), k, tile)
        else:
            yield pool.queries + block.start, pool.numbers

    def _filled(self, queries: Vectors, k: int, tile: NDArray[np.float32]) -> "_Pool | None":
        """The candidates of the queries; None when several queries have more than memory should hold."""
        matrix = self._matrix()
        pool = _Pool(len(queries), k, np.float32(score_margin(matrix.shape[1])))
        for begin in range(0, len(matrix), self._blocks.rows):
            rows = matrix[begin : begin + self._blocks.rows]
            scores = tile[: len(queries) * len(rows)].reshape(len(queries), len(rows))
            pool.take(np.matmul(queries, rows.T, out=scores), begin)
            if pool.size > self._blocks.candidates and len(queries) > 1:
                return None
        pool.prune()
        return pool


class _Pool:
    """The candidates of a block of queries, and the floor of each query that a candidate must reach."""

    def __init__(self, queries: int, k: int, margin: np.float32) -> None:
        self.queries = np.empty(0, np.int64)
        self.numbers = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self._floor = np.full(queries, -np.inf, np.float32)
        self._k, self._margin = k, margin
        self._pruned_size = queries * k

    @property
    def size(self) -> int:
        return len(self.numbers)

    def take(self, scores: NDArray[np.float32], first_number: int) -> None:
        """Take from a tile what reaches the floor."""
        width = scores.shape[1]
        if first_number == 0 and width > self._k:
            self._floor = np.partition(scores, width - self._k, axis=1)[:, width - self._k] - self._margin
        found = np.flatnonzero(scores >= self._floor[:, None])
        queries, columns = np.divmod(found, width)
        self.queries = np.concatenate([self.queries, queries])
        self.numbers = np.concatenate([self.numbers, columns + first_number])
        self._scores = np.concatenate([self._scores, scores.ravel()[found]])
        if self.size > 2 * self._pruned_size:  # seldom enough that pruning costs little
            self.prune()

    def prune(self) -> None:
        """Raise the floor to what the best k allow, and let go what is below."""
        order = np.lexsort((-self._scores, self.queries))
        self.queries, self.numbers, self._scores = self.queries[order], self.numbers[order], self._scores[order]
        position = np.arange(self.size) - np.searchsorted(self.queries, self.queries)
        kth = position == self._k - 1
        self._floor[self.queries[kth]] = self._scores[kth] - self._margin
        kept = self._scores >= self._floor[self.queries]
        self.queries, self.numbers, self._scores = self.queries[kept], self.numbers[kept], self._scores[kept]
        self._pruned_size = max(self.size, self._pruned_size)
