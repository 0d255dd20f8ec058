"""Telling several copies of a text apart by what is known about the place."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rapidfuzz.distance import Levenshtein

from rag_eval.ground_truth.locating.folding import folded_form

T = TypeVar("T")

_CONTEXT = 400
_LEAST_SIMILARITY = 0.6


def context_edits(before: str, after: str, text: str, place: tuple[int, int], bounds: tuple[int, int]) -> float | None:
    """How many edits the surroundings of a place in the text are away from the given ones; None when too far.

    The surroundings are as long as the given ones, which are folded forms, and end at the bounds. Too far is below a
    similarity of 0.6; so is every place when nothing was given.
    """
    (start, end), (begin, stop) = place, bounds
    found_before = text[max(begin, start - len(before)) : start]
    found_after = text[end : min(stop, end + len(after))]
    edits = Levenshtein.distance(before, found_before) + Levenshtein.distance(after, found_after)
    total = len(before) + len(after)
    return edits if total and 1 - edits / total >= _LEAST_SIMILARITY else None


def context_forms(before: str, after: str) -> tuple[str, str]:
    """The folded forms of a text before and a text after, cut to what is near."""
    return folded_form(before[-2 * _CONTEXT :])[-_CONTEXT:], folded_form(after[: 2 * _CONTEXT])[:_CONTEXT]


def clearly_nearest(candidates: Sequence[T], distance: Callable[[T], float | None], factor: float) -> T | None:
    """The candidate at the smallest distance, if every other is further by the factor at least; None if none is.

    A distance of None is never the nearest and does not stand in the way.
    """
    measured = [(found, candidate) for candidate in candidates if (found := distance(candidate)) is not None]
    if not measured:
        return None
    measured.sort(key=lambda pair: pair[0])
    nearest = measured[0]
    if len(measured) > 1 and (measured[1][0] <= nearest[0] or measured[1][0] < factor * nearest[0]):
        return None
    return nearest[1]
