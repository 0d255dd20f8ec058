"""A review: decisions on questions and on single passages, each saved at once, and merged with what others decide.

Every change is made to the files as they are at that moment, under a lock: two reviews of one file do not undo each
other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rag_eval.documents.reading import Loaders, read_document
from rag_eval.errors import ConfigurationError, CorpusError, GroundTruthError, ReviewConflictError
from rag_eval.ground_truth.check import span_fault
from rag_eval.ground_truth.judgements import (
    IMPLIED,
    Decision,
    Entry,
    ReviewFiles,
    Side,
    Status,
    TruthJudgement,
    difference,
    disagreements,
    judged_line,
    latest,
    parse_entry,
    without,
)
from rag_eval.ground_truth.records import AlternativeLine, Place, SpanLine
from rag_eval.ground_truth.truth_files import changed_line
from rag_eval.storage.files import Stamp, matching_files
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId, QueryId, text_sha256


class DocumentFolder(Mapping[str, Document]):
    """The documents of a folder, by id; each is read again when its file has changed."""

    def __init__(self, folder: Path, glob: str | Sequence[str], loaders: Mapping[str, Any] | None = None) -> None:
        """List the files; raises what ``Corpus.from_folder`` raises for a folder that cannot be used."""
        self._loaders = Loaders(loaders)
        self._paths = {DocumentId(path.relative_to(folder).as_posix()): path for path in matching_files(folder, glob)}
        self._seen: dict[DocumentId, tuple[Stamp, Document]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._paths))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, doc_id: str) -> Document:
        """Return the document as it is now; raises ``KeyError`` where there is none of this id that can be read."""
        known = DocumentId(doc_id)
        path = self._paths[known]
        try:
            stamp = Stamp.of(path)
            if known not in self._seen or self._seen[known][0] != stamp:
                found = read_document(path, self._loaders, doc_id)
                self._seen[known] = stamp, Document(known, found.text, found.metadata, path, found.boxes)
        except (OSError, CorpusError, ConfigurationError):
            raise KeyError(doc_id) from None
        return self._seen[known][1]


Verdict = Literal["accepted", "rejected", "unanswerable"]
"""What a person says of a question: good as it is, not to be asked, or answered by nothing in the documents."""
_FROM_THE_PAGE = ConfigDict(extra="forbid", strict=True)


@pydantic_dataclass(frozen=True, config=_FROM_THE_PAGE)
class NewSpan:
    """A place in a document of which ``digest`` tells which text was seen.

    In the place of another passage, which ``replaces`` names, it takes over that one's origin and alternatives.
    """

    doc_id: str
    start: int
    end: int
    digest: str
    replaces: tuple[str, int, int] | None = None


class Passage(NamedTuple):
    """A passage of a question as it is shown: of its truth, offered as one, or rejected earlier."""

    span: AlternativeLine
    kind: Literal["span", "alternative", "offered", "rejected"]
    status: Status
    judgement: TruthJudgement | None
    fault: str | None


class _Undo(NamedTuple):
    query_id: QueryId
    before: tuple[str, Side]
    after: tuple[str, Side]
    lines: list[str]


class ReviewSession:
    """One person's review of ground truth. Not safe for threads: let one at a time in."""

    def __init__(self, truth: Path, documents: DocumentFolder, by: str = "somebody") -> None:
        """Read the files; raises ``GroundTruthError`` when the truth is missing or chunk-level."""
        self.files = ReviewFiles(truth, lambda: documents)
        self.documents, self.by = documents, by
        self._undo: list[_Undo] = []
        self.revision = 0
        """Another number whenever what is shown may have changed."""

    @property
    def entries(self) -> dict[QueryId, Entry]:
        return self.files.entries

    @property
    def name(self) -> str:
        return self.files.path.name

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    def refresh(self) -> int:
        """Read what others have changed; gives the revision."""
        if not self.files.is_current:
            with self._changing():
                pass
        return self.revision

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self.revision += 1
        with self.files.changing():
            yield

    def passages(self, entry: Entry) -> list[Passage]:
        """Return all there is to judge of a question: its spans with their alternatives, then offers and rejections."""
        known = self._latest_of(entry)
        found = []
        for span in entry.record.relevant_spans:
            for number, member in enumerate(span.members):
                one = known.get(member.place)
                is_accepted = one is not None and one.decision == "accepted"
                status: Status = "accepted" if is_accepted else "open"
                found.append(Passage(member, "alternative" if number else "span", status, one, self._fault(member)))
        in_truth, apart = entry.places, []
        for place, one in known.items():
            if one.span is not None and place not in in_truth:
                is_rejected = one.decision == "rejected"
                kind: Literal["rejected", "offered"] = "rejected" if is_rejected else "offered"
                status = "rejected" if is_rejected else "open"
                apart.append(Passage(one.span, kind, status, one, self._fault(one.span)))
        return found + sorted(apart, key=lambda one: one.kind)

    def offers(self) -> dict[str, int]:
        """Return by question how many passages are offered that nobody has judged."""
        found: dict[str, int] = {}
        for (query_id, place), one in latest(self.files.judgements).items():
            entry = self.entries.get(QueryId(query_id))
            if one.decision == "offered" and entry is not None and place not in entry.places:
                found[query_id] = found.get(query_id, 0) + 1
        return found

    def differing(self) -> dict[str, list[str]]:
        """Return by question on what people differ, a sentence each."""
        found: dict[str, list[str]] = {}
        for item, told in disagreements(self.files.judgements).items():
            found.setdefault(item[0], []).append(difference(item, told))
        return found

    def _latest_of(self, entry: Entry) -> dict[Place, TruthJudgement]:
        mine = (one for one in self.files.judgements if one.id == entry.record.query_id)
        return {place: one for (_, place), one in latest(mine).items() if place is not None and one.decision != "moved"}

    def _fault(self, span: AlternativeLine) -> str | None:
        return span_fault(span, self.documents.get(span.doc_id))

    def is_faulty(self, entry: Entry) -> bool:
        """Whether it has a passage that is not its document's text, or none and is not declared unanswerable."""
        members = [member for span in entry.record.relevant_spans for member in span.members]
        return any(map(self._fault, members)) or not (members or entry.record.unanswerable)

    def decide(self, query_id: str, version: str, verdict: Verdict) -> Entry:
        """Decide on a whole question; one that was rejected earlier goes back to the truth when it is accepted.

        Raises ``GroundTruthError`` when one is accepted that is not true, ``ReviewConflictError`` when the question is
        not as it was seen, ``ArtifactError`` when it cannot be written.
        """
        with self._changing():
            entry = self.entry(query_id)
            if entry.version != version:
                raise ReviewConflictError("this question was changed meanwhile: look at it as it is now")
            line, records = entry.line, []
            if verdict == "unanswerable":
                records = [self._judgement(entry, "rejected", span) for span in entry.record.relevant_spans]
                line = changed_line(line, {"relevant_spans": [], "unanswerable": True}, {})
            elif verdict == "accepted":
                if not entry.record.relevant_spans and not entry.record.unanswerable:
                    raise GroundTruthError("it has no span: add one before you accept it")
                for span in entry.record.relevant_spans:
                    self._check(span)
            decision: Decision = "rejected" if verdict == "rejected" else "accepted"
            is_unanswerable = decision == "accepted" and parse_entry(line).unanswerable
            records.append(self._judgement(entry, decision, unanswerable=is_unanswerable))
            side: Side = "rejected" if verdict == "rejected" else "truth"
            self._apply(entry, changed_line(line, {}, {"review": decision}), side, records)
            return entry

    def judge(self, query_id: str, place: Place, decision: Literal["accepted", "rejected"]) -> Entry:
        """Decide on one passage: an accepted one is in the truth, a rejected one is not.

        Raises as ``decide`` does, and when the last passage of a question is rejected.
        """
        with self._changing():
            entry = self.entry(query_id)
            spans = entry.record.relevant_spans
            members = {member.place: member for span in spans for member in span.members}
            offered = self._latest_of(entry).get(place)
            span = members.get(place) or (offered.span if offered else None)
            if span is None:
                raise ReviewConflictError("somebody moved or removed this passage meanwhile: look at it as it is now")
            line = entry.line
            if decision == "accepted":
                self._check(span)
                if place not in members:
                    others = [one for one in getattr(span, "alternatives", []) if one.place not in members]
                    span = SpanLine(**span.model_dump(exclude={"alternatives"}), alternatives=others)
                    line = _with_spans(line, [*spans, span])
            elif place in members:
                kept = without(spans, place)
                if not kept:
                    raise GroundTruthError(
                        "it is the last passage: press 0 if nothing answers the question, or reject the question with r"
                    )
                line = _with_spans(line, kept)
            line = judged_line(line, {place: decision})
            self._apply(entry, line, entry.side, [self._judgement(entry, decision, span)])
            return entry

    def put_span(self, query_id: str, new: NewSpan) -> Entry:
        """Add a passage to a question, or put one elsewhere; raises as ``decide`` does, and on impossible places."""
        with self._changing():
            entry = self.entry(query_id)
            spans, records = entry.record.relevant_spans, []
            span = self._placed(new)
            members = {one.place: one for group in spans for one in group.members}
            offered = self._latest_of(entry).get(new.replaces) if new.replaces else None
            old = members.get(new.replaces) if new.replaces else None
            old = old or (offered.span if offered else None)
            if new.replaces is not None and old is None:
                raise ReviewConflictError("somebody moved or removed this passage meanwhile: look at it as it is now")
            # A span may come to where another is, and takes its place; an alternative may not.
            is_alternative = old is not None and old.place in members and old.place not in {one.place for one in spans}
            others = [one for group in spans if group is not old for one in group.members[not is_alternative :]]
            if span.place in {one.place for one in others if one is not old}:
                raise GroundTruthError(
                    f"[{span.start}, {span.end}) of {span.doc_id!r} is an alternative of another span: keep one of them"
                )
            if old is not None and old.place in members:
                changed = [self._moved(group, old, span) for group in spans]
            else:
                changed = [*spans, span.model_copy(update={"origin": old.origin if old else None})]
            if old is not None and old.place != span.place:
                records.append(self._judgement(entry, "moved", old))
            unique = {one.place: one for one in reversed(changed)}
            changed = [unique.pop(one.place) for one in changed if one.place in unique]
            now = next((one for one in changed if one.place == span.place), span)
            records.append(self._judgement(entry, "accepted", now))
            self._apply(entry, _with_spans(entry.line, changed), entry.side, records)
            return entry

    def undo(self) -> QueryId | None:
        """Take back the last decision of this session; gives its query, None when there is none.

        Raises ``ReviewConflictError`` when somebody else has changed the question since.
        """
        if not self._undo:
            return None
        with self._changing():
            last = self._undo.pop()
            entry = self.entry(last.query_id)
            if (entry.line, entry.side) != last.after:
                raise ReviewConflictError("somebody else has changed this question since: it is left as it is now")
            entry.put(*last.before)
            self.files.save([line for line in self.files.log if line not in last.lines])
            return last.query_id

    def entry(self, query_id: str) -> Entry:
        """Return a query; raises ``ReviewConflictError`` when the file has it no more."""
        entry = self.entries.get(QueryId(query_id))
        if entry is None:
            raise ReviewConflictError("this question is not in the file any more")
        return entry

    def _check(self, span: AlternativeLine) -> None:
        for number, member in enumerate(span.members if isinstance(span, SpanLine) else [span]):
            if fault := self._fault(member):
                raise GroundTruthError(
                    f"adjust the span before you accept it: {'an alternative: ' if number else ''}{fault}"
                )

    def _placed(self, new: NewSpan) -> SpanLine:
        document = self.documents.get(new.doc_id)
        if document is None:
            raise ReviewConflictError(f"the document {new.doc_id!r} cannot be read any more")
        if text_sha256(document.content) != new.digest:
            raise ReviewConflictError(f"the document {new.doc_id!r} has changed: look at it as it is now")
        found = document.span(new.start, new.end)
        return SpanLine(doc_id=found.doc_id, start=found.start, end=found.end, text=found.text)

    def _moved(self, group: SpanLine, old: AlternativeLine, new: SpanLine) -> SpanLine:
        """Return a group with one member elsewhere; of the other alternatives of a span, those that are right."""
        if group.place != old.place:
            return _regrouped(group, lambda one: new if one.place == old.place else one)
        kept = [one for one in group.alternatives if one.place != new.place and self._fault(one) is None]
        return new.model_copy(update={"origin": old.origin, "alternatives": kept})

    def _judgement(
        self, entry: Entry, decision: Decision, span: AlternativeLine | None = None, *, unanswerable: bool = False
    ) -> TruthJudgement:
        """Return what this person decides now; never before what is in the file, whatever the clocks say."""
        last = max((one.at for one in self.files.judgements), default=IMPLIED)
        group = None if span is None else SpanLine.model_validate(span.model_dump())
        return TruthJudgement(
            id=entry.record.query_id,
            span=group,
            decision=decision,
            unanswerable=unanswerable,
            by=self.by,
            at=max(datetime.now(UTC), last + timedelta(microseconds=1)),
        )

    def _apply(self, entry: Entry, line: str, side: Side, records: Sequence[TruthJudgement]) -> None:
        """Change one query and save it with the judgements that led to it."""
        before, lines = (entry.line, entry.side), [one.line for one in records]
        entry.put(line, side)
        self.files.save([*self.files.log, *lines])
        self._undo.append(_Undo(entry.record.query_id, before, (line, side), lines))


def _regrouped(group: SpanLine, change: Callable[[AlternativeLine], AlternativeLine]) -> SpanLine:
    members = [AlternativeLine(**change(one).model_dump(exclude={"alternatives"})) for one in group.alternatives]
    return group.model_copy(update={"alternatives": members})


def _with_spans(line: str, spans: Iterable[AlternativeLine]) -> str:
    records = [span.model_dump(exclude_defaults=True) for span in spans]
    return changed_line(line, {"relevant_spans": records, "unanswerable": None if records else True}, {})
