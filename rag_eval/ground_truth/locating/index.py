"""An index of all short runs of characters of a text: where a run stands is one binary search away."""

import numpy as np
from numpy.typing import NDArray

from rag_eval.ground_truth.run_hashes import run_hashes

RUN = 8
"""Characters in a run: short enough to survive between two typos, long enough to be rare."""

_PLACE = np.uint64((1 << 36) - 1)
_PROBES = 4
MOST_PLACES = 1000
"""Further places of one text are not looked for: so many cannot be told apart anyway."""


class RunIndex:
    """Every run of ``RUN`` characters of a text, sorted by a hash of the run and then by place.

    A run and its place share one 64-bit number, 28 bits of hash above 36 bits of place, so that one sort of plain
    numbers makes the index. Hashes of different runs may meet: what is found is compared with the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        hashes = _hashes(text)
        self._keys = np.sort(hashes | np.arange(len(hashes), dtype=np.uint64))

    def occurrences(self, needle: str, begin: int, stop: int) -> list[int]:
        """Where the needle starts within ``text[begin:stop]``, rising; ``MOST_PLACES`` at most."""
        if len(needle) < RUN:
            return self._scanned(needle, begin, stop)
        hashes = _hashes(needle)
        probes = np.arange(_PROBES) * (len(hashes) - 1) // (_PROBES - 1)
        firsts, counts = self._places(hashes[probes], begin, stop)
        if counts.min() > MOST_PLACES:
            probes = np.arange(len(hashes))
            firsts, counts = self._places(hashes, begin, stop)
        rarest = int(np.argmin(counts))
        first, count, offset = int(firsts[rarest]), int(counts[rarest]), int(probes[rarest])
        found: list[int] = []
        for key in self._keys[first : first + count].tolist():
            start = (key & int(_PLACE)) - offset
            if begin <= start and start + len(needle) <= stop and self.text.startswith(needle, start):
                found.append(start)
                if len(found) == MOST_PLACES:
                    break
        return found

    def seeds(self, needle: str, begin: int, stop: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of an offset in the needle and a place in ``text[begin:stop]`` that have the same run (or its hash).

        Runs with more than ``most`` places say little about where and are passed over; when all have, the rarest one
        is taken, unless it is everywhere.
        """
        hashes = _hashes(needle)
        firsts, counts = self._places(hashes, begin, stop)
        rarest = int(counts[counts > 0].min(initial=MOST_PLACES))
        offsets = np.flatnonzero((counts > 0) & (counts <= most))
        if not len(offsets):
            offsets = np.flatnonzero(counts == rarest)[:1]
        firsts, counts = firsts[offsets], counts[offsets]
        # Each first index, counted up as often as the run has places.
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        places = (self._keys[np.repeat(firsts, counts) + within] & _PLACE).astype(np.int64)
        return np.repeat(offsets, counts), places

    def _places(self, hashes: NDArray[np.uint64], begin: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each run where its places in the range begin among the keys, and how many they are."""
        firsts = np.searchsorted(self._keys, hashes | np.uint64(begin))
        afters = np.searchsorted(self._keys, hashes | np.uint64(max(begin, stop - RUN + 1)))
        return firsts, afters - firsts

    def _scanned(self, needle: str, begin: int, stop: int) -> list[int]:
        found: list[int] = []
        start = self.text.find(needle, begin, stop)
        while start >= 0 and len(found) < MOST_PLACES:
            found.append(start)
            start = self.text.find(needle, start + 1, stop)
        return found


def _hashes(text: str) -> NDArray[np.uint64]:
    return run_hashes(text, RUN) & ~_PLACE
