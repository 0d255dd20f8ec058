"""Treat spans as sets of characters: the merge rule, for objects and arrays, and the overlap."""

from collections.abc import Iterable
from operator import attrgetter

import numpy as np

from rag_eval.errors import SpanMismatchError, preview
from rag_eval.metrics.metric import Counts
from rag_eval.types.chunks import CharacterSpan

Interval = tuple[int, int]
"""``[start, end)``."""

Place = tuple[str, int, int]
"""``[start, end)`` of a document."""


def merge_sorted(start: Counts, end: Counts) -> tuple[Counts, Counts, Counts]:
    """Merge overlapping or touching intervals, ordered by start; return starts, ends, and the first row of each."""
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.append(True, start[1:] > reach[:-1])[: len(start)])
    last = np.append(first[1:], len(start))[: len(first)] - 1
    return start[first], reach[last], first


def merge_places(places: Iterable[Place]) -> dict[str, list[Interval]]:
    """Merge overlapping or touching intervals of each document; return them by start, without empty ones."""
    merged: dict[str, list[Interval]] = {}
    by_document: dict[str, list[Interval]] = {}
    for doc_id, start, end in sorted(places):
        if start < end:
            by_document.setdefault(doc_id, []).append((start, end))
    for doc_id, intervals in by_document.items():
        starts, ends, _ = merge_sorted(*np.array(intervals, dtype=np.int64).T)
        merged[doc_id] = list(zip(starts.tolist(), ends.tolist(), strict=True))
    return merged


def overlapping_pairs(starts: Counts, ends: Counts, left: Counts, right: Counts) -> tuple[Counts, Counts]:
    """Return the pairs (interval, span) that share a position; intervals are ``[left, right)``, spans by start."""
    # Spans before `first` end too early, and spans from `last` on start too late.
    first = np.searchsorted(np.maximum.accumulate(ends), left, side="right")
    last = np.searchsorted(starts, right, side="left")
    candidates = np.maximum(last - first, 0)
    interval = np.repeat(np.arange(len(left)), candidates)
    span = np.arange(len(interval)) + np.repeat(first - np.cumsum(candidates) + candidates, candidates)
    kept = ends[span] > left[interval]
    return (interval, span) if kept.all() else (interval[kept], span[kept])


def calculate_overlap(a: Iterable[CharacterSpan], b: Iterable[CharacterSpan]) -> int:
    """Return how many characters are in both sides; each side is merged first, so that a character counts once."""
    left, right = (merge_places((span.doc_id, span.start, span.end) for span in side) for side in (a, b))
    total = 0
    for doc_id in left.keys() & right.keys():
        (starts, ends), (others, other_ends) = (np.array(side[doc_id], dtype=np.int64).T for side in (left, right))
        one, other = overlapping_pairs(others, other_ends, starts, ends)
        total += int((np.minimum(ends[one], other_ends[other]) - np.maximum(starts[one], others[other])).sum())
    return total


def merge_overlapping_spans(spans: Iterable[CharacterSpan]) -> list[CharacterSpan]:
    """Return the spans merged within each document, by document and start: no character is in two of them.

    Overlapping or touching spans become one, with the joined text, or none if one of them has no text.
    Raises ``SpanMismatchError`` when two spans disagree about their common text.
    """
    by_document: dict[str, list[CharacterSpan]] = {}
    for span in sorted(spans, key=attrgetter("doc_id", "start", "end")):
        by_document.setdefault(span.doc_id, []).append(span)
    merged = []
    for group in by_document.values():
        places = np.array([(span.start, span.end) for span in group], dtype=np.int64)
        firsts = merge_sorted(*places.T)[2].tolist()
        merged += [_stitch(group[first:last]) for first, last in zip(firsts, [*firsts[1:], len(group)], strict=True)]
    return merged


def _stitch(group: list[CharacterSpan]) -> CharacterSpan:
    """Return one span from spans that form one interval, sorted by start."""
    first = furthest = group[0]
    if len(group) > 1 and not all(span.text for span in group):
        return CharacterSpan(first.doc_id, first.start, max(span.end for span in group))
    texts = [first.text]
    for span in group[1:]:
        # The text that a span shares with earlier spans is in the one that ends last: one comparison is enough.
        shared = min(span.end, furthest.end) - span.start
        offset = span.start - furthest.start
        if span.text[:shared] != furthest.text[offset : offset + shared]:
            raise SpanMismatchError(
                f"two spans of {span.doc_id!r} disagree about [{span.start}, {span.start + shared}): one has "
                f"{preview(furthest.text[offset : offset + shared])}, the other {preview(span.text[:shared])}; "
                "take both from the same version of the document"
            )
        if span.end > furthest.end:
            texts.append(span.text[shared:])
            furthest = span
    return CharacterSpan(first.doc_id, first.start, furthest.end, "".join(texts))
