"""The stretch of a text that comes nearest to a needle: the real extent, which may be longer or shorter than it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from rag_eval.ground_truth.locating.index import RUN
from rag_eval.ground_truth.locating.prepared import PreparedDocuments

_MOST_PLACES_A_RUN = 64
_MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Extent:
    """``[start, end)`` of a text, and how many edits make the needle out of it."""

    start: int
    end: int
    edits: int

    def similarity(self, needle: str) -> float:
        """1 - edits / length of the longer."""
        return 1 - self.edits / max(len(needle), self.end - self.start)


@dataclass(frozen=True, slots=True)
class _Core:
    """A stretch that is the same in needle and text: where it is in each, and how long it is."""

    offset: int
    place: int
    length: int


def nearest_extents(documents: PreparedDocuments, needle: str, begin: int, stop: int, threshold: float) -> list[Extent]:
    """The stretches of the folded text in ``[begin, stop)`` that are ``threshold`` similar or more, fewest edits first.

    Runs that needle and text share lead to the places. From the longest stretch that is the same there, the text is
    taken to both sides as far as it has the fewest edits; of equal choices the one at the border of a word, then the
    one nearest to the needle's own length. No two stretches overlap, and none goes over from one document to the next.
    """
    text, slack = documents.index.text, 2 + int(len(needle) * (1 - threshold))
    found: list[Extent] = []
    for offsets, places in _clusters(*documents.index.seeds(needle, begin, stop, _MOST_PLACES_A_RUN), slack):
        core = _longest_core(text, needle, offsets, places)
        if core is None:
            continue
        lowest, highest = documents.document_range(core.place)
        bounds = max(lowest, begin), min(highest, stop)
        extent = _stretched(text, needle, core, bounds, slack, documents.is_border)
        if extent.similarity(needle) >= threshold:
            found.append(extent)
    chosen: list[Extent] = []
    for extent in sorted(found, key=lambda extent: (extent.edits, extent.start)):
        if all(extent.end <= other.start or other.end <= extent.start for other in chosen):
            chosen.append(extent)
    return chosen


def _clusters(
    offsets: NDArray[np.int64], places: NDArray[np.int64], slack: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Shared runs that could belong to one copy of the needle, those with the most runs first."""
    if not len(offsets):
        return
    starts = places - offsets
    order = np.argsort(starts, kind="stable")
    offsets, places, starts = offsets[order], places[order], starts[order]
    numbers = np.concatenate(([0], np.cumsum(np.diff(starts) > slack)))
    distinct = np.unique(numbers * (int(offsets.max()) + 1) + offsets) // (int(offsets.max()) + 1)
    votes = np.bincount(distinct, minlength=int(numbers[-1]) + 1)
    for number in np.argsort(-votes, kind="stable")[:_MOST_CANDIDATES].tolist():
        if 2 * votes[number] < votes.max():
            break
        members = slice(*np.searchsorted(numbers, (number, number + 1)).tolist())
        yield offsets[members], places[members]


def _longest_core(text: str, needle: str, offsets: NDArray[np.int64], places: NDArray[np.int64]) -> _Core | None:
    """The longest stretch of runs that follow each other in needle and text alike; None when they are not the same."""
    order = np.lexsort((offsets, places - offsets))
    offsets, places = offsets[order], places[order]
    borders = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(places) != 1)) + 1
    firsts = np.concatenate(([0], borders))
    lengths = np.diff(np.concatenate((firsts, [len(offsets)])))
    longest = int(np.argmax(lengths))
    core = _Core(int(offsets[firsts[longest]]), int(places[firsts[longest]]), int(lengths[longest]) + RUN - 1)
    # Hashes of different runs may meet.
    return core if text.startswith(needle[core.offset : core.offset + core.length], core.place) else None


def _stretched(
    text: str, needle: str, core: _Core, bounds: tuple[int, int], slack: int, is_border: Callable[[int], bool]
) -> Extent:
    start, end = core.place, core.place + core.length
    head, tail = needle[: core.offset], needle[core.offset + core.length :]
    before = text[max(bounds[0], start - len(head) - slack) : start]
    after = text[end : min(bounds[1], end + len(tail) + slack)]
    left, left_edits = _reach(head[::-1], before[::-1], lambda length: is_border(start - length))
    right, right_edits = _reach(tail, after, lambda length: is_border(end + length))
    return Extent(start - left, end + right, left_edits + right_edits)


def _reach(flank: str, beyond: str, is_border: Callable[[int], bool]) -> tuple[int, int]:
    """How much of ``beyond``, from its start, is nearest to the flank, and with how many edits."""
    fewest = len(flank) + len(beyond)
    equals: list[int] = []
    # From the flank's own length outwards: so much longer or shorter cannot have fewer edits than that.
    for length in sorted(range(len(beyond) + 1), key=lambda length: abs(length - len(flank))):
        if abs(length - len(flank)) > fewest:
            break
        edits = Levenshtein.distance(flank, beyond[:length], score_cutoff=fewest)
        if edits < fewest:
            fewest, equals = edits, []
        if edits == fewest:
            equals.append(length)
    return min(equals, key=lambda length: (not is_border(length), abs(length - len(flank)))), fewest
