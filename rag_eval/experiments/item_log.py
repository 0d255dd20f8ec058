"""Finished samples on disk, one line each: they survive a kill, and a rerun goes on where the last one ended.

Lines stand in the order in which samples were finished; only their places are held in memory.
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
from itertools import chain, count
from pathlib import Path
from typing import Any

from rag_eval.errors import ArtifactError
from rag_eval.experiments.json_lines import decode, encode
from rag_eval.experiments.results import ItemResult, Row
from rag_eval.storage.locks import try_lock

FOLDER = ".unfinished"
LEFT_DAYS = 30
HEADER, SAMPLE = {"run", "started"}, {"index", "row", "item"}
"""The keys of the first line, and of those after it."""


class ItemLog(Sequence[ItemResult]):
    """The samples of one run by their place in the data; open it with ``open_log``."""

    def __init__(self, path: Path, release: Callable[[], None]) -> None:
        self._path, self._release = path, release
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
        self._reading = threading.Lock()
        # A program may run experiments without end, and keep none of their results.
        self.close = weakref.finalize(self, _let_go, self._descriptor, release)
        """Let the log go."""
        header, self._places = _survey(self._descriptor)
        self._end = os.fstat(self._descriptor).st_size
        self.run = str(header["run"])
        self.started = datetime.fromisoformat(header["started"])
        self._resumable = sum(place >= 0 for place in self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return [self[place] for place in chosen]
        return ItemResult.of(chosen, self._read(self._places[chosen])["item"])

    def records(self) -> Iterator[dict[str, Any]]:
        """The samples as they stand in files, in the order of the data."""
        return (self._read(place)["item"] for place in self._places)

    def finished(self, index: int, row: Row) -> ItemResult | None:
        """What an interrupted run made of the same row without an error; None where it has to be done."""
        if self._resumable == 0 or index >= len(self._places) or self._places[index] < 0:
            return None
        record = self._read(self._places[index])
        if record["row"] != row_digest(row) or "errors" in record["item"]:
            return None
        return ItemResult.of(index, record["item"])

    def add(self, item: ItemResult, row: Row) -> None:
        """Keep a finished sample; raises ``ArtifactError`` when it cannot be written."""
        line = encode({"index": item.index, "row": row_digest(row), "item": item.record()}) + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError as error:
            raise ArtifactError(f"{str(self._path)!r} cannot be written ({error.strerror}): make room") from None
        if written != len(line):
            raise ArtifactError(f"{str(self._path)!r} cannot be written: the disk is full")
        self._places.extend([-1] * (item.index + 1 - len(self._places)))
        self._places[item.index] = self._end
        self._end += len(line)

    @property
    def size(self) -> int:
        return self._end

    def cut(self, count: int) -> None:
        """Forget what stands beyond the data, which has become shorter since an interrupted run."""
        del self._places[count:]

    def done(self) -> None:
        """Take the log's name away: what is kept elsewhere need not be continued; it can still be read from here."""
        self._path.unlink(missing_ok=True)
        self._release()

    def interrupted(self) -> None:
        """Let the log go, to be continued by a later run; one without a sample is not left behind."""
        if not self._places:
            self.done()
        self.close()

    def _read(self, place: int) -> dict[str, Any]:
        size = 4_096
        while True:
            with self._reading:  # Windows has no pread; what is added goes to the end wherever this is
                os.lseek(self._descriptor, place, os.SEEK_SET)
                block = os.read(self._descriptor, size)
            end = block.find(b"\n")
            if end >= 0:
                found: dict[str, Any] = decode(block[:end])
                return found
            if len(block) < size:
                raise ArtifactError(f"{str(self._path)!r} was cut while it was read: run again")
            size *= 4


def open_log(folder: Path, name: str, fingerprint: str) -> ItemLog:
    """The log of an interrupted run with this fingerprint, or a new one; raises ``ArtifactError`` without a place.

    Where other processes are at the same experiment right now, the log is another one beside theirs. Logs that nobody
    has gone on with for ``LEFT_DAYS`` are removed: their experiments have other code by now.
    """
    unfinished = folder / FOLDER
    stem = f"{file_stem(name)}-{fingerprint[:16]}"
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        _remove_old(unfinished)
        others = sorted(path.name for path in unfinished.glob(f"{stem}.*.jsonl"))
        new = (f"{stem}.{secrets.token_hex(4)}.jsonl" for _ in count())
        paths = (unfinished / file for file in chain([f"{stem}.jsonl"], others, new))
        return next(ItemLog(path, release) for path in paths if (release := _claimed(path)) is not None)
    except OSError as error:
        raise ArtifactError(f"{str(unfinished)!r} cannot be written ({error.strerror}): use another folder") from None


def _remove_old(unfinished: Path) -> None:
    for path in unfinished.glob("*.jsonl"):
        with suppress(FileNotFoundError):  # another process is as tidy
            if time.time() - path.stat().st_mtime < LEFT_DAYS * 86_400:
                continue
            if (release := _claimed(path)) is not None:
                path.unlink()
                release()


def _claimed(path: Path) -> Callable[[], None] | None:
    """Return what lets a log go that is this process's own from now on; None when another process has it."""
    lock = path.with_suffix(".lock")
    with ExitStack() as held:
        if not held.enter_context(try_lock(lock)):
            return None
        held.enter_context(suppress(OSError))  # Windows keeps a file that is open
        held.callback(lock.unlink, missing_ok=True)
        return held.pop_all().close


def _let_go(descriptor: int, release: Callable[[], None]) -> None:
    os.close(descriptor)
    release()


def _survey(descriptor: int) -> tuple[dict[str, Any], "array[int]"]:
    """The header and where each sample stands; what a kill left half written, or is no line of ours, is cut off."""
    places: array[int] = array("q")
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
                places.extend([-1] * (index + 1 - len(places)))
                places[index] = end
            end += len(line)
    os.ftruncate(descriptor, end)
    if header is None:
        header = {"run": secrets.token_hex(8), "started": datetime.now(UTC).isoformat(timespec="milliseconds")}
        os.write(descriptor, encode(header) + b"\n")
    return header, places


def row_digest(row: Row) -> str:
    """What tells a row from every other."""
    return hashlib.blake2b(encode(row), digest_size=16).hexdigest()


def file_stem(name: str) -> str:
    """An experiment's name as it may stand in a file name on any system; raises nothing, loses what does not fit."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "experiment"
