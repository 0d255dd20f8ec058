"""Finished samples on disk, a line each: they survive a kill, and a rerun continues where the last one ended.

Lines stand in the order in which samples were finished; only their positions are held in memory.
"""

import hashlib
import os
import re
import secrets
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, overload

from rag_eval.errors import ArtifactError
from rag_eval.experiments.json_lines import decode, encode
from rag_eval.experiments.results import ItemResult, Row
from rag_eval.storage.locks import try_lock

FOLDER = ".unfinished"
LEFT_DAYS = 30
HEADER, SAMPLE = {"run", "started"}, {"index", "row", "item"}
"""The keys of the first line, and of those after it."""


class ItemLog(Sequence[ItemResult]):
    """The samples of a run by their place in the data; open it with ``open_log``."""

    def __init__(self, path: Path, release: Callable[[], None]) -> None:
        self._path, self._release = path, release
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
        self._reading = threading.Lock()
        # A program may run experiments without end, and keep none of their results.
        self.close = weakref.finalize(self, _close, self._descriptor, release)
        """Close the file and free its name."""
        header, self._positions = _survey(self._descriptor)
        self._end = os.fstat(self._descriptor).st_size
        self.run = str(header["run"])
        self.started = datetime.fromisoformat(header["started"])
        self._can_resume = any(position >= 0 for position in self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> ItemResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[ItemResult]: ...
    def __getitem__(self, index: int | slice) -> ItemResult | list[ItemResult]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]
        return ItemResult.of(place, self._read(self._positions[place])["item"])

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the samples as plain data, in the order of the data."""
        return (self._read(position)["item"] for position in self._positions)

    def finished(self, index: int, row: Row) -> ItemResult | None:
        """Return the result of the same row from an interrupted run, unless it had an error; else None."""
        if not self._can_resume or index >= len(self._positions) or self._positions[index] < 0:
            return None
        record = self._read(self._positions[index])
        if record["row"] != row_digest(row) or "errors" in record["item"]:
            return None
        return ItemResult.of(index, record["item"])

    def add(self, item: ItemResult, row: Row) -> None:
        """Write a finished sample; raises ``ArtifactError`` when that fails."""
        line = encode({"index": item.index, "row": row_digest(row), "item": item.record()}) + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise ArtifactError(f"{str(self._path)!r} cannot be written ({error.strerror}): make room") from None
        if written != len(line):
            raise ArtifactError(f"{str(self._path)!r} cannot be written: the disk is full")
        self._positions.extend([-1] * (item.index + 1 - len(self._positions)))
        self._positions[item.index] = self._end
        self._end += len(line)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._end

    def cut(self, count: int) -> None:
        """Drop the samples beyond the data, which may be shorter than in an interrupted run."""
        del self._positions[count:]

    def done(self) -> None:
        """Remove the file's name: the experiment need not be continued, and can still be read from here."""
        self._path.unlink(missing_ok=True)
        self._release()

    def interrupted(self) -> None:
        """Close the log, to be continued by a later run; one without a sample is removed."""
        if not self._positions:
            self.done()
        self.close()

    def _read(self, position: int) -> dict[str, Any]:
        size = 4_096
        while True:
            with self._reading:  # Windows has no pread; what is added goes to the end wherever this is
                os.lseek(self._descriptor, position, os.SEEK_SET)
                block = os.read(self._descriptor, size)
            end = block.find(b"\n")
            if end >= 0:
                record: dict[str, Any] = decode(block[:end])
                return record
            if len(block) < size:
                raise ArtifactError(f"{str(self._path)!r} was cut while it was read: run again")
            size *= 4


def open_log(folder: Path, name: str, fingerprint: str) -> ItemLog:
    """Return the log of an interrupted run with this fingerprint, or a new one; raises ``ArtifactError``.

    Where another process runs the same experiment right now, the log is a new one. Logs that nobody has continued for
    ``LEFT_DAYS`` are removed: their experiments have other code by now.
    """
    unfinished = folder / FOLDER
    stem = f"{file_stem(name)}-{fingerprint[:16]}"
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        _remove_old(unfinished)
        for path in (unfinished / f"{stem}.jsonl", unfinished / f"{stem}.{secrets.token_hex(4)}.jsonl"):
            if (release := _claim(path)) is not None:
                return ItemLog(path, release)
    except OSError as error:
        raise ArtifactError(f"{str(unfinished)!r} cannot be written ({error.strerror}): use another folder") from None
    raise ArtifactError(f"{str(unfinished)!r} cannot be locked: use another folder")


def _remove_old(unfinished: Path) -> None:
    for path in unfinished.glob("*.jsonl"):
        with suppress(FileNotFoundError):  # another process is as tidy
            if time.time() - path.stat().st_mtime < LEFT_DAYS * 86_400:
                continue
            if (release := _claim(path)) is not None:
                path.unlink()
                release()


def _claim(path: Path) -> Callable[[], None] | None:
    """Lock a log for this process; return the function that frees it, None while another process has it."""
    lock = path.with_suffix(".lock")
    with ExitStack() as held:
        if not held.enter_context(try_lock(lock)):
            return None
        held.enter_context(suppress(OSError))  # Windows keeps a file that is open
        held.callback(lock.unlink, missing_ok=True)
        return held.pop_all().close


def _close(descriptor: int, release: Callable[[], None]) -> None:
    os.close(descriptor)
    release()


def _survey(descriptor: int) -> tuple[dict[str, Any], "array[int]"]:
    """Return the header and the position of each sample; cut off a line that is incomplete or not ours."""
    positions: array[int] = array("q")
    header: dict[str, Any] | None = None
    end = 0
    with os.fdopen(os.dup(descriptor), "rb") as lines:
        lines.seek(0)
        for line in lines:
            try:
                record = decode(line) if line.endswith(b"\n") else None
            except ValueError:
                record = None
            if not isinstance(record, dict) or not (SAMPLE if header else HEADER) <= record.keys():
                break
            if header is None:
                header = record
            else:
                index = int(record["index"])
                positions.extend([-1] * (index + 1 - len(positions)))
                positions[index] = end
            end += len(line)
    os.ftruncate(descriptor, end)
    if header is None:
        header = {"run": secrets.token_hex(8), "started": datetime.now(UTC).isoformat(timespec="milliseconds")}
        os.write(descriptor, encode(header) + b"\n")
    return header, positions


def row_digest(row: Row) -> str:
    """Return the digest of a row."""
    return hashlib.blake2b(encode(row), digest_size=16).hexdigest()


def file_stem(name: str) -> str:
    """Return an experiment's name as a file name on any system, without the characters that do not fit."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "experiment"
