"""Drift: carry the spans of ground truth over to documents that have changed.

``Carrier`` follows spans through the difference of two versions of a text; ``reanchor`` does so for whole truth, and
``write_reanchored`` writes it so that nothing of the old is lost.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rapidfuzz.distance import Levenshtein

from rag_eval.errors import GroundTruthError
from rag_eval.ground_truth.diff import EXACT_CELLS, SOLID, MatchingBlock, moved_blocks, settled, shared_blocks, shifts
from rag_eval.ground_truth.folding import places_of
from rag_eval.ground_truth.quotes import CorpusDocuments
from rag_eval.ground_truth.truth_files import read_token_level, rewrite_truth, write_token_level
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import TokenLevelGroundTruth, judged_at, judged_spans
from rag_eval.types.ids import DocumentId, QueryId

Status = Literal["kept", "moved", "altered", "lost"]
"""The same text at the same place; the same text at another place; other text, in part; nothing to point at."""

LostReason = Literal["deleted", "rewritten", "ambiguous", "not-found", "document-gone"]
"""Nothing is in its place; what is there has little in common with it; it is in several places that cannot be told
apart; it is nowhere, and the old document is not at hand; the corpus has no such document."""

Way = Literal["unchanged", "diff", "text", "gone"]
"""How the spans of a document were carried: it has the text of all of them; through the difference to the version they
were made on; without that version, by looking for their text; not at all, the corpus has no such document."""

STATUSES: tuple[Status, ...] = ("kept", "moved", "altered", "lost")


@dataclass(frozen=True, slots=True)
class SpanOutcome:
    """One span of the truth: as it was, what became of it, and as it is; ``reason`` says why it is lost."""

    query_id: QueryId
    old: CharacterSpan
    status: Status
    new: CharacterSpan | None
    reason: LostReason | None = None


@dataclass(frozen=True, slots=True)
class DocumentOutcome:
    """One document that the truth points into: how its spans were carried, and how many had which outcome."""

    doc_id: DocumentId
    way: Way
    counts: dict[Status, int]


@dataclass(frozen=True, slots=True)
class ReanchorReport:
    """Truth that fits the corpus again, and the outcome of each document and span, in the order of the truth.

    A lost span is left out of the truth. ``lost`` are the queries that lost a span, with the spans they lost as they
    were; ``unanswered`` are those that lost every span and are left out of the truth. ``rejudged`` passages that were
    judged are at another place now, or unjudged again because their text has changed.
    """

    truth: Sequence[TokenLevelGroundTruth]
    lost: Sequence[TokenLevelGroundTruth]
    unanswered: Sequence[TokenLevelGroundTruth]
    documents: Sequence[DocumentOutcome]
    spans: Sequence[SpanOutcome]
    rejudged: int = 0

    @property
    def counts(self) -> dict[Status, int]:
        return counted_statuses(self.spans)

    @property
    def is_unchanged(self) -> bool:
        return self.counts["kept"] == len(self.spans) and not self.rejudged


def counted_statuses(spans: Sequence[SpanOutcome]) -> dict[Status, int]:
    """How many of the spans had which outcome, none left out."""
    found = Counter(span.status for span in spans)
    return {status: found[status] for status in STATUSES}


LEAST_SIMILARITY = 0.5
"""What is less similar to the old text is not the same content any more: 1 - edits / length of the longer."""

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Carried:
    """Where a span is in the new text; ``place`` is None and there is a reason when it is lost."""

    status: Status
    place: Place | None
    reason: LostReason | None = None


class Carrier:
    """The difference of two versions of a text, and what becomes of the spans of the old one.

    The diff is what tells copies of a text apart. A span inside a shared block has the same text in the new version.
    One that was surely moved is where it was moved to. One that is cut is looked for between the solid blocks around
    it, then beside what was moved, and is else what is now between those blocks, if that is similar enough.
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
        """Return what becomes of ``old[start:end]``."""
        # What was moved goes first: the diff may have found words of it in other sentences.
        number = bisect_right(self._moved, start, key=lambda moved: moved.core.old)
        for core, whole in self._moved[max(0, number - 2) : number]:
            if core.old_end > start and whole.old_end >= end:
                return self._unaltered((start, end), core.new + start - core.old)
        number = bisect_right(self._solid, start, key=lambda block: block.old)
        if number and self._solid[number - 1].old_end >= end:
            block = self._solid[number - 1]
            return self._unaltered((start, end), block.new + start - block.old)
        shifted = self._shifted(start, end)
        if shifted is not None:
            return self._unaltered((start, end), shifted)
        text = self._old[start:end]
        old_gap, new_gap = self._gap(start, end)
        in_old = places_of(text, self._old[slice(*old_gap)])
        in_new = places_of(text, self._new[slice(*new_gap)])
        around = self._walls[bisect_right(self._walls, start, key=lambda block: block.old) - 1]
        if len(in_old) == len(in_new) == 1 and (end - start >= SOLID or around.old_end >= end):
            return self._unaltered((start, end), new_gap[0] + in_new[0])
        for _, whole in self._moved:
            if whole.old <= start and end <= whole.old_end:
                return self._unaltered((start, end), whole.new + start - whole.old)
        if in_new:
            return Carried("lost", None, "ambiguous")
        return self._altered(start, end, old_gap, new_gap)

    def _unaltered(self, place: Place, start: int) -> Carried:
        return Carried("kept" if start == place[0] else "moved", (start, start + place[1] - place[0]))

    def _shifted(self, start: int, end: int) -> int | None:
        """Where a span that one change cuts is whole, when the change can as well be before or after it."""
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
        number = bisect_left(self._solid, start, key=lambda block: block.old)
        if number:
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
        # What began and ended with whole words goes on doing so.
        while _is_border(self._old, start) and first > new_gap[0] and not _is_border(self._new, first):
            first -= 1
        while _is_border(self._old, end) and after < new_gap[1] and not _is_border(self._new, after):
            after += 1
        found = self._new[first:after]
        if not found.strip():
            return Carried("lost", None, "deleted")
        first += len(found) - len(found.lstrip())
        found = found.strip()
        if Levenshtein.normalized_similarity(self._old[start:end], found) < LEAST_SIMILARITY:
            return Carried("lost", None, "rewritten")
        return Carried("altered", (first, first + len(found)))


def _image(old: str, new: str, start: int, end: int) -> Place:
    """Return the part of the new text that the fewest edits make out of ``old[start:end]``; it may be empty."""
    shared = [MatchingBlock(one.a, one.b, one.size) for one in Levenshtein.editops(old, new).as_matching_blocks()]
    walls = [MatchingBlock(0, 0, 0), *settled(shared, old, new), MatchingBlock(len(old), len(new), 0)]
    # The block that holds the first character, or is before the change that does; the last one from its other side.
    number = bisect_right(walls, start, hi=len(walls) - 1, key=lambda block: block.old) - 1
    first = min(walls[number].new + start - walls[number].old, walls[number + 1].new)
    number = bisect_left(walls, end, lo=1, hi=len(walls) - 1, key=lambda block: block.old_end)
    after = max(walls[number].new_end - (walls[number].old_end - end), walls[number - 1].new_end)
    return first, max(first, after)


def _is_border(text: str, place: int) -> bool:
    return not (0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum())


OldTexts = Mapping[DocumentId, Sequence[str]]
"""Earlier versions of documents, the newest first."""


def reanchor(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus, old: OldTexts | None = None) -> ReanchorReport:
    """Return the truth with every span where its text is in the corpus now.

    A document that has the text of all its spans in their places is left alone. Else each span is carried through the
    difference between the document and the version in which the span fits, of those in ``old`` the one that fits the
    most. A span that fits no version stays if the document has its text in its place, goes where the document has it
    exactly once, and is lost otherwise: nothing is guessed.
    """
    items, documents = list(truth), corpus.by_id()
    spans: dict[DocumentId, list[CharacterSpan]] = {}
    judged = list(dict.fromkeys(span for item in items for span in judged_spans(item.query)))
    for span in (*_members(items), *judged):
        spans.setdefault(span.doc_id, []).append(span)
    ways: dict[DocumentId, Way] = {}
    carried: dict[CharacterSpan, Carried] = {}
    for doc_id, members in spans.items():
        versions = (old or {}).get(doc_id, ())
        ways[doc_id] = _carry_all(list(dict.fromkeys(members)), documents.get(doc_id), versions, carried)
    every: list[SpanOutcome] = []
    for item in items:
        for span in _members([item]):
            found = carried[span]
            new = documents[span.doc_id].span(*found.place) if found.place is not None else None
            every.append(SpanOutcome(item.query.id, span, found.status, new, found.reason))
    places = {outcome.old: outcome.new for outcome in every}
    # A grade is one of a text: of an altered one it says nothing.
    same = [span for span in judged if carried[span].status in ("kept", "moved")]
    now = {span: documents[span.doc_id].span(*place) for span in same if (place := carried[span].place) is not None}
    renewed = [_regrouped(replace(item, query=judged_at(item.query, now)), places) for item in items]
    gone = {span: span for span, new in places.items() if new is None}
    return ReanchorReport(
        truth=[item for item in renewed if item.relevant_spans or item.unanswerable],
        lost=[lost for item in items if (lost := _regrouped(item, gone)).relevant_spans],
        unanswered=[
            item for item, now in zip(items, renewed, strict=True) if not now.relevant_spans and not now.unanswerable
        ],
        documents=[
            DocumentOutcome(doc_id, way, counted_statuses([one for one in every if one.old.doc_id == doc_id]))
            for doc_id, way in ways.items()
        ],
        spans=every,
        rejudged=sum(now.get(span) != span for span in judged),
    )


def documents_that_no_longer_match(truth: Iterable[TokenLevelGroundTruth], corpus: Corpus) -> dict[DocumentId, int]:
    """Return the documents that are gone or have other text where the truth has spans, each with how many spans."""
    documents = corpus.by_id()
    found: dict[DocumentId, int] = {}
    items = list(truth)
    for span in (*_members(items), *(span for item in items for span in judged_spans(item.query))):
        document = documents.get(span.doc_id)
        if document is None or not _fits(span, document.content):
            found[span.doc_id] = found.get(span.doc_id, 0) + 1
    return found


def _members(truth: Iterable[TokenLevelGroundTruth]) -> Iterator[CharacterSpan]:
    return (span for item in truth for group in item.groups for span in group)


def _regrouped(
    item: TokenLevelGroundTruth, places: Mapping[CharacterSpan, CharacterSpan | None]
) -> TokenLevelGroundTruth:
    """Put every span at its new place, or leave it out; a group goes on with the first member it has left."""
    groups = [[new for span in group if (new := places.get(span)) is not None] for group in item.groups]
    origins = {new: origin for span, origin in item.origins.items() if (new := places.get(span)) is not None}
    return _with_groups(item, [group for group in groups if group], origins)


def _with_groups(
    item: TokenLevelGroundTruth, groups: Sequence[Sequence[CharacterSpan]], origins: Mapping[CharacterSpan, str]
) -> TokenLevelGroundTruth:
    spans = [group[0] for group in groups]
    alternatives: dict[CharacterSpan, list[CharacterSpan]] = {}
    # Two spans may have become one, which is in one group.
    taken = set(spans)
    for seed, *members in groups:
        for span in members:
            if span not in taken:
                alternatives.setdefault(seed, []).append(span)
                taken.add(span)
    return replace(item, relevant_spans=spans, alternatives=alternatives, origins=origins)


def _carry_all(
    spans: Sequence[CharacterSpan],
    document: Document | None,
    versions: Sequence[str],
    carried: dict[CharacterSpan, Carried],
) -> Way:
    """Find out what becomes of the spans of one document; gives the way it was found out."""
    if document is None:
        carried.update((span, Carried("lost", None, "document-gone")) for span in spans)
        return "gone"
    content = document.content
    if all(_fits(span, content) for span in spans):
        carried.update((span, Carried("kept", (span.start, span.end))) for span in spans)
        return "unchanged"
    way: Way = "text"
    # Spans may have been made on different versions, the present one among them.
    left, candidates = list(spans), [*versions, content]
    while left and candidates:
        fitting = [[span for span in left if _fits(span, version)] for version in candidates]
        best = max(range(len(candidates)), key=lambda number: len(fitting[number]))
        version, found = candidates.pop(best), set(fitting[best])
        if not found:
            break
        carrier = Carrier(version, content)
        carried.update((span, carrier.carry(span.start, span.end)) for span in found)
        left = [span for span in left if span not in found]
        way = "diff" if version != content else way
    for span in left:
        places = places_of(span.text, content)
        if len(places) == 1:
            carried[span] = Carried("moved", (places[0], places[0] + len(span.text)))
        else:
            carried[span] = Carried("lost", None, "ambiguous" if places else "not-found")
    return way


def _fits(span: CharacterSpan, content: str) -> bool:
    """Whether a text has the span's in its place; of a span that does not tell its text, whether it has one."""
    found = content[span.start : span.end]
    return found == span.text or (not span.text and len(found) == span.end - span.start)


def write_reanchored(report: ReanchorReport, path: Path, documents: CorpusDocuments | None = None) -> Path | None:
    """Write re-anchored ground truth to its file, and what was lost to a file beside it, which is returned.

    Each file is replaced at once or not at all, the one with the lost spans first, which keeps what an earlier call
    left in it. Only the lines of queries with other spans are rewritten. Raises ``GroundTruthError`` when no query is
    left, ``ArtifactError`` when a file cannot be written.
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
    """Raise ``GroundTruthError`` when no query is left."""
    if not report.truth:
        raise GroundTruthError(
            f"not one of the {len(report.unanswered)} queries has a span that is in the corpus: "
            "check the corpus folder and its glob"
        )


def _joined(earlier: list[TokenLevelGroundTruth], lost: Sequence[TokenLevelGroundTruth]) -> list[TokenLevelGroundTruth]:
    found = {item.query.id: item for item in earlier}
    for item in lost:
        known = found.setdefault(item.query.id, item)
        groups: dict[CharacterSpan, list[CharacterSpan]] = {}
        for seed, *members in (*known.groups, *item.groups):
            groups.setdefault(seed, [seed]).extend(members)
        found[item.query.id] = _with_groups(known, list(groups.values()), {**item.origins, **known.origins})
    return list(found.values())
