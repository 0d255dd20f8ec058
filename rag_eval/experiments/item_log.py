"""Store finished samples in an SQLite file, so that an interrupted experiment continues when it is run again."""

import hashlib
import re
import secrets
import sqlite3
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import overload

from pydantic_core import from_json

from rag_eval.errors import ArtifactError
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import ItemResult, Row

FOLDER = ".unfinished"
LEFT_DAYS = 30
SCHEMA = """
PRAGMA trusted_schema = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS run (id TEXT, started TEXT);
CREATE TABLE IF NOT EXISTS samples (place INTEGER PRIMARY KEY, row BLOB, item BLOB, failed INTEGER);
"""
# EXCLUSIVE locks out other processes. Without synchronous writes a kill loses nothing; a power failure may.


class ItemLog(Sequence[ItemResult]):
    """The samples of a run in the order of the data; open it with ``open_log``.

    Raises:
        sqlite3.DatabaseError: Another process uses the file, or it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        self.close = weakref.finalize(self, self._database.close)
        """Closes the file. This also happens when the log is garbage-collected."""
        try:
            self._database.executescript(SCHEMA)
            header = self._database.execute("SELECT id, started FROM run").fetchone()
            if header is None:
                header = (secrets.token_hex(8), datetime.now(UTC).isoformat(timespec="milliseconds"))
                self._database.execute("INSERT INTO run VALUES (?, ?)", header)
            self._can_resume = len(self) > 0
            if self._can_resume and self._database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError(f"{str(path)!r} is damaged")
        except BaseException:
            self.close()
            raise
        self.run: str = header[0]
        self.started = datetime.fromisoformat(header[1])

    def __len__(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM samples").fetchone()[0])

    def __iter__(self) -> Iterator[ItemResult]:
        for place, item in self._database.execute("SELECT place, item FROM samples ORDER BY place"):
            yield ItemResult.of(place, from_json(item))

    @overload
    def __getitem__(self, index: int) -> ItemResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[ItemResult]: ...
    def __getitem__(self, index: int | slice) -> ItemResult | list[ItemResult]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]
        (item,) = self._database.execute("SELECT item FROM samples WHERE place = ?", (place,)).fetchone()
        return ItemResult.of(place, from_json(item))

    def records(self) -> Iterator[bytes]:
        """Yield the samples as JSON, in the order of the data."""
        return (item for (item,) in self._database.execute("SELECT item FROM samples ORDER BY place"))

    @property
    def size(self) -> int:
        """The size of all samples in bytes."""
        return int(self._database.execute("SELECT coalesce(sum(length(item)), 0) FROM samples").fetchone()[0])

    def finished(self, index: int, row: Row) -> ItemResult | None:
        """Return the result of the same row from an interrupted run; None if there is none or it failed."""
        if not self._can_resume:
            return None
        query = "SELECT item FROM samples WHERE place = ? AND row = ? AND NOT failed"
        found = self._database.execute(query, (index, row_digest(row))).fetchone()
        with suppress(ValueError, KeyError, TypeError):  # a damaged record
            return ItemResult.of(index, from_json(found[0])) if found else None
        return None

    def add(self, item: ItemResult, row: Row) -> None:
        """Store a finished sample; raises ``ArtifactError`` when the disk is full."""
        values = (item.index, row_digest(row), encode(item.record()), bool(item.errors))
        try:
            self._database.execute("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)", values)
        except sqlite3.OperationalError as error:
            raise ArtifactError(f"{str(self._path)!r} cannot be written ({error}): make room") from None

    def cut(self, count: int) -> None:
        """Drop samples beyond the end of the data, which may be shorter than in the interrupted run."""
        self._database.execute("DELETE FROM samples WHERE place >= ?", (count,))

    def done(self) -> None:
        """Remove the file, which this process can still read."""
        self._database.execute(
            "PRAGMA journal_mode = MEMORY"
        )  # otherwise closing would remove the journal of a later run
        self._path.unlink(missing_ok=True)

    def interrupted(self) -> None:
        """Close the log so that a later run can continue it; an empty log is removed."""
        if not len(self):
            self.done()
        self.close()


def open_log(folder: Path, name: str, fingerprint: str) -> ItemLog:
    """Open the log of an interrupted run with this fingerprint, or a new one.

    While another process runs the same experiment, the log is always new. Logs older than ``LEFT_DAYS`` are removed.

    Raises:
        ArtifactError: The folder cannot be written.
    """
    unfinished = folder / FOLDER
    stem = f"{file_stem(name)}-{fingerprint[:16]}"
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        for path in unfinished.iterdir():
            with suppress(FileNotFoundError):  # another process removed it
                if path.stat().st_mtime < time.time() - LEFT_DAYS * 86_400:
                    path.unlink()
        with suppress(sqlite3.DatabaseError):
            return ItemLog(unfinished / f"{stem}.sqlite")
        return ItemLog(unfinished / f"{stem}.{secrets.token_hex(4)}.sqlite")
    except (OSError, sqlite3.DatabaseError) as error:
        raise ArtifactError(f"{str(unfinished)!r} cannot be written ({error}): use another folder") from None


def row_digest(row: Row) -> bytes:
    """Return a digest that changes with the row."""
    return hashlib.blake2b(encode(row), digest_size=16).digest()


def file_stem(name: str) -> str:
    """Return an experiment's name as a file name that is valid on any system."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:100] or "experiment"
