"""Rows that are kept by a key, in a folder of ``arrow_files``.

Files are added and never changed, so any number of runs may read and write at once; one that was cut or altered is
dropped, said in the log, and what it held is made again.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_eval.disk.files import file_sha256, kept_sha256, remember, scratch_path, writing
from rag_eval.errors import ArtifactError


def write_table(folder: Path, table: pa.Table, made_ns: int | None = None) -> Path:
    """Keep the table in the folder and give back its file, whose stem is the digest of its bytes.

    ``made_ns`` is the time of change that the file shall have, in nanoseconds, in place of now.
    Raises ``ArtifactError`` when it cannot be written.
    """
    return write_parts(folder, table.schema, [table], made_ns)


def write_parts(folder: Path, schema: pa.Schema, parts: Iterable[pa.Table], made_ns: int | None = None) -> Path:
    """As ``write_table``, for a table that comes in parts, one at a time in memory.

    Raises what making a part raises, besides.
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
            # What went wrong before is what is to be said, and not that a full disk cannot take the rest either.
            with suppress(OSError):
                sink.close()
        with writing(folder):
            if made_ns is not None:
                os.utime(scratch, ns=(made_ns, made_ns))
            digest = file_sha256(scratch)
            path = folder / f"{digest}.arrow"
            os.replace(scratch, path)
            remember(path, digest)
    return path


def read_table(path: Path) -> pa.Table:
    """The table, memory-mapped; raises ``ArtifactError`` when the bytes do not fit the name, ``OSError`` when gone."""
    found = kept_sha256(path)
    if found != path.stem:
        raise ArtifactError(f"sha256 {found[:12]}…, written as {path.stem[:12]}…")
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


MANY_FILES = 16

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]


class RowFiles:
    """The rows of one folder; ``schema`` is that of a row, and its first column the key."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._files: list[Path] = []
        self._rows: dict[str, Row] = {}

    def read(self) -> dict[str, Row]:
        """All that is kept, by key."""
        self._files, self._rows = [], {}
        for path in sorted(self._folder.glob("*.arrow")):
            try:
                rows = read_table(path).to_pylist()
            except FileNotFoundError:
                continue  # another run has merged it since it was listed
            except ArtifactError as error:
                logger.warning("%s was cut or altered (%s): it is dropped, what it held is made again", path, error)
                with suppress(OSError):  # a folder that is read-only
                    path.unlink(missing_ok=True)
                continue
            except OSError as error:
                logger.warning("%s cannot be read (%s): what it holds is made again", path, error.strerror)
                continue
            self._files.append(path)
            self._rows |= {row[self._schema.names[0]]: row for row in rows}
        return dict(self._rows)

    def add(self, rows: Mapping[str, Row], *, replace: bool = False) -> None:
        """Keep rows; with ``replace``, or where there are many files, in one file with all that was read before.

        Raises ``ArtifactError`` when they cannot be written.
        """
        if not rows:
            return
        self._rows |= rows
        if len(self._files) < MANY_FILES and not replace:
            self._files.append(self._write(rows))
            return
        merged = self._write(self._rows)
        # Only what was read: another run may have added a file since.
        for path in self._files:
            if path != merged:
                path.unlink(missing_ok=True)
        self._files = [merged]

    def _write(self, rows: Mapping[str, Row]) -> Path:
        return write_table(self._folder, pa.Table.from_pylist(list(rows.values()), schema=self._schema))
