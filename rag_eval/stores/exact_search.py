"""Exact search by cosine similarity: the same hits at the same scores, bit for bit, however the vectors are stored.

A float32 matrix product finds the pairs that may be among the best, within the error that it can make. Their scores are
then computed exactly, in float64 and rounded to whole steps, and equal scores are ordered by number.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import TableError

Integers = NDArray[np.int64]
Scores = NDArray[np.float32]

Mask = NDArray[np.bool_]
"""For every chunk, by its number, whether it may be found."""

Tiles = Callable[[], Iterable[tuple[Integers, Vectors]]]
"""Begins a pass over chunks: increasing numbers with their unit vectors, at most ``ROWS_AT_ONCE`` at a time."""

ROWS_AT_ONCE = 2**14
SUMMED_AT_ONCE = 2**16
"""How many numbers are multiplied at a time: what stays in the processor's cache."""


def unit_vectors(vectors: ArrayLike, what: str, dimension: int | None = None) -> Vectors:
    """Return the vectors in float32, each scaled to length 1; a zero vector stays zero.

    A row's result depends on that row alone. Raises ``TableError``, naming ``what`` and the row, when there is not one
    vector a row, when a number is not finite in float32, or when the vectors do not have this ``dimension``.
    """
    try:
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused as such
            rows: Vectors = np.asarray(vectors).astype(np.float32, order="C", copy=False)
    except (TypeError, ValueError) as error:
        raise TableError(f"the {what} are not an array of numbers: {error}") from None
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise TableError(f"the {what} have the shape {rows.shape}: give one vector a row")
    if dimension is not None and rows.shape[1] != dimension:
        raise TableError(
            f"the {what} have {rows.shape[1]} dimensions, the store's vectors have {dimension}: "
            "use the embedder the store was filled with"
        )
    units = np.empty(rows.shape, np.float32)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        block = rows[begin : begin + ROWS_AT_ONCE].astype(np.float64)
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            row = begin + int(np.argmin(finite))
            raise TableError(f"row {row} of the {what} holds a number that is not finite: look at what was embedded")
        length = np.sqrt(row_dots(block, block))
        length[length == 0] = 1
        units[begin : begin + len(block)] = block / length[:, None]
    return units


def row_dots(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the dot product of each row of one with the same row of the other.

    Products of float32 numbers are exact in float64, and numpy adds up every row of a contiguous array in the same
    order: equal rows give equal results, bit for bit, wherever they stand.
    """
    dots: NDArray[np.float64] = np.add.reduce(np.multiply(left, right, order="C"), axis=1)
    return dots


STEP = 2.0**-24
# Beyond the matrix product's sum: the rounding of a score, and lengths a little off 1.
SPARE_STEPS = 8


def score_margin(dimension: int) -> float:
    """Return how far the float32 score of one of the best k may stand below the k-th best: twice the largest error."""
    lost = dimension * STEP
    return 2 * (lost / (1 - lost) + SPARE_STEPS * STEP)


def exact_scores(queries: Vectors, vectors: Vectors, left: Integers, right: Integers) -> Scores:
    """Return the scores of pairs: row ``left[i]`` of unit queries with row ``right[i]`` of unit vectors."""
    scores = np.empty(len(left), np.float32)
    step = max(1, SUMMED_AT_ONCE // vectors.shape[1])
    for begin in range(0, len(left), step):
        part = slice(begin, begin + step)
        products = vectors[right[part]].astype(np.float64)
        products *= queries[left[part]]  # added up as ``row_dots`` does
        dots = np.add.reduce(products, axis=1)
        scores[part] = np.clip(np.rint(dots / STEP), -1 / STEP, 1 / STEP) * STEP + 0.0  # no negative zero
    return scores


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best chunks of many queries: a row for each query, best first.

    There are k columns, or as many as the store has chunks where these are fewer. ``numbers`` counts chunks in the
    order they were added; -1 (at score -inf) fills up where fewer were found. ``scores`` are cosine similarities, 0
    wherever one side is a zero vector.
    """

    numbers: Integers
    scores: Scores

    @classmethod
    def empty(cls, queries: int, k: int) -> Self:
        """Return a result in which nothing is found yet."""
        return cls(np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32))


class BestPairs:
    """The best k chunks of every query among the scored pairs so far; equal scores by number.

    Memory follows k, not the number of pairs: now and then the worst are dropped.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.floor: Scores | None = None
        """The k-th best score of each query when pairs were last dropped; None while a query has fewer than k."""
        self._queries, self._k = queries, k
        self._parts: list[tuple[Integers, Integers, Scores]] = []
        self._held, self._most = 0, queries * k - 1

    def add(self, queries: Integers, numbers: Integers, scores: Scores) -> None:
        """Add scored pairs of a query's row and a chunk's number, no pair twice."""
        self._parts.append((queries, numbers, scores))
        self._held += len(queries)
        if self._held > self._most:
            self._drop()

    def _drop(self) -> Integers:
        """Drop all but the best k of each query; return the rank of each pair that is left, from 0."""
        queries, numbers, scores = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        order = np.lexsort((numbers, -scores, queries))
        ranks = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        kept = order[ranks < self._k]
        self._parts, self._held = [(queries[kept], numbers[kept], scores[kept])], len(kept)
        self._most = 2 * self._queries * self._k
        if len(kept) == self._queries * self._k:
            self.floor = scores[kept].reshape(self._queries, self._k)[:, -1]
        return ranks[ranks < self._k]

    def result(self) -> SearchResult:
        """Return the best of each query."""
        result = SearchResult.empty(self._queries, self._k)
        if self._parts:
            ranks = self._drop()
            ((queries, numbers, scores),) = self._parts
            result.numbers[queries, ranks], result.scores[queries, ranks] = numbers, scores
        return result


def search_tiles(units: Vectors, k: int, tiles: Tiles, queries_at_once: int) -> SearchResult:
    """Return the k nearest of every unit vector, in a pass over the chunks for so many queries at once."""
    found = SearchResult.empty(len(units), k)
    margin = np.float32(score_margin(units.shape[1]))
    buffer = np.empty(min(queries_at_once, len(units)) * ROWS_AT_ONCE, np.float32)
    for begin in range(0, len(units), queries_at_once):
        block = units[begin : begin + queries_at_once]
        best = BestPairs(len(block), k)
        for numbers, rows in tiles():
            width = len(rows)
            scores = np.matmul(block, rows.T, out=buffer[: len(block) * width].reshape(len(block), width))
            floor = best.floor
            if floor is None and width > k:
                floor = np.partition(scores, width - k, axis=1)[:, width - k]
            near = np.arange(scores.size) if floor is None else np.flatnonzero(scores >= (floor - margin)[:, None])
            queries, columns = np.divmod(near, width)
            best.add(queries, numbers[columns], exact_scores(block, rows, queries, columns))
        result, part = best.result(), slice(begin, begin + len(block))
        found.numbers[part], found.scores[part] = result.numbers, result.scores
    return found
