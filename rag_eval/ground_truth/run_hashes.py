"""Hashes of all runs of characters of a text, a run of the same length at every place."""

import numpy as np
from numpy.typing import NDArray

_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1


def code_points(text: str) -> NDArray[np.uint32]:
    """The text as numbers."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def run_hashes(text: str, length: int) -> NDArray[np.uint64]:
    """A hash of the run that starts at each place; none when the text is shorter than a run.

    ``length`` is a power of two, 8 or more. Equal runs have equal hashes. The upper bits are the better ones.
    """
    if len(text) < length:
        return np.zeros(0, dtype=np.uint64)
    hashes = code_points(text).astype(np.uint64)
    width, factor = 1, _FACTOR
    # Two neighbouring halves make a whole: three rounds for runs of eight.
    while width < length:
        hashes = hashes[:-width] * np.uint64(factor) + hashes[width:]
        width, factor = 2 * width, factor * factor & _ALL_BITS
    return hashes * np.uint64(_FACTOR)
