"""Re-anchor ground truth: move its spans to the right place in changed documents.

``Carrier`` follows spans through the difference of two versions of a text, ``reanchor`` applies it to ground truth, and
``write_reanchored`` writes the result and keeps lost spans.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rapidfuzz.distance import Levenshtein

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.diff import (
    EXACT_CELLS,
    SOLID,
    MatchingBlock,
    matching_blocks,
    moved_blocks,
    settled,
    shared_blocks,
    shifts,
)
from rag_eval.ground_truth.folding import places_of
from rag_eval.ground_truth.quotes import CorpusDocuments
from rag_eval.ground_truth.truth_files import read_token_level, rewrite_truth, write_token_level
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import TokenLevelGroundTruth, judged_at, judged_spans
from rag_eval.types.ids import DocumentId, QueryId

Status = Literal["kept", "moved", "altered", "lost"]
"""Same text and place; same text at another place; partly changed text; no place."""

LostReason = Literal["deleted", "rewritten", "ambiguous", "not-found", "document-gone"]
"""No text is left; too little is similar; several places fit equally; the text is nowhere and no earlier version is
known; the corpus has no such document."""

STATUSES: tuple[Status, ...] = ("kept", "moved", "altered", "lost")


@dataclass(frozen=True, slots=True)
class SpanOutcome:
    """What happened to a span of the ground truth; ``reason`` says why it was lost."""

    query_id: QueryId
    old: CharacterSpan
    status: Status
    new: CharacterSpan | None
    reason: LostReason | None = None


@dataclass(frozen=True, slots=True)
class ReanchorReport:
    """Ground truth that matches the corpus again, and what happened to each span.

    ``lost`` are the queries that lost spans, with only those. ``unanswered`` lost every span and are not in ``truth``.
    ``rejudged`` counts the judged passages that moved, or are unjudged again because their text has changed.
    """

    truth: Sequence[TokenLevelGroundTruth]
    lost: Sequence[TokenLevelGroundTruth]
    unanswered: Sequence[TokenLevelGroundTruth]
    spans: Sequence[SpanOutcome]
    rejudged: int = 0

    @property
    def counts(self) -> dict[Status, int]:
        """The number of spans with each status."""
        counts = Counter(span.status for span in self.spans)
        return {status: counts[status] for status in STATUSES}

    @property
    def is_unchanged(self) -> bool:
        return self.counts["kept"] == len(self.spans) and not self.rejudged


LEAST_SIMILARITY = 0.5
"""Minimum similarity of an altered span to the old one: 1 - edits / length of the longer."""

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Carried:
    """The position of a span in the new text; if it is lost, None and the reason."""

    status: Status
    place: Place | None
    reason: LostReason | None = None


def _unaltered(start: int, end: int, new_start: int) -> Carried:
    return Carried("kept" if new_start == start else "moved", (new_start, new_start + end - start))


class Carrier:
    """Follows spans from an old text to a new one by their difference, which distinguishes copies of a text.

    A span inside a moved or shared block keeps its text. Any other text is searched for between the solid blocks around
    it. If it is not there, the span becomes the text that is between them now, if that is similar enough.
    """

    def __init__(self, old: str, new: str, exact_cells: int = EXACT_CELLS) -> None:
        self._old, self._new = old, new
        blocks = settled(shared_blocks(old, new, exact_cells), old, new)
        ends = (len(old), len(new))
        self._solid = [
            block
            for block in blocks
            if block.length >= SOLID or block.old == block.new == 0 or (block.old_end, block.new_end) == ends
        ]
        self._walls = [MatchingBlock(0, 0, 0), *blocks, MatchingBlock(len(old), len(new), 0)]
        self._moved = moved_blocks(blocks, old, new)

    def carry(self, start: int, end: int) -> Carried:
        """Find the new position of ``old[start:end]``."""
        if (unbroken := self._unbroken(start, end)) is not None:
            return _unaltered(start, end, unbroken)
        text = self._old[start:end]
        old_gap, new_gap = self._gap(start, end)
        in_old = places_of(text, self._old[slice(*old_gap)])
        in_new = places_of(text, self._new[slice(*new_gap)])
        around = self._walls[bisect_right(self._walls, start, key=lambda block: block.old) - 1]
        if len(in_old) == len(in_new) == 1 and (end - start >= SOLID or around.old_end >= end):
            return _unaltered(start, end, new_gap[0] + in_new[0])
        for _, whole in self._moved:
            if whole.old <= start and end <= whole.old_end:
                return _unaltered(start, end, whole.new + start - whole.old)
        return Carried("lost", None, "ambiguous") if in_new else self._altered(start, end, old_gap, new_gap)

    def _unbroken(self, start: int, end: int) -> int | None:
        """Return the new start of a span that is inside a moved or shared block, or beside a change."""
        # Moved text comes first: the diff may have matched words of it with other sentences.
        number = bisect_right(self._moved, start, key=lambda moved: moved.core.old)
        for core, whole in self._moved[max(0, number - 2) : number]:
            if core.old_end > start and whole.old_end >= end:
                return core.new + start - core.old
        number = bisect_right(self._solid, start, key=lambda block: block.old)
        if number and self._solid[number - 1].old_end >= end:
            return self._solid[number - 1].new + start - self._solid[number - 1].old
        return self._beside_a_shifted_change(start, end)

    def _beside_a_shifted_change(self, start: int, end: int) -> int | None:
        """Return the new start of a span cut by one change, if the change also fits before or after the span."""
        walls = self._walls
        number = bisect_right(walls, start, hi=len(walls) - 1, key=lambda block: block.old)
        before, after = walls[number - 1], walls[number]
        is_cut = start < after.old and end > before.old_end
        is_gone = before.old_end <= start and end <= after.old
        if not is_cut or is_gone or end > after.old_end:
            return None
        back, on = shifts(before, after, self._old, self._new)
        if end - before.old_end <= on:
            return before.new + start - before.old
        return after.new + start - after.old if after.old - start <= back else None

    def _gap(self, start: int, end: int) -> tuple[Place, Place]:
        """Return the old and new text between the last solid character before the span and the first after it."""
        first, after = (0, 0), (len(self._old), len(self._new))
        if number := bisect_left(self._solid, start, key=lambda block: block.old):
            block = self._solid[number - 1]
            length = min(block.length, start - block.old)
            first = block.old + length, block.new + length
        number = bisect_right(self._solid, end, key=lambda block: block.old_end)
        if number < len(self._solid):
            block = self._solid[number]
            skipped = max(0, end - block.old)
            after = block.old + skipped, block.new + skipped
        return (first[0], after[0]), (first[1], after[1])

    def _altered(self, start: int, end: int, old_gap: Place, new_gap: Place) -> Carried:
        old, new = self._old[slice(*old_gap)], self._new[slice(*new_gap)]
        if len(old) * len(new) > EXACT_CELLS:
            return Carried("lost", None, "rewritten")
        first, after = (new_gap[0] + place for place in _image(old, new, start - old_gap[0], end - old_gap[0]))
        first = _to_word(self._new, first, new_gap[0] if _is_border(self._old, start) else first)
        after = _to_word(self._new, after, new_gap[1] if _is_border(self._old, end) else after)
        text = self._new[first:after]
        if not text.strip():
            return Carried("lost", None, "deleted")
        first += len(text) - len(text.lstrip())
        text = text.strip()
        if Levenshtein.normalized_similarity(self._old[start:end], text) < LEAST_SIMILARITY:
            return Carried("lost", None, "rewritten")
        return Carried("altered", (first, first + len(text)))


def _image(old: str, new: str, start: int, end: int) -> Place:
    """Return the part of the new text that is the fewest edits away from ``old[start:end]``; it may be empty."""
    shared = matching_blocks(Levenshtein.editops(old, new))
    walls = [MatchingBlock(0, 0, 0), *settled(shared, old, new), MatchingBlock(len(old), len(new), 0)]
    # The block of the first character, or the one before a change there; mirrored for the last character.
    number = bisect_right(walls, start, hi=len(walls) - 1, key=lambda block: block.old) - 1
    first = min(walls[number].new + start - walls[number].old, walls[number + 1].new)
    number = bisect_left(walls, end, lo=1, hi=len(walls) - 1, key=lambda block: block.old_end)
    after = max(walls[number].new_end - (walls[number].old_end - end), walls[number - 1].new_end)
    return first, max(first, after)


def _to_word(text: str, place: int, limit: int) -> int:
    """Return the next word border up to the limit, so that a span of whole words still consists of whole words."""
    while place != limit and not _is_border(text, place):
        place += 1 if place < limit else -1
    return place


def _is_border(text: str, place: int) -> bool:
    return not (0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum())


OldTexts = Mapping[DocumentId, Sequence[str]]
"""Earlier versions of documents, the newest first."""


def reanchor(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus, old: OldTexts | None = None) -> ReanchorReport:
    """Move every span to the place of its text in the corpus.

    A document whose spans all match is skipped. Otherwise, each span is moved by the difference from a version that it
    matches, starting with the version that most spans match. A span that matches no version moves to the only
    occurrence of its text in the document, and is lost if there is none or several.

    Args:
        truth: The ground truth; its judged passages are carried too.
        corpus: The current documents.
        old: Earlier versions of the documents.
    """
    items, documents = list(truth), corpus.by_id()
    judged = list(dict.fromkeys(span for item in items for span in judged_spans(item.query)))
    carried = _carry_spans(dict.fromkeys((*_members(items), *judged)), documents, old or {})
    new = {span: documents[span.doc_id].span(*now.place) if now.place else None for span, now in carried.items()}
    # A grade applies to a text, and not to an altered one.
    new_judged = {span: new[span] for span in judged if carried[span].status in ("kept", "moved")}
    renewed = [_regrouped(replace(item, query=judged_at(item.query, new_judged)), new) for item in items]
    gone = {span: span for span, now in new.items() if now is None}
    return ReanchorReport(
        truth=[item for item in renewed if _has_answer(item)],
        lost=[lost for item in items if (lost := _regrouped(item, gone)).relevant_spans],
        unanswered=[item for item, now in zip(items, renewed, strict=True) if not _has_answer(now)],
        spans=[
            SpanOutcome(item.query.id, span, carried[span].status, new[span], carried[span].reason)
            for item in items
            for span in _members([item])
        ],
        rejudged=sum(new_judged.get(span) != span for span in judged),
    )


def _has_answer(item: TokenLevelGroundTruth) -> bool:
    return bool(item.relevant_spans or item.unanswerable)


def documents_that_no_longer_match(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus) -> dict[DocumentId, int]:
    """Count the spans and judged passages that do not match, by document."""
    documents, items = corpus.by_id(), list(truth)
    spans = (*_members(items), *(span for item in items for span in judged_spans(item.query)))
    return dict(
        Counter(
            span.doc_id
            for span in spans
            if (document := documents.get(span.doc_id)) is None or not _matches(span, document.content)
        )
    )


def _members(truth: Iterable[TokenLevelGroundTruth]) -> Iterator[CharacterSpan]:
    return (span for item in truth for group in item.groups for span in group)


def _regrouped(
    item: TokenLevelGroundTruth, places: Mapping[CharacterSpan, CharacterSpan | None]
) -> TokenLevelGroundTruth:
    """Put every span at its new position, or remove it; the first remaining member represents its group."""
    groups = [[new for span in group if (new := places.get(span)) is not None] for group in item.groups]
    origins = {new: origin for span, origin in item.origins.items() if (new := places.get(span)) is not None}
    return _with_groups(item, [group for group in groups if group], origins)


def _with_groups(
    item: TokenLevelGroundTruth, groups: Sequence[Sequence[CharacterSpan]], origins: Mapping[CharacterSpan, str]
) -> TokenLevelGroundTruth:
    spans = [group[0] for group in groups]
    alternatives: dict[CharacterSpan, list[CharacterSpan]] = {}
    taken = set(spans)  # two spans may have become one, which can belong to one group only
    for seed, *members in groups:
        for span in members:
            if span not in taken:
                alternatives.setdefault(seed, []).append(span)
                taken.add(span)
    return replace(item, relevant_spans=spans, alternatives=alternatives, origins=origins)


def _carry_spans(
    spans: Iterable[CharacterSpan], documents: Mapping[DocumentId, Document], old: OldTexts
) -> dict[CharacterSpan, Carried]:
    """Find the new position of each span, one document after the other."""
    by_document: dict[DocumentId, list[CharacterSpan]] = {}
    for span in spans:
        by_document.setdefault(span.doc_id, []).append(span)
    carried: dict[CharacterSpan, Carried] = {}
    for doc_id, members in by_document.items():
        if doc_id not in documents:
            carried |= dict.fromkeys(members, Carried("lost", None, "document-gone"))
        elif all(_matches(span, documents[doc_id].content) for span in members):
            carried |= {span: Carried("kept", (span.start, span.end)) for span in members}
        else:
            carried |= _carry_through(members, documents[doc_id].content, old.get(doc_id, ()))
    return carried


def _carry_through(
    spans: Sequence[CharacterSpan], content: str, versions: Sequence[str]
) -> dict[CharacterSpan, Carried]:
    """Move the spans of a document by the difference from the version that most of them match, and so on."""
    carried: dict[CharacterSpan, Carried] = {}
    left, candidates = list(spans), [*versions, content]
    while left and candidates:
        matching = [[span for span in left if _matches(span, version)] for version in candidates]
        best = max(range(len(candidates)), key=lambda number: len(matching[number]))
        if not matching[best]:
            break
        carrier = Carrier(candidates.pop(best), content)
        carried |= {span: carrier.carry(span.start, span.end) for span in matching[best]}
        left = [span for span in left if span not in carried]
    return carried | {span: _found_by_text(span.text, content) for span in left}


def _found_by_text(text: str, content: str) -> Carried:
    places = places_of(text, content, 2)
    if len(places) == 1:
        return Carried("moved", (places[0], places[0] + len(text)))
    return Carried("lost", None, "ambiguous" if places else "not-found")


def _matches(span: CharacterSpan, content: str) -> bool:
    """Return whether a text has the span's text at its position, or any text if the span has none."""
    text = content[span.start : span.end]
    return text == span.text or (not span.text and len(text) == span.end - span.start)


def write_reanchored(report: ReanchorReport, path: Path, documents: CorpusDocuments | None = None) -> Path | None:
    """Write re-anchored ground truth, first adding lost spans to a file beside it, and return the path of that file.

    Only the lines of queries whose spans changed are rewritten, and each file is replaced at once or not at all.

    Raises:
        GroundTruthError: If no query is left.
        ArtifactError: If a file cannot be written.
    """
    check_not_empty(report)
    lost = None
    if report.lost:
        lost = path.with_name(f"{path.stem}.lost{path.suffix or '.jsonl'}")
        earlier = read_token_level(lost) if lost.exists() else []
        write_token_level(lost, _joined(earlier, report.lost))
    rewrite_truth(path, report.truth, documents)
    return lost


def check_not_empty(report: ReanchorReport) -> None:
    """Raise ``GroundTruthError`` if no query is left."""
    if not report.truth:
        raise GroundTruthError(
            f"none of the {len(report.unanswered)} queries has a span that is in the corpus: "
            "check the corpus folder and its glob"
        )


def _joined(earlier: list[TokenLevelGroundTruth], lost: Sequence[TokenLevelGroundTruth]) -> list[TokenLevelGroundTruth]:
    joined = {item.query.id: item for item in earlier}
    for item in lost:
        known = joined.setdefault(item.query.id, item)
        groups: dict[CharacterSpan, list[CharacterSpan]] = {}
        for seed, *members in (*known.groups, *item.groups):
            groups.setdefault(seed, [seed]).extend(members)
        joined[item.query.id] = _with_groups(known, list(groups.values()), {**item.origins, **known.origins})
    return list(joined.values())
