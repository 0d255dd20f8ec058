"""Ground truth under review: the file, what was rejected of it, and the judgements on it, read, saved and merged.

An accepted question is marked so in its metadata. A rejected one is moved to ``truth.rejected.jsonl`` beside
``truth.jsonl``, so that what is left is what counts. Whatever happens between the writes of a move, the question is in
at least one file; one that is in both counts as not rejected. Who decided what on a question, or on one passage of it,
and when, is in ``truth.judgements.jsonl``, a JSON object a line. Lines are added and not changed, so that judgements
made apart are merged by uniting their lines; of several on one item the latest counts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import AwareDatetime, Field

from rag_eval.errors import ArtifactError, GroundTruthError, RagEvalError, ReviewConflictError, preview
from rag_eval.ground_truth.quotes import CorpusDocuments, Quotes
from rag_eval.ground_truth.records import LineModel, NotEmpty, Place, SpanLine, TokenLevelLine, line_faults, parsed_line
from rag_eval.ground_truth.truth_files import (
    BYTE_ORDER_MARK,
    changed_line,
    header_line,
    placed_line,
    read_truth_text,
    truth_type,
)
from rag_eval.storage.files import write_atomically
from rag_eval.storage.locks import wait_for_lock
from rag_eval.types.evidence import HIGHEST_GRADE, JUDGED, PERSON
from rag_eval.types.ids import QueryId, text_sha256

Decision = Literal["accepted", "rejected", "moved", "offered"]
"""Of a passage: it answers; it does not; it was put elsewhere by hand; it was pooled and nobody has judged it yet."""
Item = tuple[str, Place | None]
"""The id of a question, and a passage of it; None for the question as a whole."""


class TruthJudgement(LineModel):
    """One line: what ``by`` decided on an item at a time. A grade and a reason are told to whoever judges next."""

    id: NotEmpty
    span: SpanLine | None = None
    decision: Decision
    unanswerable: bool = False
    grade: int | None = Field(default=None, ge=0, le=3)
    reason: NotEmpty | None = None
    by: NotEmpty
    at: AwareDatetime = Field(strict=False, lt=datetime(9999, 1, 1, tzinfo=UTC))

    @property
    def item(self) -> Item:
        return self.id, self.span.place if self.span else None

    @property
    def line(self) -> str:
        """The judgement as a line of the file."""
        return json.dumps(self.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)

    @property
    def sentence(self) -> str:
        """Who decided what, and when, for people."""
        moment = self.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if self.at > IMPLIED else "earlier"
        what = "that nothing answers it" if self.unanswerable else self.decision
        return f"{self.by}: {what} ({moment})"


IMPLIED = datetime.fromisoformat("0001-01-02T00:00:00+00:00")
"""The time of a decision that is only known by what it did to the file."""


def judgements_path(truth: Path) -> Path:
    """Where the judgements are kept: ``truth.judgements.jsonl`` beside ``truth.jsonl``."""
    return truth.with_name(f"{truth.stem}.judgements{truth.suffix}")


def lock_path(truth: Path) -> Path:
    """The file whose lock is held by whoever changes the ground truth or what is kept beside it."""
    there = truth.resolve()
    return there.with_name(f".{there.name}.lock")


def parse_judgements(
    lines: Iterable[str], name: str, known: dict[str, TruthJudgement] | None = None
) -> tuple[list[TruthJudgement], list[str]]:
    """Return the judgements of a file's lines, and what is wrong with the lines that are none.

    Lines that ``known`` has are not parsed again; it gets the others.
    """
    found, faults = [], []
    known = {} if known is None else known
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            if line not in known:
                known[line] = TruthJudgement.model_validate(parsed_line(line))
            found.append(known[line])
        except (ValueError, RecursionError, RagEvalError) as error:
            faults.append(f"line {number} of {name}: {line_faults(error)[0]}")
    return found, faults


def read_judgements(truth: Path) -> list[TruthJudgement]:
    """Read what is kept beside a ground-truth file, nothing where there is none; raises ``GroundTruthError``."""
    path = judgements_path(truth)
    if not path.exists():
        return []
    found, faults = parse_judgements(read_truth_text(path, "file of judgements").split("\n"), path.name)
    if faults:
        raise GroundTruthError(f"{faults[0]}: correct or remove the line")
    return found


def add_judgements(truth: Path, new: Iterable[TruthJudgement]) -> int:
    """Add those that the file beside the ground truth lacks, in one write; returns how many there were.

    An offer of an item that has any line already is not repeated. Raises as ``read_judgements`` does, and
    ``ArtifactError`` when it cannot be written.
    """
    path = judgements_path(truth)
    with wait_for_lock(lock_path(truth)):
        known = read_judgements(truth)
        lines, items = {one.line for one in known}, {one.item for one in known}
        added = []
        for one in new:
            if one.line not in lines and not (one.decision == "offered" and one.item in items):
                added.append(one.line)
                lines.add(one.line)
                items.add(one.item)
        if added:
            before = path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.exists() else []
            write_atomically(path, "\n".join([*before, *added, ""]).encode())
    return len(added)


def latest(judgements: Iterable[TruthJudgement]) -> dict[Item, TruthJudgement]:
    """Return the one that counts for each item, in the order of time: an offer only where nobody has decided."""
    found: dict[Item, TruthJudgement] = {}
    for one in sorted(judgements, key=lambda one: (one.decision != "offered", one.at, one.by)):
        found.pop(one.item, None)
        found[one.item] = one
    return found


def disagreements(judgements: Iterable[TruthJudgement]) -> dict[Item, list[TruthJudgement]]:
    """Return the items on which people's last decisions differ, with everybody's; the last one is what counts."""
    found: dict[Item, dict[str, TruthJudgement]] = {}
    for one in sorted(judgements, key=lambda one: (one.at, one.by)):
        if one.decision != "offered":
            by_person = found.setdefault(one.item, {})
            by_person.pop(one.by, None)
            by_person[one.by] = one
    told = {item: list(by_person.values()) for item, by_person in found.items()}
    return {item: ones for item, ones in told.items() if len({(one.decision, one.unanswerable) for one in ones}) > 1}


def judged_line(line: str, decided: Mapping[Place, Decision]) -> str:
    """Return a query's line with what people decided on the passages that were pooled for it, as their grades."""
    given, found = parse_entry(line).metadata.get(JUDGED), []
    for one in given if isinstance(given, list) else []:
        if not isinstance(one, dict) or not isinstance(one.get("grades", {}), dict):
            found.append(one)
            continue
        decision = next(
            (by for place, by in decided.items() if place == tuple(map(one.get, ("doc_id", "start", "end")))), None
        )
        grade = {"accepted": HIGHEST_GRADE, "rejected": 0}.get(decision or "")
        found.append(one if grade is None else one | {"grades": one.get("grades", {}) | {PERSON: grade}})
    return changed_line(line, {}, {JUDGED: found}) if found else line


Side = Literal["truth", "rejected"]
Status = Literal["open", "accepted", "rejected"]


class Entry:
    """A query's line as it is in its file, and what it says."""

    def __init__(self, line: str, record: TokenLevelLine, side: Side) -> None:
        self.line, self.record, self.side = line, record, side
        self.written = side

    @property
    def status(self) -> Status:
        """Rejected where it is kept apart, else what the metadata says."""
        if self.side == "rejected":
            return "rejected"
        return "accepted" if self.record.metadata.get("review") == "accepted" else "open"

    @property
    def version(self) -> str:
        """Another where the question or its passages are others; whoever decides on all of it has to have seen it."""
        shown = self.record.model_dump(include={"query", "relevant_spans", "unanswerable"})
        return text_sha256(json.dumps(shown))[:16]

    @property
    def places(self) -> set[Place]:
        """The places of all spans and alternatives."""
        return {member.place for span in self.record.relevant_spans for member in span.members}

    def put(self, line: str, side: Side) -> None:
        """Give it another line, which is one that it can have, or another side."""
        if line != self.line:
            self.line, self.record = line, parse_entry(line)
        self.side = side


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

    def save(self, lines: list[str]) -> None:
        """Replace the file's lines at once; a file that is not there and gets no lines is not made.

        Raises ``ReviewConflictError`` when the file is not as it was read, ``ArtifactError`` when it cannot be written.
        """
        if not self.is_current:
            raise ReviewConflictError(f"{self.path.name} was changed at this very moment: decide again")
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


def rejected_path(truth: Path) -> Path:
    """Where the queries that a review rejects are kept: ``truth.rejected.jsonl`` beside ``truth.jsonl``."""
    return truth.with_name(f"{truth.stem}.rejected{truth.suffix}")


class ReviewFiles:
    """Ground truth, what was rejected of it, and the judgements on it: three files that are read and saved together."""

    def __init__(self, truth: Path, documents: CorpusDocuments | None = None) -> None:
        """Read the files, with numbers for spans that are quoted; raises ``GroundTruthError`` as ``ReviewSession``."""
        if truth_type(read_truth_text(truth)) == "chunk-level":
            raise GroundTruthError(
                f"{str(truth)!r} holds chunk ids, which are no places in documents: nothing to review"
            )
        self.path = truth
        self._quotes = Quotes(documents)
        # What is known of lines that were read before.
        self._records: dict[str, tuple[str, TokenLevelLine]] = {}
        self._judgements: dict[str, TruthJudgement] = {}
        self.read()

    def read(self) -> None:
        """Read all files again."""
        self._files: dict[Side, TruthFile] = {
            "truth": TruthFile(self.path),
            "rejected": TruthFile(rejected_path(self.path)),
        }
        self.entries: dict[QueryId, Entry] = {}
        self.broken: list[str] = []
        # The lines of each file: a query, or what is carried along as it is.
        self._slots = {"truth": self._read("truth"), "rejected": self._read("rejected")}
        # A query rejected earlier goes to the end of the truth if it is taken back.
        self._slots["truth"] += [slot for slot in self._slots["rejected"] if isinstance(slot, Entry)]
        self._log = TruthFile(judgements_path(self.path))
        self.judgements, faults = parse_judgements(self._log.lines, self._log.path.name, self._judgements)
        self.broken += faults

    @property
    def is_current(self) -> bool:
        """Whether nobody else has changed the files."""
        return all(file.is_current for file in (*self._files.values(), self._log))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the files' lock, with everything as it is in them now; what fails leaves all as it is there."""
        with wait_for_lock(lock_path(self.path)):
            try:
                if not self.is_current:
                    self.read()
                yield
            except BaseException:
                self.read()
                raise

    def add(self, entry: Entry) -> None:
        """Take in a query of another file, at the end."""
        self.entries[entry.record.query_id] = entry
        self._slots["truth"].append(entry)

    def save(self, log: Sequence[str] | None = None) -> None:
        """Write what is no longer as in the files, the judgements with ``log`` as their lines."""
        if log is not None:
            self._log.save(list(log))
            self.judgements, _ = parse_judgements(self._log.lines, "", self._judgements)
        known = {id(slot) for slot in self._slots["rejected"]}
        self._slots["rejected"] += [
            one for one in self.entries.values() if one.side == "rejected" and id(one) not in known
        ]
        # Where queries go is written first, so that none is ever in neither file.
        for is_last in (False, True):
            for side, file in self._files.items():
                file.save(self._lines(side, is_last))
        for entry in self.entries.values():
            entry.written = entry.side

    @property
    def log(self) -> list[str]:
        """The lines of the judgements."""
        return list(self._log.lines)

    def _read(self, side: Side) -> list[Entry | str]:
        slots: list[Entry | str] = []
        for number, line in enumerate(self._files[side].lines, start=1):
            # Wrong spans are no obstacle: they are to be mended.
            try:
                if line not in self._records:
                    placed = placed_line(line, self._quotes)
                    self._records[line] = placed, parse_entry(placed)
                written, record = self._records[line]
                fault = None if record.query.strip() else "the query is empty"
            except (ValueError, RecursionError, RagEvalError) as error:
                fault = line_faults(error)[0]
            if fault is None and record.query_id in self.entries:
                if side == "rejected":
                    continue  # the move to this file was not finished
                fault = f"the id {record.query_id} is taken"
            if fault is None:
                self.entries[record.query_id] = Entry(written, record, side)
                slots.append(self.entries[record.query_id])
                continue
            slots.append(line)
            if line.strip() and not is_header(line):
                self.broken.append(f"line {number} of {self._files[side].path.name}: {fault}")
        return slots or [header_line("token-level")]

    def _lines(self, side: Side, is_last: bool) -> list[str]:
        kept = [
            slot
            for slot in self._slots[side]
            if isinstance(slot, str) or slot.side == side or (slot.written == side and not is_last)
        ]
        entries = [slot for slot in kept if isinstance(slot, Entry)]
        if not self._files[side].lines and not entries:
            return []  # no file for nothing but its header
        is_grouped = any(entry.record.has_groups for entry in entries)
        return [
            slot.line
            if isinstance(slot, Entry)
            else changed_line(slot, {"version": 2}, {})
            if is_grouped and is_header(slot)
            else slot
            for slot in kept
        ]


def difference(item: Item, told: Sequence[TruthJudgement]) -> str:
    """Say who decided what on an item, the one that counts last."""
    place = item[1]
    what = "the question" if place is None else f"[{place[1]}, {place[2]}) of {place[0]!r}"
    return f"{what}: {', then '.join(one.sentence for one in told)}"


def without(spans: Iterable[SpanLine], place: Place) -> list[SpanLine]:
    """Return the spans without one, or without an alternative of one."""
    return [
        span.model_copy(update={"alternatives": [one for one in span.alternatives if one.place != place]})
        for span in spans
        if span.place != place
    ]


class Merged(NamedTuple):
    """What a merge made: the files, how many questions and judgements there are now, and on what people differ."""

    questions: int
    rejected: int
    judgements: int
    differences: list[dict[str, Any]]
    """The ``id`` and ``query`` of a question, and ``told``, a sentence for each thing that people differ on."""


def merge_reviews(truth: Path, others: Sequence[Path]) -> Merged:
    """Merge into a ground-truth file what was decided on copies of it, with the files beside each.

    Of several decisions on one item the latest counts. A passage or question that only one file has and that nobody
    rejected is kept. Raises as ``ReviewFiles`` does, and ``GroundTruthError`` when an id stands for two questions.
    """
    files = ReviewFiles(truth)
    with files.changing():
        sources = [files, *map(ReviewFiles, others)]
        lines = dict.fromkeys(line for one in sources for line in one.log)
        judgements = [one for source in sources for one in source.judgements]
        decided = {one.id for one in judgements if one.span is None}
        for source in sources:
            judgements += [
                TruthJudgement(id=query_id, decision=entry.status, by=str(source.path), at=IMPLIED)
                for query_id, entry in source.entries.items()
                if entry.status != "open" and query_id not in decided
            ]
        by_query: dict[str, list[TruthJudgement]] = {}
        for one in latest(judgements).values():
            by_query.setdefault(one.id, []).append(one)
        for query_id in dict.fromkeys(query_id for source in sources for query_id in source.entries):
            entries = [source.entries[query_id] for source in sources if query_id in source.entries]
            if len(texts := sorted({entry.record.query for entry in entries})) > 1:
                raise GroundTruthError(
                    f"the files have different questions with the id {query_id!r}, {preview(texts[0])} and "
                    f"{preview(texts[1])}: merge copies of one file"
                )
            if query_id not in files.entries:
                files.add(Entry(entries[0].line, entries[0].record, entries[0].side))
            _merge(files.entries[query_id], entries, by_query.get(query_id, []))
        files.save(list(lines))
        differing: dict[str, list[str]] = {}
        for item, told in disagreements(judgements).items():
            differing.setdefault(item[0], []).append(difference(item, told))
        for query_id, entry in files.entries.items():
            if not entry.record.relevant_spans and not entry.record.unanswerable:
                differing.setdefault(query_id, []).append("no passage is left: add one, or declare it unanswerable")
        rejected = sum(entry.side == "rejected" for entry in files.entries.values())
        differences = [
            {"id": query_id, "query": entry.record.query, "told": differing[query_id]}
            for query_id, entry in files.entries.items()
            if query_id in differing
        ]
        return Merged(len(files.entries) - rejected, rejected, len(files.judgements), differences)


def _merge(entry: Entry, copies: Sequence[Entry], judgements: Sequence[TruthJudgement]) -> None:
    """Give a query what its copies have and what was decided on it."""
    spans: dict[Place, SpanLine] = {}
    for copy in copies:
        for span in copy.record.relevant_spans:
            known = spans.setdefault(span.place, span)
            more = {one.place: one for one in (*known.alternatives, *span.alternatives)}
            spans[span.place] = known.model_copy(update={"alternatives": list(more.values())})
    groups = list(spans.values())
    side, is_unanswerable = entry.side, any(copy.record.unanswerable for copy in copies)
    metadata: dict[str, Any] = {}
    for copy in reversed(copies):
        metadata |= copy.record.metadata
    for one in judgements:
        if one.span is None:
            side = "rejected" if one.decision == "rejected" else "truth"
            metadata["review"] = one.decision
            is_unanswerable |= one.unanswerable
        elif one.decision == "accepted" and not any(one.span.place == m.place for g in groups for m in g.members):
            groups.append(one.span)
        elif one.decision in ("rejected", "moved"):
            groups = without(groups, one.span.place)
    changes: dict[str, Any] = {}
    if groups != entry.record.relevant_spans or (not groups) != entry.record.unanswerable:
        changes = {
            "relevant_spans": [span.model_dump(exclude_defaults=True) for span in groups],
            "unanswerable": True if not groups and is_unanswerable else None,
        }
    new = {key: value for key, value in metadata.items() if entry.record.metadata.get(key) != value}
    line = changed_line(entry.line, changes, new) if changes or new else entry.line
    entry.put(judged_line(line, {one.span.place: one.decision for one in judgements if one.span}), side)
