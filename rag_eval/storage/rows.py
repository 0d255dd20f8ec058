"""Store Arrow tables in files named by the digest of their bytes, and rows by key in such files.

A row is computed once: the cuts of a document, a vector, a ranking, the answer of a model. Its key is the sha256 of its
input, and its folder is named by the identity of the part that computed it. Files are sorted by key, and added and
removed but never changed: threads, processes and, through a bucket, machines may read and write at the same time.
Unfinished files are not read. A damaged file is removed, which is logged, and its rows are computed again.
"""

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.errors import ArtifactError, ConfigurationError, ServiceError
from rag_eval.storage.bucket import Storage
from rag_eval.storage.files import Stamp, file_sha256, kept_sha256, remember, scratch_path, sweep_scratch, writing
from rag_eval.storage.locks import wait_for_lock

KEY_BYTES = 32
KEY = pa.binary(KEY_BYTES)
"""Type of the first column of every file."""

MANY_FILES = 16
FULL_FILE_BYTES = 128 * 2**20  # larger files are not merged
MAX_LISTINGS = 20
FILE_NAME = re.compile(r"[0-9a-f]{64}\.arrow")

Keys = NDArray[np.uint8]
"""sha256 digests, one per row of 32 bytes."""

Row = Mapping[str, Any]
logger = logging.getLogger(__name__)


def write_table(folder: Path, schema: pa.Schema, parts: Iterable[pa.Table], made_ns: int | None = None) -> Path:
    """Write a table to a file of the folder whose stem is the digest of its bytes, and return the file.

    The table comes in parts, one at a time in memory. ``made_ns`` is the file's modification time in nanoseconds; by
    default now. Raises ``ArtifactError`` if it cannot be written, and any error of the iterator of parts.
    """
    with scratch_path(folder) as scratch:
        with writing(folder):
            sink = pa.OSFile(str(scratch), "wb")
        try:
            with writing(folder):
                writer = pa.ipc.new_file(sink, schema)
            for part in parts:
                with writing(folder):
                    writer.write_table(part)
            with writing(folder):
                writer.close()
        finally:
            with suppress(OSError):  # on a full disk, closing fails too: raise the first error
                sink.close()
        with writing(folder):
            if made_ns is not None:
                os.utime(scratch, ns=(made_ns, made_ns))
            digest = file_sha256(scratch)
            path = folder / f"{digest}.arrow"
            os.replace(scratch, path)
            # Another thread may already have merged it into a larger file.
            with suppress(FileNotFoundError):
                remember(path, digest)
    return path


def read_table(path: Path) -> pa.Table:
    """Return a table, memory-mapped; raises ``ArtifactError`` when it is damaged, ``OSError`` when it is missing.

    The digest is computed only if the file changed since this process last read it. The content is validated once,
    because Arrow follows lengths and offsets wherever they lead.
    """
    found = kept_sha256(path)
    if found != path.stem:
        raise ArtifactError(f"sha256 {found[:12]}…, written as {path.stem[:12]}…")
    with pa.memory_map(str(path)) as source:
        try:
            table = pa.ipc.open_file(source).read_all()
            if found not in _sound:
                table.validate(full=True)
                _sound.add(found)
        except pa.ArrowInvalid:
            raise ArtifactError("it is not an Arrow table") from None
    return table


_sound: set[str] = set()
"""Digests of the tables that were validated."""


def identity_folder(root: Path, identity: str, label: str) -> Path:
    """Return the folder of the rows of a part; its ``label`` need not be unique."""
    readable = re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")[:60]  # characters that every file system allows
    return root / f"{readable}-{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def keys_from_hex(digests: Sequence[str]) -> Keys:
    """Return the keys of sha256 digests in hex."""
    return np.frombuffer(bytes.fromhex("".join(digests)), np.uint8).reshape(-1, KEY_BYTES)


def prefixes_of(keys: Keys) -> NDArray[np.uint64]:
    """Return the first 8 bytes of each key as a number that sorts like the bytes."""
    first: NDArray[np.uint64] = np.ascontiguousarray(keys[:, :8]).view(">u8")[:, 0].astype(np.uint64)
    return first


@dataclass(frozen=True, slots=True, eq=False)
class RowFile:
    """An open file, memory-mapped."""

    path: Path
    stamp: Stamp
    prefixes: NDArray[np.uint64]
    keys: Keys
    table: pa.Table

    def __len__(self) -> int:
        return len(self.keys)


def locate(keys: Keys, files: Sequence[RowFile]) -> Iterator[tuple[RowFile, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each file with the indexes of the keys that it is the first to contain, and their rows in it."""
    prefixes = prefixes_of(keys)
    missing = np.argsort(prefixes)  # sorted like the files, so that they are read from front to back
    for file in files:
        rows = np.full(len(missing), -1, np.int64)
        at = np.searchsorted(file.prefixes, prefixes[missing])
        sought = np.flatnonzero(at < len(file))
        # Keys with the same prefix are adjacent: continue while the prefix is the same.
        while len(sought):
            sought = sought[file.prefixes[at[sought]] == prefixes[missing[sought]]]
            equal = (file.keys[at[sought]] == keys[missing[sought]]).all(axis=1)
            rows[sought[equal]] = at[sought[equal]]
            sought = sought[~equal]
            at[sought] += 1
            sought = sought[at[sought] < len(file)]
        here = rows >= 0
        if here.any():
            yield file, missing[here], rows[here]
            missing = missing[~here]


class KeyedRows:
    """The rows of one folder; the first column of its ``schema`` is the key.

    If several rows have the same key, the newest counts. Only rows made since ``made_since`` are read and merged. Files
    are uploaded to ``storage`` as soon as they are written, so that paid results outlive the machine. Raises
    ``ConfigurationError`` when the folder is a file.
    """

    def __init__(
        self, folder: Path, schema: pa.Schema, storage: Storage | None = None, made_since: datetime | None = None
    ) -> None:
        if folder.exists() and not folder.is_dir():
            raise ConfigurationError(f"{str(folder)!r} is not a folder: give a folder for cached results")
        self.folder = folder
        self._schema, self._storage = schema, storage or Storage(folder.parent)
        self._since_ns = int(made_since.timestamp() * 1e9) if made_since else 0
        self._lock = threading.Lock()  # of this object, not of the folder
        self._open: dict[str, RowFile] = {}
        self._refused: dict[str, Stamp] = {}

    def locked(self, name: str = "", stopped: threading.Event | None = None) -> AbstractContextManager[None]:
        """Lock the folder, or a name in it, on this machine; ``stopped`` ends the wait.

        Inside the lock, look for the rows again: the previous holder may have added them.
        """
        # Beside the folder, which contains only files of rows.
        lock = self.folder.with_name("-".join(part for part in (self.folder.name, name) if part) + ".lock")
        return wait_for_lock(lock, stopped)

    def get(self, digests: Sequence[str], columns: Sequence[str] | None = None) -> dict[str, Row]:
        """Return the rows of these keys in hex, by key, with these columns or all except the key."""
        rows: dict[str, Row] = {}
        for file, places, numbers in locate(keys_from_hex(digests), self.files()):
            values = file.table.select(columns or file.table.column_names[1:]).take(pa.array(numbers)).to_pylist()
            rows |= {digests[place]: row for place, row in zip(places.tolist(), values, strict=True)}
        return rows

    def put(self, rows: Mapping[str, Row]) -> None:
        """Add rows by key in hex; raises ``ArtifactError`` if they cannot be written."""
        if rows:
            columns = pa.Table.from_pylist(list(rows.values()), pa.schema(list(self._schema)[1:]))
            self.add(keys_from_hex(list(rows)), columns)

    def add(self, keys: Keys, columns: pa.Table) -> None:
        """Add rows; of equal keys, the first is added. Raises ``ArtifactError`` if they cannot be written."""
        # Use the clock of this process: the file system's clock lags behind it, and differs on a network drive.
        self._write(keys, columns, time.time_ns())
        try:
            sweep_scratch(self.folder)
            self._merge_small_files()
        except (OSError, ArtifactError, ServiceError, pa.ArrowInvalid) as error:
            logger.warning("%s could not be tidied: %s", self.folder, error)

    def files(self) -> list[RowFile]:
        """Return the current files made since ``made_since``, the newest first."""
        return [file for file in self.all_files() if file.stamp.made_ns >= self._since_ns]

    def all_files(self) -> list[RowFile]:
        """Return all current files, the newest first."""
        with self._lock:
            for _ in range(MAX_LISTINGS):
                try:
                    self._open = self._reopened()
                    break
                except FileNotFoundError:
                    continue  # another process merged a file after it was listed
            return sorted(self._open.values(), key=lambda file: (-file.stamp.made_ns, file.path))

    def fits(self, schema: pa.Schema) -> bool:
        """Return whether this is the schema of the folder's files."""
        return bool(schema.equals(self._schema))

    def remove(self, path: Path) -> None:
        """Remove a file and its rows."""
        path.unlink(missing_ok=True)
        self._storage.delete(path)

    def _write(self, keys: Keys, columns: pa.Table, made_ns: int) -> Path:
        # Sorted by bytes; of equal keys the first.
        _, first = np.unique(np.ascontiguousarray(keys).view(f"V{KEY_BYTES}"), return_index=True)
        column = pa.FixedSizeBinaryArray.from_buffers(KEY, len(first), [None, pa.py_buffer(keys[first].tobytes())])
        # One chunk per column, so that each is mapped as one piece.
        sorted_columns = columns.combine_chunks().take(pa.array(first)).combine_chunks()
        table = sorted_columns.add_column(0, self._schema.field(0), column).replace_schema_metadata(None)
        path = write_table(self.folder, table.schema, [table], made_ns)
        with suppress(FileNotFoundError):  # another thread merged it into a larger file
            self._storage.upload(path)
        return path

    def _merge_small_files(self) -> None:
        """Merge the newest files once there are many; a row is merged again only after its file grew severalfold.

        Readers keep merged files open. The new file is as old as the oldest of them, so that no row seems newer than it
        is; no remaining file is between them in age, so that the newest of equal keys stays the newest.
        """
        small = list(takewhile(lambda file: file.stamp.size < FULL_FILE_BYTES, self.files()))
        if len(small) <= MANY_FILES:
            return
        chosen: list[RowFile] = []
        rows = size = 0
        for file in small:
            if len(chosen) >= 2 and (len(file) > 2 * rows or size >= FULL_FILE_BYTES):
                break
            chosen.append(file)
            rows, size = rows + len(file), size + file.stamp.size
        columns = pa.concat_tables([file.table for file in chosen]).drop_columns([self._schema.names[0]])
        path = self._write(np.concatenate([file.keys for file in chosen]), columns, chosen[-1].stamp.made_ns)
        for file in chosen:
            if file.path != path:
                self.remove(file.path)

    def _reopened(self) -> dict[str, RowFile]:
        try:
            with os.scandir(self.folder) as listing:
                entries = [entry for entry in listing if FILE_NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return {}
        files = {}
        for entry in entries:
            stamp = Stamp.of(entry)
            known = self._open.get(entry.name)
            if known is not None and known.stamp == stamp:
                files[entry.name] = known
            elif self._refused.get(entry.name) != stamp:
                opened = self._opened(Path(entry.path), stamp)
                if opened is not None:
                    files[entry.name] = opened
        return files

    def _opened(self, path: Path, stamp: Stamp) -> RowFile | None:
        try:
            table = read_table(path)
            if not self.fits(table.schema) or table.column(0).num_chunks != 1 or table.column(0).null_count:
                raise ArtifactError("its columns are wrong")
            keys = np.frombuffer(table.column(0).chunk(0).buffers()[1], np.uint8).reshape(-1, KEY_BYTES)
            return RowFile(path, stamp, prefixes_of(keys), keys, table)
        except FileNotFoundError:
            raise
        except ArtifactError as error:
            logger.warning("%s is damaged (%s): it is removed, and its rows are computed again", path, error)
            try:
                self.remove(path)
            except OSError:
                self._refused[path.name] = stamp  # the folder is read-only
        except OSError as error:
            logger.warning("%s cannot be read (%s): its rows are computed again", path, error.strerror)
            self._refused[path.name] = stamp
        return None
