"""Store everything of a pipeline: Arrow tables named by their content, LanceDB indexes, results, runs and caches.

A workspace is a folder, or a bucket with a folder as its copy on this machine. Files are written to a scratch path and
renamed, so that a reader finds a complete file or none, and two writers of the same content do no harm. Tables and
indexes are checked against the digest in their reference. A workspace is data, whoever wrote it: reading it executes
nothing, and links that lead out of its folder are not followed.
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

from rag_eval.errors import ArtifactError, DamagedError
from rag_eval.pipeline.references import FileRef, IndexFilesRef, TableRef, TruthRef
from rag_eval.storage.bucket import BucketLocation, BucketStorage, Storage
from rag_eval.storage.files import (
    files_sha256,
    kept_sha256,
    put_in_place,
    remove,
    scratch_path,
    write_atomically,
    writing,
)
from rag_eval.storage.rows import read_table, write_table
from rag_eval.tables import TruthTables


class Workspace(BaseModel):
    """Everything that a pipeline stores, below one folder or one path of a bucket."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path
    """The folder; for a bucket, the copy on this machine."""
    remote: str | None = None
    """The bucket and the path in it, such as ``s3://bucket/path``."""
    refresh: bool = False
    """Compute everything again instead of using cached results. Not part of any cache key."""
    begun: AwareDatetime | None = None
    """Start time of the run: results computed since then are used despite ``refresh``."""

    @classmethod
    def at(cls, place: str | Path, *, refresh: bool = False) -> Self:
        """Return the workspace in a folder, or at ``s3://bucket/path``; raises ``ConfigurationError`` otherwise."""
        if "://" not in str(place):
            return cls(root=Path(place).absolute(), refresh=refresh)
        location = BucketLocation.parse(str(place))
        return cls(root=location.copy, remote=str(location), refresh=refresh)

    @model_validator(mode="before")
    @classmethod
    def _find_copy(cls, data: Any) -> Any:
        """Replace the root from another machine by this machine's copy of the bucket."""
        if isinstance(data, dict) and data.get("remote"):
            return data | {"root": str(BucketLocation.parse(data["remote"]).copy)}
        return data

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        if self.remote is not None:
            self.__dict__["root"] = BucketLocation.parse(self.remote).copy

    @property
    def storage(self) -> Storage:
        """The bucket to fetch files from and upload them to, or None."""
        return _storage(self.root, self.remote)

    @property
    def address(self) -> str:
        """The folder, or the address of the bucket."""
        return self.storage.address

    def start_run(self) -> Self:
        """Return the workspace for a run that starts now."""
        return self.model_copy(update={"begun": datetime.now(UTC)})

    @property
    def made_since(self) -> datetime | None:
        """The time since which cached results may be used; None to use all of them."""
        if not self.refresh:
            return None
        return self.begun or datetime.now(UTC)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a file atomically, and upload it if it is below the root; raises ``ArtifactError``."""
        if path.absolute().is_relative_to(self.root.absolute()):
            self._check_inside(path.parent)
            self.storage.upload_data(path, data)
        write_atomically(path, data)

    def fetch(self, path: Path) -> Path:
        """Return the path of a file that never changes; if only the bucket has it, fetch it first."""
        if not path.exists():
            self.storage.fetch(path)
        return path

    def fetch_newest(self, path: Path) -> Path:
        """Return the path of a file that may change, after fetching it again."""
        self.storage.fetch(path)
        return path

    def fetch_missing(self, folder: Path) -> None:
        """Fetch the files that other machines added to the folder of a cache."""
        self._check_inside(folder)
        self.storage.fetch_missing(folder)

    def write_table(self, kind: str, table: pa.Table | Iterable[pa.Table]) -> TableRef:
        """Write a table and return its reference; the same content written twice is one file.

        The table may come in parts, with one at a time in memory; the same parts make the same file.
        """
        folder = self.root / "tables" / kind
        self._check_inside(folder)
        parts = iter([table] if isinstance(table, pa.Table) else table)
        first = next(parts)
        # Use one chunk per column and no schema metadata, so that equal tables make equal files.
        plain = (part.combine_chunks().replace_schema_metadata(None) for part in itertools.chain([first], parts))
        path = write_table(folder, first.schema.remove_metadata(), plain)
        self.storage.upload(path)
        return TableRef(uri=self.storage.name_of(path), digest=path.stem, rows=read_table(path).num_rows)

    def read_table(self, ref: TableRef) -> pa.Table:
        """Return a table, memory-mapped; raises ``DamagedError`` if it is missing, damaged or not a table."""
        path = self.path(ref)
        try:
            return read_table(path)
        except ArtifactError as error:
            with suppress(OSError):  # fails in a read-only workspace
                remove(path)
            self.storage.delete(path)
            problem = f"{ref.uri} in the workspace {self.address!r} is not a valid table ({error})"
            raise DamagedError(f"{problem}: run again to compute it again") from None

    def read_tables(self, shards: Sequence[TableRef]) -> pa.Table:
        """Return the table whose shards these are; raises like ``read_table`` does."""
        return pa.concat_tables([self.read_table(shard) for shard in shards])

    def read_truth(self, ref: TruthRef) -> TruthTables:
        """Return the tables of ground truth; raises like ``read_table`` does."""
        return TruthTables(self.read_table(ref.queries), self.read_table(ref.answers))

    def write_index(self, digest: str, rows: int, build: Callable[[Path], None]) -> IndexFilesRef:
        """Store the index that ``build`` writes to a folder, and return its reference; raises ``ArtifactError``."""
        folder = self.root / "indexes"
        self._check_inside(folder)
        with scratch_path(folder) as scratch, writing(folder):
            scratch.mkdir()
            build(scratch)
            checksum = _tree_sha256(scratch)
            size = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
            # The name contains the checksum, because two builds of one index differ in their files and must not mix.
            path = folder / f"{digest[:24]}-{checksum[:8]}"
            ref = IndexFilesRef(uri=self.storage.name_of(path), digest=digest, rows=rows, size=size, checksum=checksum)
            if self._damage_here(ref):
                put_in_place(scratch, path)
        self.storage.upload(path)
        return ref

    def path(self, ref: FileRef) -> Path:
        """Return the path of a table or an index; if only the bucket has it, fetch it first.

        Raises ``DamagedError`` if it is missing or damaged; a damaged object is deleted from the bucket.
        """
        if problem := self.damage(ref):
            self.storage.delete(self.root / ref.uri)
            raise DamagedError(f"{problem}: run again to compute it again")
        return self.root / ref.uri

    def damage(self, ref: FileRef) -> str | None:
        """Describe what is wrong with a table or an index, after fetching it if needed; None if it is valid."""
        problem = self._damage_here(ref)
        if problem is None or not self.storage.fetch(self.root / ref.uri):
            return problem
        return self._damage_here(ref)

    def is_here(self, ref: FileRef) -> bool:
        """Return whether this machine has a table or an index, even if damaged."""
        return (self.root / ref.uri).exists()

    def problem(self, ref: FileRef) -> str | None:
        """Describe what is wrong with a table or an index without fetching it; None if it is valid."""
        if self.is_here(ref):
            return self.damage(ref)
        size = self.storage.size(self.root / ref.uri)
        if size is None or (isinstance(ref, IndexFilesRef) and size != ref.size):
            return f"{ref.uri} is missing from the workspace {self.address!r}"
        return None

    def contains(self, path: Path) -> bool:
        """Return whether a path is inside the workspace's folder, following all links."""
        inside = os.path.join(os.path.realpath(path), "")
        # abspath first: if no link leads to the workspace it is enough, and faster.
        return any(inside.startswith(os.path.join(real(self.root), "")) for real in (os.path.abspath, os.path.realpath))

    def _check_inside(self, folder: Path) -> None:
        """Raise ``ArtifactError`` if a link leads out of the workspace."""
        if not self.contains(folder):
            raise ArtifactError(
                f"{self.storage.name_of(folder)} is a link out of the workspace {self.address!r}: "
                "replace it with a folder, or move the whole workspace"
            )

    def _damage_here(self, ref: FileRef) -> str | None:
        path, where = self.root / ref.uri, f"the workspace {self.address!r}"
        if not self.contains(path):
            return f"{ref.uri} is a link out of {where}"
        try:
            if isinstance(ref, IndexFilesRef):
                expected, found = ref.checksum, _tree_sha256(path)
            elif path.is_file():
                expected, found = ref.digest, kept_sha256(path)
            else:
                return f"{ref.uri} is missing from {where}"
        except FileNotFoundError:
            return f"{ref.uri} is missing from {where}"
        except OSError as error:
            return f"{ref.uri} in {where} cannot be read ({error.strerror})"
        if found == expected:
            return None
        return f"{ref.uri} in {where} was altered (sha256 {found[:12]}…, written as {expected[:12]}…)"


@functools.cache
def _storage(root: Path, remote: str | None) -> Storage:
    return Storage(root) if remote is None else BucketStorage(BucketLocation.parse(remote))


def _tree_sha256(folder: Path) -> str:
    """Return the digest of all files in a folder; raises ``FileNotFoundError`` if the folder or a file is missing."""
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    return files_sha256(folder, sorted(path for path in folder.rglob("*") if path.is_file()), kept_sha256)
