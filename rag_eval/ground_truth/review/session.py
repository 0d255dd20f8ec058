"""A review: decisions on queries, each saved at once.

An accepted query is marked so in its metadata. A rejected one is moved to a file of its own beside the truth, so that
what is left is what counts. Whatever happens between the two writes of a move, the query is in at least one file; one
that is in both counts as not rejected.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rag_eval.disk.files import Stamp, matching_files, read_text, write_atomically
from rag_eval.errors import ArtifactError, CorpusError, GroundTruthError, RagEvalError, ReviewConflictError
from rag_eval.ground_truth.check import span_fault
from rag_eval.ground_truth.files import BYTE_ORDER_MARK, changed_line, header_line, read_truth_text, truth_type
from rag_eval.ground_truth.records import AlternativeLine, TokenLevelLine, line_faults, parsed_line
from rag_eval.types.documents import Document
from rag_eval.types.ground_truth import SpanRecord
from rag_eval.types.ids import DocumentId, QueryId, text_sha256


class DocumentFolder:
    """The documents of a folder, by id; each is read again when its file has changed."""

    def __init__(self, folder: Path, glob: str | Sequence[str]) -> None:
        """List the files; raises what ``Corpus.from_folder`` raises for a folder that cannot be used."""
        self._paths = {DocumentId(path.relative_to(folder).as_posix()): path for path in matching_files(folder, glob)}
        self._seen: dict[DocumentId, tuple[Stamp, Document]] = {}

    @property
    def ids(self) -> list[DocumentId]:
        return sorted(self._paths)

    def get(self, doc_id: str) -> Document | None:
        """Return the document as it is now; None when the folder has none of this id, or it cannot be read any more."""
        known = DocumentId(doc_id)
        path = self._paths.get(known)
        if path is None:
            return None
        try:
            stamp = Stamp.of(path)
            if known not in self._seen or self._seen[known][0] != stamp:
                self._seen[known] = stamp, Document(known, read_text(path))
        except (OSError, CorpusError):
            return None
        return self._seen[known][1]


Side = Literal["truth", "rejected"]
Decision = Literal["accepted", "rejected"]
Status = Literal["open", "accepted", "rejected"]


class Entry:
    """A query's line as it is in its file, what it says, and how often it was changed in this session."""

    def __init__(self, line: str, record: TokenLevelLine, side: Side) -> None:
        self.line, self.record, self.side = line, record, side
        self.version = 0

    @property
    def status(self) -> Status:
        """Rejected where it is kept apart, else what the metadata says."""
        if self.side == "rejected":
            return "rejected"
        return "accepted" if self.record.metadata.get("review") == "accepted" else "open"

    def put(self, line: str, side: Side) -> None:
        """Give it another line, which is one that it can have, or another side."""
        if line != self.line:
            self.line, self.record = line, parse_entry(line)
        self.side = side

    def span_faults(self, documents: DocumentFolder) -> list[str | None]:
        """For each span what is wrong with it or else with its first wrong alternative, None where nothing is."""
        found: list[str | None] = []
        for span in self.record.relevant_spans:
            faults = [span_fault(member, documents.get(member.doc_id)) for member in span.members]
            alternative = next((fault for fault in faults[1:] if fault is not None), None)
            found.append(faults[0] or (alternative and f"an alternative: {alternative}"))
        return found


def parse_entry(line: str) -> TokenLevelLine:
    """Parse a line; raises ``ValueError``, ``RecursionError`` or ``RagEvalError`` when it is no query."""
    return TokenLevelLine.model_validate(parsed_line(line.removeprefix(BYTE_ORDER_MARK)))


def is_header(line: str) -> bool:
    """Whether a line is the one that names the format."""
    try:
        data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "format" in data


class TruthFile:
    """The lines of a file, and whether it is still the one that was read."""

    def __init__(self, path: Path) -> None:
        """Read the file; one that is not there has no lines. Raises ``GroundTruthError`` when it cannot be read."""
        # A link stays a link: the file it points to is the one that is replaced.
        self.path = path.resolve()
        self._bytes = self._on_disk()
        try:
            self.lines = (self._bytes or b"").decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise GroundTruthError(
                f"{str(self.path)!r} is not UTF-8 (byte {error.start}): convert the file to UTF-8"
            ) from None
        if self.lines[-1] == "":
            self.lines.pop()

    @property
    def is_current(self) -> bool:
        """Whether the file still has the content that was read or written last."""
        return self._on_disk() == self._bytes

    def check_current(self) -> None:
        """Raise ``ReviewConflictError`` when somebody else has changed the file."""
        if not self.is_current:
            raise ReviewConflictError(
                f"{self.path.name} was changed by somebody else: reload to see their version; nothing was overwritten"
            )

    def save(self, lines: list[str]) -> None:
        """Replace the file's lines at once; a file that is not there and gets no lines is not made.

        Raises ``ReviewConflictError`` when somebody else has changed it, ``ArtifactError`` when it cannot be written.
        """
        self.check_current()
        data = ("\n".join(lines) + "\n").encode("utf-8") if lines else b""
        if data != (self._bytes or b""):
            write_atomically(self.path, data)
            self._bytes = data
        self.lines = lines

    def _on_disk(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ArtifactError(f"{str(self.path)!r} cannot be read ({error.strerror}): check its rights") from None


_FROM_THE_PAGE = ConfigDict(extra="forbid", strict=True)


@pydantic_dataclass(frozen=True, config=_FROM_THE_PAGE)
class KeptSpan:
    """A span that stays as it is: its number among the query's spans."""

    keep: int


@pydantic_dataclass(frozen=True, config=_FROM_THE_PAGE)
class NewSpan:
    """A place in a document of which ``digest`` tells which text was seen.

    In the place of another span, of the number that ``replaces`` gives, it takes over the alternatives of that one.
    """

    doc_id: str
    start: int
    end: int
    digest: str
    replaces: int | None = None


def _written(span: AlternativeLine) -> SpanRecord:
    return cast("SpanRecord", span.model_dump(exclude_defaults=True))


def rejected_path(truth: Path) -> Path:
    """Where the queries that a review rejects are kept: ``truth.rejected.jsonl`` beside ``truth.jsonl``."""
    return truth.with_name(f"{truth.stem}.rejected{truth.suffix}")


class ReviewSession:
    """Ground truth under review. Not safe for threads: let one at a time in."""

    def __init__(self, truth: Path, documents: DocumentFolder) -> None:
        """Read the files; raises ``GroundTruthError`` when the truth is missing or chunk-level."""
        if truth_type(read_truth_text(truth)) == "chunk-level":
            raise GroundTruthError(
                f"{str(truth)!r} holds chunk ids, which are no places in documents: nothing to review"
            )
        self.documents = documents
        self._path = truth
        self.reload()

    def reload(self) -> None:
        """Read both files again; what can be undone is forgotten."""
        self._files: dict[Side, TruthFile] = {
            "truth": TruthFile(self._path),
            "rejected": TruthFile(rejected_path(self._path)),
        }
        self.entries: dict[QueryId, Entry] = {}
        self.broken: list[str] = []
        self._undo: list[tuple[QueryId, str, Side]] = []
        # The lines of each file: a query, or what is carried along as it is.
        self._slots = {"truth": self._read("truth"), "rejected": self._read("rejected")}
        # A query rejected earlier goes to the end of the truth if it is taken back.
        self._slots["truth"] += [slot for slot in self._slots["rejected"] if isinstance(slot, Entry)]

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def is_current(self) -> bool:
        """Whether nobody else has changed the files."""
        return all(file.is_current for file in self._files.values())

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    def decide(self, query_id: str, version: int, decision: Decision) -> Entry:
        """Accept or reject a query; one that was rejected earlier can be accepted, and goes back to the truth.

        Raises ``GroundTruthError`` when one is accepted that is not true, ``ReviewConflictError`` when the query or a
        file was changed meanwhile, ``ArtifactError`` when it cannot be written.
        """
        entry = self._current(query_id, version)
        if decision == "accepted":
            if not entry.record.relevant_spans and not entry.record.unanswerable:
                raise GroundTruthError("it has no span: add one before you accept it")
            fault = next((fault for fault in entry.span_faults(self.documents) if fault), None)
            if fault:
                raise GroundTruthError(f"adjust the span before you accept it: {fault}")
        side: Side = "rejected" if decision == "rejected" else "truth"
        self._apply(QueryId(query_id), changed_line(entry.line, {}, {"review": decision}), side)
        return entry

    def set_spans(self, query_id: str, version: int, spans: list[KeptSpan | NewSpan]) -> Entry:
        """Give a query these spans, each place once; raises as ``decide`` does, and on impossible places."""
        entry = self._current(query_id, version)
        records = entry.record.relevant_spans
        found: list[SpanRecord] = []
        for span in spans:
            earlier = span.replaces if isinstance(span, NewSpan) else span.keep
            if earlier is not None and not 0 <= earlier < len(records):
                raise ReviewConflictError(f"there is no span {earlier} any more: reload")
            if isinstance(span, NewSpan):
                found.append(self._placed(span, [] if earlier is None else records[earlier].alternatives))
            else:
                found.append(_written(records[span.keep]))
        if not found:
            raise GroundTruthError("a query keeps at least one span: add another first, or reject the query")
        unique: dict[tuple[str, int, int], SpanRecord] = {}
        for one in found:
            unique.setdefault((one["doc_id"], one["start"], one["end"]), one)
        for member in (member for one in unique.values() for member in one.get("alternatives", [])):
            if (place := (member["doc_id"], member["start"], member["end"])) in unique:
                raise GroundTruthError(
                    f"[{place[1]}, {place[2]}) of {place[0]!r} is an alternative of another span: keep one of them"
                )
        line = changed_line(entry.line, {"relevant_spans": list(unique.values()), "unanswerable": None}, {})
        self._apply(QueryId(query_id), line, entry.side)
        return entry

    def undo(self) -> QueryId | None:
        """Take back the last decision of this session; gives its query, None when there is none."""
        if not self._undo:
            return None
        query_id, line, side = self._undo[-1]
        self._apply(query_id, line, side)
        del self._undo[-2:]
        return query_id

    def _read(self, side: Side) -> list[Entry | str]:
        slots: list[Entry | str] = []
        for number, line in enumerate(self._files[side].lines, start=1):
            # Wrong spans are no obstacle: they are to be mended.
            try:
                record = parse_entry(line)
                fault = None if record.query.strip() else "the query is empty"
            except (ValueError, RecursionError, RagEvalError) as error:
                fault = line_faults(error)[0]
            if fault is None and record.query_id in self.entries:
                if side == "rejected":
                    continue  # the move to this file was not finished
                fault = f"the id {record.query_id} is taken"
            if fault is None:
                self.entries[record.query_id] = Entry(line, record, side)
                slots.append(self.entries[record.query_id])
                continue
            slots.append(line)
            if line.strip() and not is_header(line):
                self.broken.append(f"line {number} of {self._files[side].path.name}: {fault}")
        return slots or [header_line("token-level")]

    def entry(self, query_id: str) -> Entry:
        """Return a query; raises ``ReviewConflictError`` when the file has it no more."""
        entry = self.entries.get(QueryId(query_id))
        if entry is None:
            raise ReviewConflictError("this query is not in the file any more: reload")
        return entry

    def _current(self, query_id: str, version: int) -> Entry:
        entry = self.entry(query_id)
        if entry.version != version:
            raise ReviewConflictError("this query was changed in another window: reload to see it")
        return entry

    def _placed(self, span: NewSpan, alternatives: Sequence[AlternativeLine]) -> SpanRecord:
        """Return the span with those alternatives that are right, and are not the span itself."""
        document = self.documents.get(span.doc_id)
        if document is None:
            raise ReviewConflictError(f"the document {span.doc_id!r} cannot be read any more: reload")
        if text_sha256(document.content) != span.digest:
            raise ReviewConflictError(f"the document {span.doc_id!r} has changed: reload to see it as it is now")
        found = document.span(span.start, span.end)
        record: SpanRecord = {"doc_id": found.doc_id, "start": found.start, "end": found.end, "text": found.text}
        kept = [
            _written(member)
            for member in alternatives
            if (member.doc_id, member.start, member.end) != (found.doc_id, found.start, found.end)
            and span_fault(member, self.documents.get(member.doc_id)) is None
        ]
        if kept:
            record["alternatives"] = kept
        return record

    def _apply(self, query_id: QueryId, line: str, side: Side) -> None:
        """Change one query and save; when that fails, everything is as before."""
        entry = self.entries[query_id]
        before = entry.line, entry.side
        entry.put(line, side)
        if side == "rejected" and entry not in self._slots["rejected"]:
            self._slots["rejected"].append(entry)
        try:
            for file in self._files.values():
                file.check_current()
            # Where the query goes is written first, so that it is never in neither file.
            for written in sorted(self._files, key=lambda one: one != side):
                self._files[written].save(self._lines(written))
        except BaseException:
            entry.put(*before)
            raise
        entry.version += 1
        self._undo.append((query_id, *before))

    def _lines(self, side: Side) -> list[str]:
        entries = [slot for slot in self._slots[side] if isinstance(slot, Entry) and slot.side == side]
        if not self._files[side].lines and not entries:
            return []  # no file for nothing but its header
        kept = [slot for slot in self._slots[side] if isinstance(slot, str) or slot.side == side]
        lines = [slot if isinstance(slot, str) else slot.line for slot in kept]
        if any(entry.record.has_groups for entry in entries):
            return [changed_line(line, {"version": 2}, {}) if is_header(line) else line for line in lines]
        return lines
