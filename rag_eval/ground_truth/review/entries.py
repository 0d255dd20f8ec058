"""Manage the files of a review: the ground truth and the rejected queries, read and saved together.

An accepted query is marked in its metadata. A rejected one moves to ``truth.rejected.jsonl`` next to ``truth.jsonl``.
A query in both files, after an interrupted move, is not rejected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from rag_eval.errors import ArtifactError, GroundTruthError, RagEvalError, ReviewConflictError
from rag_eval.ground_truth.quotes import CorpusDocuments, Quotes
from rag_eval.ground_truth.records import AlternativeLine, Place, TokenLevelLine, line_faults, parsed_line
from rag_eval.ground_truth.truth_files import (
    BYTE_ORDER_MARK,
    header_line,
    placed_line,
    read_truth_text,
    truth_type,
)
from rag_eval.storage.files import write_atomically
from rag_eval.storage.locks import wait_for_lock
from rag_eval.types.evidence import judgements
from rag_eval.types.ids import QueryId, text_sha256

Side = Literal["truth", "rejected"]
Status = Literal["open", "accepted", "rejected"]


def lock_path(truth: Path) -> Path:
    """Return the lock file of a ground-truth file."""
    path = truth.resolve()
    return path.with_name(f".{path.name}.lock")


def rejected_path(truth: Path) -> Path:
    """Return the file of the rejected queries: ``truth.rejected.jsonl`` beside ``truth.jsonl``."""
    return truth.with_name(f"{truth.stem}.rejected{truth.suffix}")


class Entry:
    """The line of a query; raises ``ValueError``, ``RecursionError`` or ``RagEvalError`` if it is not one."""

    def __init__(self, line: str, side: Side) -> None:
        self.put(line, side)

    def put(self, line: str, side: Side) -> None:
        """Replace the line and the file it belongs to."""
        self.line, self.side = line, side
        self.record = TokenLevelLine.model_validate(parsed_line(line.removeprefix(BYTE_ORDER_MARK)))
        self.judged = judgements(self.record.to_query())

    @property
    def status(self) -> Status:
        if self.side == "rejected":
            return "rejected"
        return "accepted" if self.record.metadata.get("review") == "accepted" else "open"

    @property
    def version(self) -> str:
        """The digest of the query and its spans, to detect decisions about an earlier state."""
        return text_sha256(self.record.model_dump_json(include={"query", "relevant_spans", "unanswerable"}))[:16]

    @property
    def members(self) -> list[AlternativeLine]:
        """All spans and alternatives."""
        return [member for span in self.record.relevant_spans for member in span.members]

    @property
    def places(self) -> set[Place]:
        """The places of all spans and alternatives."""
        return {member.place for member in self.members}


def _is_header(line: str) -> bool:
    try:
        data = parsed_line(line.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "format" in data


class _LineFile:
    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # keep a link a link
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
        return self._on_disk() == self._bytes

    def save(self, lines: list[str]) -> None:
        """Replace all lines at once; do not create a file without lines."""
        if not self.is_current:
            raise ReviewConflictError(f"{self.path.name} has just been changed: decide again")
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
            raise ArtifactError(
                f"{str(self.path)!r} cannot be read ({error.strerror}): check its permissions"
            ) from None


class ReviewFiles:
    """The ground truth under review and its rejected queries. Spans without offsets are located.

    Raises ``GroundTruthError`` if the file is missing or chunk-level.
    """

    def __init__(self, truth: Path, documents: CorpusDocuments) -> None:
        if truth_type(read_truth_text(truth)) == "chunk-level":
            raise GroundTruthError(f"{str(truth)!r} has chunk ids: only spans can be reviewed")
        self.path = truth
        self._quotes = Quotes(documents)
        self._placed: dict[str, str] = {}
        self.read()

    def read(self) -> None:
        """Read both files again."""
        self._files: dict[Side, _LineFile] = {
            "truth": _LineFile(self.path),
            "rejected": _LineFile(rejected_path(self.path)),
        }
        self.entries: dict[QueryId, Entry] = {}
        self.broken: list[str] = []
        self._slots: dict[Side, list[Entry | str]] = {"truth": self._read("truth"), "rejected": self._read("rejected")}
        # A rejected query that is accepted goes to the end of the ground truth.
        self._slots["truth"] += [slot for slot in self._slots["rejected"] if isinstance(slot, Entry)]
        self.is_sampled = any(passage.sampled for entry in self.entries.values() for passage in entry.judged)

    @property
    def is_current(self) -> bool:
        """Whether the files are unchanged by others."""
        return all(file.is_current for file in self._files.values())

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the files and update the entries; discard the changes on an error."""
        with wait_for_lock(lock_path(self.path)):
            try:
                if not self.is_current:
                    self.read()
                yield
            except BaseException:
                self.read()
                raise

    def save(self, changed: Entry) -> None:
        """Write the files, first the one that the changed entry moves to, so that it is always in one of them."""
        if changed.side == "rejected" and not any(slot is changed for slot in self._slots["rejected"]):
            self._slots["rejected"].append(changed)
        for side in sorted(self._files, key=lambda side: side != changed.side):
            slots = [slot for slot in self._slots[side] if isinstance(slot, str) or slot.side == side]
            lines = [slot.line if isinstance(slot, Entry) else slot for slot in slots]
            has_entries = any(isinstance(slot, Entry) for slot in slots)
            self._files[side].save(lines if has_entries or self._files[side].lines else [])

    def _read(self, side: Side) -> list[Entry | str]:
        slots: list[Entry | str] = []
        for number, line in enumerate(self._files[side].lines, start=1):
            try:
                if line not in self._placed:
                    self._placed[line] = placed_line(line, self._quotes)
                entry = Entry(self._placed[line], side)
                query_id = entry.record.query_id
                if query_id not in self.entries:
                    self.entries[query_id] = entry
                    slots.append(entry)
                    continue
                if side == "rejected":
                    continue  # the move to this file was interrupted
                fault = f"the id {query_id} is taken"
            except (ValueError, RecursionError, RagEvalError) as error:
                fault = line_faults(error)[0]
            slots.append(line)
            if line.strip() and not _is_header(line):
                self.broken.append(f"line {number} of {self._files[side].path.name}: {fault}")
        return slots or [header_line("token-level")]
