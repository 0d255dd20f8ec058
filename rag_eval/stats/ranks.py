"""Places in a ranking: the best first, and equal means share a place."""

from collections.abc import Sequence

EQUAL_WITHIN = 1e-9
"""Means that differ by less are the same in other words: sums in another order."""


def best_first(means: Sequence[float], *, higher_is_better: bool = True) -> list[int]:
    """The numbers of the means, best first; equal ones stay in the order given."""
    sign = -1 if higher_is_better else 1
    order = sorted(range(len(means)), key=lambda number: sign * means[number])
    places = shared_places([means[number] for number in order])
    return [number for _, number in sorted(zip(places, order, strict=True))]


def shared_places(means: Sequence[float]) -> list[int]:
    """The places of means that stand best first, from 1; equal ones share the first of theirs."""
    places: list[int] = []
    for number, mean in enumerate(means):
        is_tie = number > 0 and abs(means[number - 1] - mean) <= EQUAL_WITHIN
        places.append(places[-1] if is_tie else number + 1)
    return places


def place_labels(means: Sequence[float]) -> list[str]:
    """The places of means that stand best first, in writing: a shared one is marked, such as ``=1``."""
    places = shared_places(means)
    return [f"{'=' if places.count(place) > 1 else ''}{place}" for place in places]
