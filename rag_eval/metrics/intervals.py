"""Character spans as sets of characters: the merge rule and the overlap."""

from collections.abc import Iterable
from operator import attrgetter

from rag_eval.errors import SpanMismatchError, preview
from rag_eval.types.chunks import CharacterSpan

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


def merge_overlapping_spans(spans: Iterable[CharacterSpan]) -> list[CharacterSpan]:
    """The spans merged within each document, by document and start: no character is in two of them.

    Spans that overlap or touch become one, whose text is put together from theirs. No spans give no spans.
    Raises ``SpanMismatchError`` when two spans disagree about the text they share.
    """
    merged: list[CharacterSpan] = []
    group: list[CharacterSpan] = []
    end = 0
    for span in sorted(spans, key=attrgetter("doc_id", "start", "end")):
        if group and (span.doc_id != group[0].doc_id or span.start > end):
            merged.append(_stitch(group))
            group = []
        end = max(end, span.end) if group else span.end
        group.append(span)
    if group:
        merged.append(_stitch(group))
    return merged


def calculate_overlap(a: Iterable[CharacterSpan], b: Iterable[CharacterSpan]) -> int:
    """How many characters are in both sides; each side is merged first, so a character counts once."""
    return shared_length(_merged(a), _merged(b))


def _merged(spans: Iterable[CharacterSpan]) -> Intervals:
    return merge_places((span.doc_id, span.start, span.end) for span in spans)


def _stitch(group: list[CharacterSpan]) -> CharacterSpan:
    """One span from spans that form one interval, sorted by start."""
    first = furthest = group[0]
    texts = [first.text]
    for span in group[1:]:
        # What a span shares with all before it lies within the one that reaches furthest: one comparison is enough.
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
