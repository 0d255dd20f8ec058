"""Character spans as sets of characters: the merge rule and the overlap."""

from collections.abc import Iterable
from operator import attrgetter

from rag_eval.errors import SpanMismatchError, preview
from rag_eval.metrics.intervals import Intervals, merge_places, shared_length
from rag_eval.types.span import CharacterSpan


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
