"""Locate the characters of a document on its pages.

Boxes are packed in blocks, so that a lookup unpacks only a few. Each box belongs to a word. If a span starts or ends
inside a word, its characters are assumed to be equally wide.
"""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STEPS = 2**16 - 1
"""The resolution of a page, horizontally and vertically."""
MOST = 2**31 - 1
BLOCK_RUNS = 4096
COLUMNS = 7


class Box(NamedTuple):
    """A box on a page, in fractions of its width and height from the top left corner. Pages count from 1."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


class WordBox(NamedTuple):
    """The box of the characters ``[start, end)``. ``right`` is less than ``left`` if they run right to left."""

    start: int
    end: int
    page: int
    left: float
    top: float
    right: float
    bottom: float


def pack(boxes: Iterable[WordBox] | NDArray[np.float64]) -> bytes:
    """Return boxes, or an array of their fields, as bytes.

    Raises ``ValueError`` if they overlap, are not in the order of the text, or have a page below 1.
    """
    fields = np.asarray(boxes if isinstance(boxes, np.ndarray) else [*boxes], np.float64).reshape(-1, COLUMNS)
    starts, ends, pages = fields[:, 0], fields[:, 1], fields[:, 2]
    if not (np.isfinite(fields).all() and (ends > starts).all() and (starts[1:] >= ends[:-1]).all()):
        raise ValueError("the boxes of a document are not in the order of its text")
    if len(fields) and (starts[0] < 0 or pages.min() < 1 or max(ends[-1], pages.max()) > MOST):
        raise ValueError(
            "one of the boxes of a document starts before the text, is on a page below 1, or is out of range"
        )
    exact = fields.copy()
    exact[:, 3:] = np.rint(np.clip(fields[:, 3:], 0.0, 1.0) * STEPS)
    numbers = exact.astype(np.int32)
    blocks, index = [], []
    for first in range(0, len(numbers), BLOCK_RUNS):
        block = numbers[first : first + BLOCK_RUNS]
        # Store differences of neighbours: they are small, so their zero bytes are adjacent and compress well.
        changes = np.diff(block, axis=0, prepend=np.zeros((1, COLUMNS), np.int32)).T
        packed = zlib.compress(np.ascontiguousarray(changes).view(np.uint8).reshape(-1, 4).T.tobytes())
        index.append((block[0, 0], block[-1, 1], len(block), len(packed)))
        blocks.append(packed)
    return np.array([len(index)], "<i4").tobytes() + np.array(index, "<i4").tobytes() + b"".join(blocks)


def boxes_at(packed: bytes, start: int, end: int) -> list[Box]:
    """Return the boxes of the characters ``[start, end)``, one for each line of a page. Raises like ``words_at``."""
    inside = words_at(packed, start, end).astype(np.float64)
    if not len(inside) or start >= end:
        return []
    begin, stop, lengths = inside[:, 0], inside[:, 1], inside[:, 1] - inside[:, 0]
    shares = (np.maximum(begin, start) - begin) / lengths, (np.minimum(stop, end) - begin) / lengths
    edges = [inside[:, 3] + share * (inside[:, 5] - inside[:, 3]) for share in shares]
    left, right = np.minimum(*edges), np.maximum(*edges)
    lines = inside[:, [2, 4, 6]]
    firsts = np.flatnonzero(np.r_[True, (lines[1:] != lines[:-1]).any(axis=1)])
    return [
        Box(int(page), left / STEPS, top / STEPS, right / STEPS, bottom / STEPS)
        for (page, top, bottom), left, right in zip(
            lines[firsts].tolist(),
            np.minimum.reduceat(left, firsts).tolist(),
            np.maximum.reduceat(right, firsts).tolist(),
            strict=True,
        )
    ]


def words_at(packed: bytes, start: int, end: int) -> NDArray[np.int32]:
    """Return the fields of the boxes that touch ``[start, end)``, with edges from 0 to ``STEPS``.

    Raises ``ValueError`` if the bytes are damaged.
    """
    (count,) = np.frombuffer(packed[:4], "<i4").tolist() if len(packed) >= 4 else (-1,)
    if count < 0 or len(packed) < 4 + 16 * count:
        raise ValueError("the stored boxes are damaged")
    index = np.frombuffer(packed, "<i4", 4 * count, 4).reshape(-1, 4)
    places = 4 + 16 * count + np.r_[0, np.cumsum(index[:, 3], dtype=np.int64)]
    blocks = [np.empty((0, COLUMNS), np.int32)]
    for number in np.flatnonzero((index[:, 0] < end) & (index[:, 1] > start)).tolist():
        size = int(index[number, 2]) * COLUMNS * 4
        if not 0 < size <= BLOCK_RUNS * COLUMNS * 4:
            raise ValueError("the stored boxes are damaged")
        try:
            data = zlib.decompressobj().decompress(packed[places[number] : places[number + 1]], size)
            planes = np.frombuffer(data, np.uint8).reshape(4, -1)
        except zlib.error:
            raise ValueError("the stored boxes are damaged") from None
        changes = np.ascontiguousarray(planes.T).view("<i4").reshape(COLUMNS, -1)
        blocks.append(np.cumsum(changes, axis=1, dtype=np.int32).T)
    runs = np.concatenate(blocks)
    np.clip(runs[:, 3:], 0, STEPS, out=runs[:, 3:])  # the bytes are untrusted
    return runs[(runs[:, 0] < np.minimum(runs[:, 1], end)) & (runs[:, 1] > start)]
