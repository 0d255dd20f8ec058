"""Merging, measuring and intersecting half-open intervals, for one query in plain Python."""

from collections.abc import Iterable

Interval = tuple[int, int]
"""``[start, end)``."""

Place = tuple[str, int, int]
"""``[start, end)`` of a document."""

Intervals = dict[str, list[Interval]]
"""For each document its intervals: merged, none empty, by start."""


def merge_places(places: Iterable[Place]) -> Intervals:
    """The places as merged intervals; those that overlap or touch become one, empty ones vanish."""
    merged: Intervals = {}
    for doc_id, start, end in sorted(places):
        if start == end:
            continue
        intervals = merged.setdefault(doc_id, [])
        if intervals and start <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(end, intervals[-1][1]))
        else:
            intervals.append((start, end))
    return merged


def measure(intervals: Intervals) -> int:
    """The summed length."""
    return sum(end - start for spans in intervals.values() for start, end in spans)


def shared_length(left: Intervals, right: Intervals) -> int:
    """How much the two have in common, in one walk along both."""
    return sum(_shared(spans, right[doc_id]) for doc_id, spans in left.items() if doc_id in right)


def take_away(intervals: list[Interval], start: int, end: int) -> tuple[list[Interval], int]:
    """The intervals without ``[start, end)``, and how much that took away."""
    rest: list[Interval] = []
    taken = 0
    for left, right in intervals:
        inner_left, inner_right = max(left, start), min(right, end)
        if inner_left >= inner_right:
            rest.append((left, right))
            continue
        taken += inner_right - inner_left
        if left < inner_left:
            rest.append((left, inner_left))
        if inner_right < right:
            rest.append((inner_right, right))
    return rest, taken


def _shared(left: list[Interval], right: list[Interval]) -> int:
    total = i = j = 0
    while i < len(left) and j < len(right):
        total += max(0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return total
