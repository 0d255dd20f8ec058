"""The workspace of a pipeline: Arrow tables named by their content, LanceDB indexes, stage records, runs and caches.

It is a folder, or a bucket with a folder as its copy on this machine. Files are written beside their place and renamed
into it, so that a reader meets a whole file or none, and two writers of the same content do no harm. What is read is
checked against the digest in its reference. A workspace is data, whoever wrote it: reading it runs nothing, and nothing
is read from or written to places that it leads to outside its own folder.
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

from rag_eval.errors import ArtifactError, DamagedError
from rag_eval.pipeline.references import IndexRef, TableRef, TruthRef
from rag_eval.storage.bucket import Bucket, BucketLocation, Storage
from rag_eval.storage.files import files_sha256, kept_sha256, remove, scratch_path, write_atomically, writing
from rag_eval.storage.rows import nanoseconds, read_table, write_table
from rag_eval.tables import TruthTables


class Workspace(BaseModel):
    """Everything that a pipeline keeps, below one folder or one path of a bucket."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path
    """The folder; of a bucket, this machine's copy of it."""
    remote: str | None = None
    """The bucket and the path in it, such as ``s3://bucket/path``."""
    refresh: bool = False
    """Make everything again instead of using what is kept; not part of any key."""
    begun: AwareDatetime | None = None
    """When the run began: what was made again since then is used like any kept work."""

    @classmethod
    def at(cls, place: str | Path, *, refresh: bool = False) -> Self:
        """Return the workspace in a folder, or at ``s3://bucket/path``; raises ``ConfigurationError`` on others."""
        if "://" not in str(place):
            return cls(root=Path(place).absolute(), refresh=refresh)
        location = BucketLocation.parse(str(place))
        return cls(root=location.copy, remote=str(location), refresh=refresh)

    @model_validator(mode="before")
    @classmethod
    def _find_copy(cls, data: Any) -> Any:
        """A workspace that another machine has written down has its copy elsewhere here."""
        if isinstance(data, dict) and data.get("remote"):
            return data | {"root": str(BucketLocation.parse(data["remote"]).copy)}
        return data

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        if self.remote is not None:
            self.__dict__["root"] = BucketLocation.parse(self.remote).copy

    @property
    def storage(self) -> Storage:
        return _storage(self.root, self.remote)

    @property
    def address(self) -> str:
        """Where the work is kept, for people."""
        return self.storage.address

    def in_a_run_now(self) -> Self:
        """The workspace for a run that begins now."""
        return self.model_copy(update={"begun": datetime.now(UTC)})

    @property
    def made_since(self) -> datetime | None:
        """The moment before which kept work is too old to be used; None where all of it is used."""
        if not self.refresh:
            return None
        return self.begun or datetime.now(UTC)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def growing(self, folder: Path) -> AbstractContextManager[None]:
        """Work on the folder of a cache: fetch what others added to it, and send what the block adds."""
        since = self.made_since
        self._check_inside(folder)
        return self.storage.growing(self._name(folder), nanoseconds(since) if since else None)

    def keep(self, path: Path, data: bytes) -> None:
        """Write a file, whole or not at all, kept with the workspace below its root; raises ``ArtifactError``."""
        is_ours = path.absolute().is_relative_to(self.root.absolute())
        if is_ours:
            self._check_inside(path.parent)
        write_atomically(path, data)
        if is_ours:
            self.storage.send(self._name(path))

    def ensure(self, path: Path) -> None:
        """Store a file or a folder of the root unless it is stored already."""
        self.storage.ensure(self._name(path))

    def kept(self, path: Path) -> Path:
        """Return the path of a file that never changes, fetched first where only the bucket has it."""
        if not path.exists():
            self.storage.bring(self._name(path))
        return path

    def newest(self, path: Path) -> Path:
        """Return the path of a file that may change, as whoever wrote it last has left it."""
        self.storage.bring(self._name(path))
        return path

    def write_table(self, kind: str, table: pa.Table | Iterable[pa.Table]) -> TableRef:
        """Write a table and return its reference; the same content written twice is one file.

        It may come in parts, at least one, of which one at a time is in memory; the same parts make the same file.
        """
        folder = self.root / "tables" / kind
        self._check_inside(folder)
        parts = iter([table] if isinstance(table, pa.Table) else table)
        first = next(parts)
        # One chunk a column, no schema metadata: equal tables make equal files.
        plain = (part.combine_chunks().replace_schema_metadata(None) for part in itertools.chain([first], parts))
        path = write_table(folder, first.schema.remove_metadata(), plain)
        uri = self._name(path)
        self.storage.send(uri)
        return TableRef(uri=uri, digest=path.stem, rows=read_table(path).num_rows)

    def read_table(self, ref: TableRef) -> pa.Table:
        """Return a table, memory-mapped; raises ``DamagedError`` when it is gone, altered or no table."""
        path = self.path(ref)
        try:
            return read_table(path)
        except ArtifactError as error:
            with suppress(OSError):  # in a workspace that is read-only
                remove(path)
            self.storage.drop(ref.uri)
            problem = f"{ref.uri} in the workspace {self.address!r} is no table of ours ({error})"
            raise DamagedError(f"{problem}: run again to make it anew") from None

    def read_tables(self, shards: Sequence[TableRef]) -> pa.Table:
        """Return the table whose shards these are; raises as ``read_table`` does."""
        return pa.concat_tables([self.read_table(shard) for shard in shards])

    def read_truth(self, ref: TruthRef) -> TruthTables:
        """Return the tables of ground truth; raises as ``read_table`` does."""
        return TruthTables(self.read_table(ref.queries), self.read_table(ref.answers))

    def path(self, ref: TableRef | IndexRef) -> Path:
        """Return where a table or an index is, fetched first where only the bucket has it.

        Raises ``DamagedError`` when it is gone or is not what was written; then nobody will take it for kept any more.
        """
        problem = self.damage(ref)
        if problem:
            for name in self.storage.names(ref.uri) if isinstance(ref, IndexRef) else (ref.uri,):
                self.storage.drop(name)
            raise DamagedError(f"{problem}: run again to make it anew")
        return self.root / ref.uri

    def is_here(self, ref: TableRef | IndexRef) -> bool:
        """Whether this machine has the work behind a reference, whole or not."""
        return (self.root / ref.uri).exists()

    def lack(self, ref: TableRef | IndexRef) -> str | None:
        """As ``damage``, for work that need not be here: what only the bucket has is known to be there, not fetched."""
        if self.is_here(ref):
            return self.damage(ref)
        size = self.storage.size(ref.uri)
        if size is None or (isinstance(ref, IndexRef) and size != ref.size):
            return f"{ref.uri} is gone from the workspace {self.address!r}"
        return None

    def write_index(self, digest: str, rows: int, build: Callable[[Path], None]) -> IndexRef:
        """Keep the index that ``build`` makes in a folder, and return its reference; raises ``ArtifactError``."""
        folder = self.root / "indexes"
        self._check_inside(folder)
        with scratch_path(folder) as scratch, writing(folder):
            scratch.mkdir()
            build(scratch)
            checksum = _tree_sha256(scratch)
            size = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
            # The name holds the checksum: two builds of one index differ in their files and must not mix.
            path = folder / f"{digest[:24]}-{checksum[:8]}"
            uri = self._name(path)
            ref = IndexRef(uri=uri, digest=digest, rows=rows, size=size, checksum=checksum)
            if self._damage_here(ref):
                with scratch_path(folder) as damaged:
                    if path.exists():
                        os.replace(path, damaged)
                    os.replace(scratch, path)
        self.storage.send(uri)
        return ref

    def damage(self, ref: TableRef | IndexRef) -> str | None:
        """Return what is wrong with the work behind a reference, in a few words; None when it is whole, and here."""
        problem = self._damage_here(ref)
        if problem is None:
            return None
        bring = self.storage.bring_folder if isinstance(ref, IndexRef) else self.storage.bring
        return self._damage_here(ref) if bring(ref.uri) else problem

    def contains(self, path: Path) -> bool:
        """Whether a path leads to a place in the workspace's folder, with all links followed."""
        inside = os.path.join(os.path.realpath(path), "")
        # Where no link leads to the workspace, the first of them is the second, and sooner known.
        return any(inside.startswith(os.path.join(real(self.root), "")) for real in (os.path.abspath, os.path.realpath))

    def _check_inside(self, folder: Path) -> None:
        """Raise ``ArtifactError`` when a link leads out of the workspace: nothing of it is written elsewhere."""
        if not self.contains(folder):
            raise ArtifactError(
                f"{self._name(folder)} leads out of the workspace {self.address!r} by a link: "
                "put a folder in its place, or the whole workspace there"
            )

    def _name(self, path: Path) -> str:
        return self.storage.name_of(path)

    def _damage_here(self, ref: TableRef | IndexRef) -> str | None:
        path = self.root / ref.uri
        if not self.contains(path):
            return f"{ref.uri} leads out of the workspace {self.address!r} by a link"
        try:
            if isinstance(ref, IndexRef):
                expected, found = ref.checksum, _tree_sha256(path)
            elif path.is_file():
                expected, found = ref.digest, kept_sha256(path)
            else:
                raise FileNotFoundError(path)
        except FileNotFoundError:
            return f"{ref.uri} is gone from the workspace {self.address!r}"
        except OSError as error:
            return f"{ref.uri} in the workspace {self.address!r} cannot be read ({error.strerror})"
        if found == expected:
            return None
        return (
            f"{ref.uri} in the workspace {self.address!r} was altered "
            f"(sha256 {found[:12]}…, written as {expected[:12]}…)"
        )


@functools.cache
def _storage(root: Path, remote: str | None) -> Storage:
    return Storage(root, None if remote is None else Bucket(BucketLocation.parse(remote)))


def _tree_sha256(folder: Path) -> str:
    """Raises ``FileNotFoundError`` when the folder, or a file in it, is gone."""
    if not folder.is_dir():
        raise FileNotFoundError(folder)
    return files_sha256(folder, sorted(path for path in folder.rglob("*") if path.is_file()), kept_sha256)
