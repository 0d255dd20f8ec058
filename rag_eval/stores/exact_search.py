"""Search exactly by cosine similarity: the same hits at the same scores, bit for bit, for any storage of the vectors.

A float32 matrix product finds the pairs that may be among the best, within the error that it can make. Their scores are
then computed exactly, in float64 and rounded to a multiple of a step, and equal scores are ordered by number.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import TableError
from rag_eval.stores.rankings import BestPairs, Numbers, Ranking

Tiles = Callable[[], Iterable[tuple[Numbers, Vectors]]]
"""Starts a pass over chunks: increasing numbers with their unit vectors, at most ``ROWS_AT_ONCE`` at a time."""

ROWS_AT_ONCE = 2**14
SUMMED_AT_ONCE = 2**16
"""Number of values multiplied at once, so that they stay in the processor's cache."""


def unit_vectors(vectors: ArrayLike, what: str, dimension: int | None = None) -> Vectors:
    """Return the vectors in float32, each scaled to length 1; a zero vector stays zero.

    A row's result depends on that row alone.

    Raises:
        TableError: There is not one vector a row, a number is not finite in float32, or the vectors do not have this
            dimension. The message names ``what`` and the row.
    """
    try:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and are rejected below
            rows: Vectors = np.asarray(vectors).astype(np.float32, order="C", copy=False)
    except (TypeError, ValueError) as error:
        raise TableError(f"the {what} are not an array of numbers: {error}") from None
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise TableError(f"the {what} have the shape {rows.shape}: give one vector per row")
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
            raise TableError(f"row {row} of the {what} has a number that is not finite: check the embedder")
        length = np.sqrt(row_dots(block, block))
        length[length == 0] = 1
        units[begin : begin + len(block)] = block / length[:, None]
    return units


def row_dots(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the dot product of each row of ``left`` with the same row of ``right``.

    Products of float32 numbers are exact in float64, and numpy adds up every row of a contiguous array in the same
    order: equal rows give equal results, bit for bit, wherever they stand.
    """
    dots: NDArray[np.float64] = np.add.reduce(np.multiply(left, right, order="C"), axis=1)
    return dots


STEP = 2.0**-24
# Covers the rounding of a score, and lengths a little off 1.
SPARE_STEPS = 8


def score_margin(dimension: int) -> float:
    """Return how far the float32 score of one of the best k may be below the k-th best: twice the largest error."""
    lost = dimension * STEP
    return 2 * (lost / (1 - lost) + SPARE_STEPS * STEP)


def exact_scores(queries: Vectors, vectors: Vectors, left: Numbers, right: Numbers) -> NDArray[np.float32]:
    """Return the scores of pairs: row ``left[i]`` of unit queries with row ``right[i]`` of unit vectors."""
    scores = np.empty(len(left), np.float32)
    step = max(1, SUMMED_AT_ONCE // vectors.shape[1])
    for begin in range(0, len(left), step):
        part = slice(begin, begin + step)
        products = vectors[right[part]].astype(np.float64)
        products *= queries[left[part]]  # summed in the same way as ``row_dots``
        dots = np.add.reduce(products, axis=1)
        scores[part] = np.clip(np.rint(dots / STEP), -1 / STEP, 1 / STEP) * STEP + 0.0  # no negative zero
    return scores


def search_tiles(units: Vectors, k: int, tiles: Tiles, queries_at_once: int) -> Ranking:
    """Return the k nearest chunks of every unit vector, in one pass over the chunks for as many queries as fit."""
    parts = []
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
        parts.append((np.arange(begin, begin + len(block)), best.ranking()))
    return Ranking.joined(parts)
