"""A review: decisions on queries and on single passages, each saved at once.

Every change is made to the files as they are at that moment, under a lock, so that two reviews of one file do not undo
each other. A decision on a passage is the grade of a person in the metadata of its query.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rag_eval.documents.reading import Loaders, read_document
from rag_eval.errors import ConfigurationError, CorpusError, GroundTruthError, ReviewConflictError
from rag_eval.ground_truth.check import span_fault
from rag_eval.ground_truth.pooling import ORIGIN
from rag_eval.ground_truth.records import AlternativeLine, Place, SpanLine
from rag_eval.ground_truth.review.entries import Entry, ReviewFiles, Side, Status
from rag_eval.ground_truth.truth_files import changed_line
from rag_eval.storage.files import Stamp, matching_files
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import HIGHEST_GRADE, JUDGED, PERSON, RELEVANT_GRADE, JudgedPassage
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
                read = read_document(path, self._loaders, doc_id)
                self._seen[known] = stamp, Document(known, read.text, read.metadata, path, read.boxes)
        except (OSError, CorpusError, ConfigurationError):
            raise KeyError(doc_id) from None
        return self._seen[known][1]


Verdict = Literal["accepted", "rejected", "unanswerable"]
"""What a person says of a question: good as it is, not to be asked, or answered by nothing in the documents."""


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class NewSpan:
    """A place in a document, and the digest of the text that was seen there.

    In the place of another passage, which ``replaces`` names, it takes over that one's origin and alternatives.
    """

    doc_id: str
    start: int
    end: int
    digest: str
    replaces: Place | None = None


class Passage(NamedTuple):
    """A passage of a question as it is shown: of its ground truth, offered to be judged, or rejected earlier."""

    span: AlternativeLine
    kind: Literal["span", "alternative", "offered", "rejected"]
    status: Status
    judged: JudgedPassage | None
    fault: str | None


class _Undo(NamedTuple):
    query_id: QueryId
    before: tuple[str, Side]
    after: tuple[str, Side]


MOVED = "somebody moved or removed this passage meanwhile: look at it as it is now"


class ReviewSession:
    """The review of a ground-truth file. Not safe for threads: let one at a time in.

    Raises ``GroundTruthError`` when the ground truth is missing or chunk-level.
    """

    def __init__(self, truth: Path, documents: DocumentFolder) -> None:
        self.files = ReviewFiles(truth, lambda: documents)
        self.documents = documents
        self._undo: list[_Undo] = []
        self.revision = 0
        """Another number whenever what is shown may have changed."""

    @property
    def entries(self) -> dict[QueryId, Entry]:
        return self.files.entries

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    def refresh(self) -> int:
        """Read what others have changed, and return the revision."""
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
        """Return all passages to judge: the spans with their alternatives, then what is offered or was rejected."""
        judged = _by_place(entry)
        passages = []
        for span in entry.record.relevant_spans:
            for number, member in enumerate(span.members):
                one = judged.get(member.place)
                status: Status = "accepted" if one and one.grades.get(PERSON, 0) >= RELEVANT_GRADE else "open"
                kind: Literal["span", "alternative"] = "alternative" if number else "span"
                passages.append(Passage(member, kind, status, one, self._fault(member)))
        offered, rejected = list[Passage](), list[Passage]()
        for place, one in judged.items():
            if place in entry.places:
                continue
            span = _line_of(one)
            if self._waits(one):
                offered.append(Passage(span, "offered", "open", one, self._fault(span)))
            elif PERSON in one.grades:
                rejected.append(Passage(span, "rejected", "rejected", one, self._fault(span)))
        return [*passages, *offered, *rejected]

    def offered(self, entry: Entry) -> int:
        """Return how many passages of a query wait to be judged: those drawn for people, or all without a draw."""
        return sum(self._waits(one) for place, one in _by_place(entry).items() if place not in entry.places)

    def _waits(self, judged: JudgedPassage) -> bool:
        return judged.grade is None and judged.sampled == self.files.is_sampled

    def _fault(self, span: AlternativeLine) -> str | None:
        return span_fault(span, self.documents.get(span.doc_id))

    def is_faulty(self, entry: Entry) -> bool:
        """Whether a span is not its document's text, or an answerable query has none."""
        members = [member for span in entry.record.relevant_spans for member in span.members]
        return any(map(self._fault, members)) or not (members or entry.record.unanswerable)

    def decide(self, query_id: str, version: str, verdict: Verdict) -> None:
        """Decide on a whole query; one that was rejected earlier goes back to the ground truth when it is accepted.

        Raises:
            GroundTruthError: If a query is accepted whose spans are not the text of their documents.
            ReviewConflictError: If the query is not as it was seen.
            ArtifactError: If the files cannot be written.
        """
        with self._changing():
            entry = self.entry(query_id)
            if entry.version != version:
                raise ReviewConflictError("this question was changed meanwhile: look at it as it is now")
            spans, judged = entry.record.relevant_spans, entry.judged
            if verdict == "unanswerable":
                for member in (member for span in spans for member in span.members):
                    judged = self._judged(judged, member, 0)
                spans = []
            elif verdict == "accepted":
                if not spans and not entry.record.unanswerable:
                    raise GroundTruthError("it has no span: add one before you accept it")
                for span in spans:
                    self._check(span)
            side: Side = "rejected" if verdict == "rejected" else "truth"
            line = entry.line if spans == entry.record.relevant_spans else _with_spans(entry.line, spans)
            review = "rejected" if verdict == "rejected" else "accepted"
            self._apply(entry, changed_line(line, {}, {"review": review}), judged, side)

    def judge(self, query_id: str, place: Place, decision: Literal["accepted", "rejected"]) -> None:
        """Decide on one passage: an accepted one is in the ground truth, a rejected one is not.

        Raises as ``decide`` does, and when the last passage of a query is rejected.
        """
        with self._changing():
            entry = self.entry(query_id)
            spans, line = entry.record.relevant_spans, entry.line
            passage = self._passage(entry, place)
            if decision == "accepted":
                self._check(passage)
                if place not in entry.places:
                    line = _with_spans(line, [*spans, SpanLine.model_validate(passage.model_dump())])
            elif place in entry.places:
                spans = _without(spans, place)
                if not spans:
                    raise GroundTruthError(
                        "it is the last passage: press 0 if nothing answers the question, or reject the question with r"
                    )
                line = _with_spans(line, spans)
            judged = self._judged(entry.judged, passage, HIGHEST_GRADE if decision == "accepted" else 0)
            self._apply(entry, line, judged, entry.side)

    def put_span(self, query_id: str, new: NewSpan) -> None:
        """Add a passage to a query, or put one elsewhere; raises as ``decide`` does, and on impossible places."""
        with self._changing():
            entry = self.entry(query_id)
            spans, judged = entry.record.relevant_spans, entry.judged
            span = self._placed(new)
            old = self._passage(entry, new.replaces) if new.replaces else None
            # A span may come to where another is, and takes its place; an alternative may not.
            is_alternative = old is not None and old.place in entry.places and old.place not in {s.place for s in spans}
            others = [one for group in spans if group is not old for one in group.members[not is_alternative :]]
            if span.place in {one.place for one in others if one is not old}:
                raise GroundTruthError(
                    f"[{span.start}, {span.end}) of {span.doc_id!r} is an alternative of another span: keep one of them"
                )
            if old is not None and old.place in entry.places:
                changed = [self._moved(group, old, span) for group in spans]
            else:
                changed = [*spans, span.model_copy(update={"origin": old.origin if old else None})]
            if old is not None:
                judged = [one for one in judged if _place_of(one) != old.place]
            unique = {one.place: one for one in reversed(changed)}
            changed = [unique.pop(one.place) for one in changed if one.place in unique]
            line = _with_spans(entry.line, changed)
            self._apply(entry, line, self._judged(judged, span, HIGHEST_GRADE), entry.side)

    def undo(self) -> QueryId | None:
        """Take back the last decision of this session and return its query, None when there is none.

        Raises ``ReviewConflictError`` when somebody else has changed the query since.
        """
        if not self._undo:
            return None
        with self._changing():
            last = self._undo.pop()
            entry = self.entry(last.query_id)
            if (entry.line, entry.side) != last.after:
                raise ReviewConflictError("somebody else has changed this question since: it is left as it is now")
            entry.put(*last.before)
            self.files.save()
            return last.query_id

    def entry(self, query_id: str) -> Entry:
        """Return a query; raises ``ReviewConflictError`` when the file has it no more."""
        entry = self.entries.get(QueryId(query_id))
        if entry is None:
            raise ReviewConflictError("this question is not in the file any more")
        return entry

    def _passage(self, entry: Entry, place: Place) -> AlternativeLine:
        """Return the passage at a place, of the ground truth or judged."""
        for span in entry.record.relevant_spans:
            for member in span.members:
                if member.place == place:
                    return member
        judged = _by_place(entry).get(place)
        if judged is None:
            raise ReviewConflictError(MOVED)
        return _line_of(judged)

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
        span = document.span(new.start, new.end)
        return SpanLine(doc_id=span.doc_id, start=span.start, end=span.end, text=span.text)

    def _moved(self, group: SpanLine, old: AlternativeLine, new: SpanLine) -> SpanLine:
        """Return a group with one member elsewhere; of the other alternatives of a span, those that are right."""
        if group.place != old.place:
            members = [new if one.place == old.place else one for one in group.alternatives]
            plain = [AlternativeLine(**one.model_dump(exclude={"alternatives"})) for one in members]
            return group.model_copy(update={"alternatives": plain})
        right = [one for one in group.alternatives if one.place != new.place and self._fault(one) is None]
        return new.model_copy(update={"origin": old.origin, "alternatives": right})

    def _judged(self, judged: Sequence[JudgedPassage], span: AlternativeLine, grade: int) -> list[JudgedPassage]:
        """Return the judged passages with the grade of a person; a span with a fault is no passage to be graded."""
        if self._fault(span) is not None:
            return list(judged)
        others = [JudgedPassage(span.span())] if all(_place_of(one) != span.place for one in judged) else []
        return [one.graded(PERSON, grade) if _place_of(one) == span.place else one for one in (*judged, *others)]

    def _apply(self, entry: Entry, line: str, judged: Sequence[JudgedPassage], side: Side) -> None:
        before = entry.line, entry.side
        if judged != entry.judged:
            line = changed_line(line, {}, {JUDGED: [one.as_data() for one in judged] or None})
        entry.put(line, side)
        self.files.save()
        self._undo.append(_Undo(entry.record.query_id, before, (line, side)))


def _place_of(judged: JudgedPassage) -> Place | None:
    passage = judged.passage
    return (passage.doc_id, passage.start, passage.end) if isinstance(passage, CharacterSpan) else None


def _by_place(entry: Entry) -> dict[Place, JudgedPassage]:
    return {place: one for one in entry.judged if (place := _place_of(one)) is not None}


def _line_of(judged: JudgedPassage) -> SpanLine:
    """Return a judged passage as it is written when a person finds that it answers."""
    text = judged.passage.text if isinstance(judged.passage, CharacterSpan) else ""
    return SpanLine(**judged.place, text=text, origin=f"{ORIGIN}{PERSON}")


def _without(spans: Iterable[SpanLine], place: Place) -> list[SpanLine]:
    """Return the spans without one, or without an alternative of one."""
    return [
        span.model_copy(update={"alternatives": [one for one in span.alternatives if one.place != place]})
        for span in spans
        if span.place != place
    ]


def _with_spans(line: str, spans: Iterable[AlternativeLine]) -> str:
    records = [span.model_dump(exclude_defaults=True) for span in spans]
    return changed_line(line, {"relevant_spans": records, "unanswerable": None if records else True}, {})
