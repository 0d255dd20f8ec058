"""Rows that are kept by a key, in a folder of ``arrow_files``.

Files are added and never changed, so any number of runs may read and write at once; one that was cut or altered is
dropped, said in the log, and what it held is made again.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_eval.arrow_files import read_table, write_table
from rag_eval.errors import ArtifactError

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
