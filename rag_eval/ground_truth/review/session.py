"""Review decisions on queries and passages, saved at once.

Every change is made to the current files, under a lock, so that several reviews of one file do not undo each other. A
decision on a passage is stored as a person's grade in the metadata of its query.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

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
    """The documents of a folder by id; a file is read again after it changes."""

    def __init__(self, folder: Path, glob: str | Sequence[str], loaders: Mapping[str, Any] | None = None) -> None:
        """List the files; raise like ``Corpus.from_folder``."""
        self._loaders = Loaders(loaders)
        self._paths = {DocumentId(path.relative_to(folder).as_posix()): path for path in matching_files(folder, glob)}
        self._seen: dict[DocumentId, tuple[Stamp, Document]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._paths))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, doc_id: str) -> Document:
        """Return the document as it is now; raise ``KeyError`` if it cannot be read."""
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


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class NewSpan:
    """A position in a document with this digest; it takes over origin and alternatives of the span it ``replaces``."""

    doc_id: str
    start: int
    end: int
    digest: str
    replaces: Place | None = None


class Passage(NamedTuple):
    """A passage of a query: in its ground truth, waiting to be judged, or rejected earlier."""

    span: AlternativeLine
    kind: Literal["span", "alternative", "offered", "rejected"]
    status: Status
    judged: JudgedPassage | None
    fault: str | None


class _Undo(NamedTuple):
    query_id: QueryId
    before: tuple[str, Side]
    after: tuple[str, Side]


MOVED = "somebody else moved or removed this passage: look at it again"


class ReviewSession:
    """The review of a ground-truth file, for one thread at a time.

    Raises ``GroundTruthError`` if the ground truth is missing or chunk-level.
    """

    def __init__(self, truth: Path, documents: DocumentFolder) -> None:
        self.files = ReviewFiles(truth, lambda: documents)
        self.documents = documents
        self._undo: list[_Undo] = []
        self.revision = 0
        """Changes whenever the page may need an update."""

    @property
    def entries(self) -> dict[QueryId, Entry]:
        return self.files.entries

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    def refresh(self) -> int:
        """Read changes made by others, and return the revision."""
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
        """Return the spans with their alternatives, then the passages to judge, then the rejected ones."""
        judged = _by_place(entry)
        passages = []
        for span in entry.record.relevant_spans:
            for number, member in enumerate(span.members):
                known = judged.get(member.place)
                is_accepted = known is not None and known.grades.get(PERSON, 0) >= RELEVANT_GRADE
                kind: Literal["span", "alternative"] = "alternative" if number else "span"
                status: Status = "accepted" if is_accepted else "open"
                passages.append(Passage(member, kind, status, known, self._fault(member)))
        offered, rejected = list[Passage](), list[Passage]()
        for place, passage in judged.items():
            if place in entry.places:
                continue
            span = _line_of(passage)
            if self._waits(passage):
                offered.append(Passage(span, "offered", "open", passage, self._fault(span)))
            elif PERSON in passage.grades:
                rejected.append(Passage(span, "rejected", "rejected", passage, self._fault(span)))
        return [*passages, *offered, *rejected]

    def offered(self, entry: Entry) -> int:
        """Count the passages that wait for a judgement: those of the sample, or all without a sample."""
        return sum(self._waits(passage) for place, passage in _by_place(entry).items() if place not in entry.places)

    def _waits(self, judged: JudgedPassage) -> bool:
        return judged.grade is None and judged.sampled == self.files.is_sampled

    def _fault(self, span: AlternativeLine) -> str | None:
        return span_fault(span, self.documents.get(span.doc_id))

    def is_faulty(self, entry: Entry) -> bool:
        """Whether a span does not match its document, or an answerable query has no span."""
        return any(map(self._fault, entry.members)) or not (entry.members or entry.record.unanswerable)

    def decide(self, query_id: str, version: str, verdict: Verdict) -> None:
        """Decide on a query; a rejected query that is accepted returns to the ground truth.

        Raises:
            GroundTruthError: If a query is accepted whose spans do not match their documents.
            ReviewConflictError: If the query has changed since ``version``.
            ArtifactError: If the files cannot be written.
        """
        with self._changing():
            entry = self.entry(query_id)
            if entry.version != version:
                raise ReviewConflictError("somebody else has changed this question: look at it again")
            spans, judged, line = entry.record.relevant_spans, entry.judged, entry.line
            if verdict == "unanswerable":
                for member in entry.members:
                    judged = self._judged(judged, member, 0)
                line = _with_spans(line, []) if spans else line
            elif verdict == "accepted":
                if not spans and not entry.record.unanswerable:
                    raise GroundTruthError("it has no span: add one before you accept it")
                for span in spans:
                    self._check(span)
            review = "rejected" if verdict == "rejected" else "accepted"
            side: Side = "rejected" if verdict == "rejected" else "truth"
            self._apply(entry, changed_line(line, {}, {"review": review}), judged, side)

    def judge(self, query_id: str, place: Place, decision: Literal["accepted", "rejected"]) -> None:
        """Add a passage to the ground truth, or remove it.

        Raises like ``decide``, and if the last passage of a query is rejected.
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
                left = [_with_alternatives(span, _other(span.alternatives, place)) for span in _other(spans, place)]
                if not left:
                    raise GroundTruthError(
                        "it is the last passage: press 0 if nothing answers the question, or reject the question with r"
                    )
                line = _with_spans(line, left)
            judged = self._judged(entry.judged, passage, HIGHEST_GRADE if decision == "accepted" else 0)
            self._apply(entry, line, judged, entry.side)

    def put_span(self, query_id: str, new: NewSpan) -> None:
        """Add a passage to a query, or move one; raises like ``decide``, and for an impossible position."""
        with self._changing():
            entry = self.entry(query_id)
            span, judged = self._placed(new), entry.judged
            old = self._passage(entry, new.replaces) if new.replaces else None
            groups = self._with_span(entry.record.relevant_spans, span, old)
            if old is not None:
                judged = [passage for passage in judged if _place_of(passage) != old.place]
            unique: dict[Place, SpanLine] = {}
            for group in groups:
                unique.setdefault(group.place, group)
            line = _with_spans(entry.line, unique.values())
            self._apply(entry, line, self._judged(judged, span, HIGHEST_GRADE), entry.side)

    def _with_span(self, spans: Sequence[SpanLine], span: SpanLine, old: AlternativeLine | None) -> list[SpanLine]:
        """Return the spans of a query with one added, or with a member moved."""
        is_member = old is not None and any(member is old for group in spans for member in group.members)
        # A span may replace another span, but an alternative may neither be replaced nor move to a span.
        is_alternative = is_member and all(group is not old for group in spans)
        others = [m for group in spans if group is not old for m in group.members[not is_alternative :]]
        if any(other.place == span.place for other in others if other is not old):
            raise GroundTruthError(
                f"[{span.start}, {span.end}) of {span.doc_id!r} is an alternative of another span: keep one of them"
            )
        if old is not None and is_member:
            return [self._moved(group, old, span) for group in spans]
        return [*spans, span.model_copy(update={"origin": old.origin if old else None})]

    def undo(self) -> QueryId | None:
        """Undo the last decision of this session and return its query; None if there is none.

        Raises ``ReviewConflictError`` if somebody else has changed the query since.
        """
        if not self._undo:
            return None
        with self._changing():
            last = self._undo.pop()
            entry = self.entry(last.query_id)
            if (entry.line, entry.side) != last.after:
                raise ReviewConflictError("somebody else has changed this question since: it stays as it is")
            entry.put(*last.before)
            self.files.save(entry)
            return last.query_id

    def entry(self, query_id: str) -> Entry:
        """Return a query; raise ``ReviewConflictError`` if the file no longer has it."""
        entry = self.entries.get(QueryId(query_id))
        if entry is None:
            raise ReviewConflictError("this question is no longer in the file")
        return entry

    def _passage(self, entry: Entry, place: Place) -> AlternativeLine:
        """Return the span, alternative or judged passage at a position."""
        for member in entry.members:
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
            raise ReviewConflictError(f"the document {new.doc_id!r} can no longer be read")
        if text_sha256(document.content) != new.digest:
            raise ReviewConflictError(f"the document {new.doc_id!r} has changed: look at it again")
        span = document.span(new.start, new.end)
        return SpanLine(doc_id=span.doc_id, start=span.start, end=span.end, text=span.text)

    def _moved(self, group: SpanLine, old: AlternativeLine, new: SpanLine) -> SpanLine:
        """Return a group with one member moved; a moved span keeps the alternatives that match their documents."""
        if group.place != old.place:
            plain = AlternativeLine(**new.model_dump(exclude={"alternatives"}))
            members = [plain if member.place == old.place else member for member in group.alternatives]
            return _with_alternatives(group, members)
        right = [member for member in _other(group.alternatives, new.place) if self._fault(member) is None]
        return _with_alternatives(new.model_copy(update={"origin": old.origin}), right)

    def _judged(self, judged: Sequence[JudgedPassage], span: AlternativeLine, grade: int) -> list[JudgedPassage]:
        """Add a person's grade to the judged passages, unless the span has a fault."""
        if self._fault(span) is not None:
            return list(judged)
        new = [] if any(_place_of(passage) == span.place for passage in judged) else [JudgedPassage(span.span())]
        return [
            passage.graded(PERSON, grade) if _place_of(passage) == span.place else passage
            for passage in (*judged, *new)
        ]

    def _apply(self, entry: Entry, line: str, judged: Sequence[JudgedPassage], side: Side) -> None:
        before = entry.line, entry.side
        if judged != entry.judged:
            line = changed_line(line, {}, {JUDGED: [passage.as_data() for passage in judged] or None})
        entry.put(line, side)
        self.files.save(entry)
        self._undo.append(_Undo(entry.record.query_id, before, (line, side)))


L = TypeVar("L", bound=AlternativeLine)


def _other(spans: Iterable[L], place: Place) -> list[L]:
    return [span for span in spans if span.place != place]


def _with_alternatives(span: SpanLine, alternatives: list[AlternativeLine]) -> SpanLine:
    return span.model_copy(update={"alternatives": alternatives})


def _place_of(judged: JudgedPassage) -> Place | None:
    passage = judged.passage
    return (passage.doc_id, passage.start, passage.end) if isinstance(passage, CharacterSpan) else None


def _by_place(entry: Entry) -> dict[Place, JudgedPassage]:
    return {place: passage for passage in entry.judged if (place := _place_of(passage)) is not None}


def _line_of(judged: JudgedPassage) -> SpanLine:
    """Return a judged passage as it is written after a person accepts it."""
    text = judged.passage.text if isinstance(judged.passage, CharacterSpan) else ""
    return SpanLine(**judged.place, text=text, origin=f"{ORIGIN}{PERSON}")


def _with_spans(line: str, spans: Iterable[AlternativeLine]) -> str:
    records = [span.model_dump(exclude_defaults=True) for span in spans]
    return changed_line(line, {"relevant_spans": records, "unanswerable": None if records else True}, {})
