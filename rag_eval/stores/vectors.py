"""Vectors on their way into a store: checked, and scaled to length 1."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.errors import TableError

ROWS_AT_ONCE = 8192


def unit_vectors(vectors: ArrayLike, what: str, dimension: int | None = None) -> Vectors:
    """The vectors in float32, each scaled to length 1; a zero vector stays zero.

    A row's result depends on that row alone, so that equal vectors stay equal whatever they are given with. Raises
    ``TableError``, naming ``what`` and the row, when there is not one vector a row, when a number is not finite in
    float32, or when the vectors do not have the ``dimension`` asked for.
    """
    given = _float32(vectors, what)
    if dimension is not None and given.shape[1] != dimension:
        raise TableError(
            f"the {what} have {given.shape[1]} dimensions, the store's vectors have {dimension}: "
            "use the embedder the store was filled with"
        )
    units = np.empty(given.shape, np.float32)
    for begin in range(0, len(given), ROWS_AT_ONCE):
        rows = given[begin : begin + ROWS_AT_ONCE].astype(np.float64)
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            row = begin + int(np.argmin(finite))
            raise TableError(f"row {row} of the {what} holds a number that is not finite: look at what was embedded")
        length = np.sqrt(row_dots(rows, rows))
        length[length == 0] = 1
        units[begin : begin + len(rows)] = rows / length[:, None]
    return units


def row_dots(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The dot product of each row of one with the same row of the other.

    Products of float32 numbers are exact in float64, and numpy adds up every row of a contiguous array in the same
    order: equal rows give equal results, bit for bit, wherever they stand.
    """
    dots: NDArray[np.float64] = np.add.reduce(np.multiply(left, right, order="C"), axis=1)
    return dots


def _float32(vectors: ArrayLike, what: str) -> Vectors:
    try:
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused as such
            given: Vectors = np.asarray(vectors).astype(np.float32, order="C", copy=False)
    except (TypeError, ValueError) as error:
        raise TableError(f"the {what} are not an array of numbers: {error}") from None
    if given.ndim != 2 or given.shape[1] == 0:
        raise TableError(f"the {what} have the shape {given.shape}: give one vector a row")
    return given
