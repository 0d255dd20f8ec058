"""Boxes of the characters of a document on its pages, packed in blocks, of which a look-up unpacks only a few.

Boxes are those of words: where a span begins or ends inside a word, its characters count as equally wide.
"""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

STEPS = 2**16 - 1
"""The steps into which a page is divided, across and down."""
MOST = 2**31 - 1
BLOCK_RUNS = 4096
COLUMNS = 7


class Box(NamedTuple):
    """A box on a page, which counts from 1: fractions of its width and height, from its upper left corner."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


class WordBox(NamedTuple):
    """Where the characters ``[start, end)`` are on a page; ``right`` is the smaller where they run right to left."""

    start: int
    end: int
    page: int
    left: float
    top: float
    right: float
    bottom: float


def pack(runs: "Iterable[WordBox] | NDArray[np.float64]") -> bytes:
    """Return runs, or an array of their fields, as bytes; they come in the order of the text, none over another.

    Raises ``ValueError`` where they do not, or a page is below 1.
    """
    fields = np.asarray(runs if isinstance(runs, np.ndarray) else [*runs], np.float64).reshape(-1, COLUMNS)
    starts, ends, pages = fields[:, 0], fields[:, 1], fields[:, 2]
    if not (np.isfinite(fields).all() and (ends > starts).all() and (starts[1:] >= ends[:-1]).all()):
        raise ValueError("the runs of a document's boxes are not in the order of its text")
    if len(fields) and (starts[0] < 0 or pages.min() < 1 or max(ends[-1], pages.max()) > MOST):
        raise ValueError("a run of a document's boxes begins before the text, is on a page below 1, or is too far on")
    exact = fields.copy()
    exact[:, 3:] = np.rint(np.clip(fields[:, 3:], 0.0, 1.0) * STEPS)
    numbers = exact.astype(np.int32)
    blocks, index = [], []
    for first in range(0, len(numbers), BLOCK_RUNS):
        block = numbers[first : first + BLOCK_RUNS]
        # Neighbours differ little, and the bytes that are zero then stand side by side.
        changes = np.diff(block, axis=0, prepend=np.zeros((1, COLUMNS), np.int32)).T
        packed = zlib.compress(np.ascontiguousarray(changes).view(np.uint8).reshape(-1, 4).T.tobytes())
        index.append((block[0, 0], block[-1, 1], len(block), len(packed)))
        blocks.append(packed)
    return np.array([len(index)], "<i4").tobytes() + np.array(index, "<i4").tobytes() + b"".join(blocks)


def boxes_at(packed: bytes, start: int, end: int) -> list[Box]:
    """Return the boxes of the characters ``[start, end)``, one for each line of a page; none where none are known.

    Raises ``ValueError`` on bytes that ``pack`` did not make.
    """
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
    """Return the runs that touch ``[start, end)``: fields of ``WordBox``, edges in steps; raises as ``boxes_at``."""
    (count,) = np.frombuffer(packed[:4], "<i4").tolist() if len(packed) >= 4 else (-1,)
    if count < 0 or len(packed) < 4 + 16 * count:
        raise ValueError("these are no boxes")
    index = np.frombuffer(packed, "<i4", 4 * count, 4).reshape(-1, 4)
    places = 4 + 16 * count + np.r_[0, np.cumsum(index[:, 3], dtype=np.int64)]
    blocks = [np.empty((0, COLUMNS), np.int32)]
    for number in np.flatnonzero((index[:, 0] < end) & (index[:, 1] > start)).tolist():
        size = int(index[number, 2]) * COLUMNS * 4
        if not 0 < size <= BLOCK_RUNS * COLUMNS * 4:
            raise ValueError("these are no boxes")
        try:
            data = zlib.decompressobj().decompress(packed[places[number] : places[number + 1]], size)
            planes = np.frombuffer(data, np.uint8).reshape(4, -1)
        except zlib.error:
            raise ValueError("these are no boxes") from None
        changes = np.ascontiguousarray(planes.T).view("<i4").reshape(COLUMNS, -1)
        blocks.append(np.cumsum(changes, axis=1, dtype=np.int32).T)
    runs = np.concatenate(blocks)
    np.clip(runs[:, 3:], 0, STEPS, out=runs[:, 3:])  # a map may be anybody's
    return runs[(runs[:, 0] < np.minimum(runs[:, 1], end)) & (runs[:, 1] > start)]
