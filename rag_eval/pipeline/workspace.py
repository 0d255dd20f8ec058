"""The folder where a pipeline keeps its work: Arrow tables named by their content, LanceDB indexes, run records.

Files are written beside their place and renamed into it, so that a reader meets a whole file or none, and two
writers of the same content do no harm. What is read is checked against the digest in the reference.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from rag_eval.digests import file_sha256, files_sha256
from rag_eval.errors import ArtifactError
from rag_eval.files import scratch_path
from rag_eval.pipeline.references import IndexRef, TableRef


class Workspace(BaseModel):
    """All that a pipeline keeps, below one folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path

    @property
    def results(self) -> Path:
        """Where task results (references as JSON) are kept, by cache key."""
        return self.root.absolute() / "results"

    @property
    def runs(self) -> Path:
        """Where the outcome of each run is kept."""
        return self.root / "runs"

    def write_table(self, stage: str, table: pa.Table) -> TableRef:
        """Keep a table and give back its reference; writing the same content twice keeps one file."""
        # One chunk a column, no schema metadata: equal tables make equal files.
        table = table.combine_chunks().replace_schema_metadata(None)
        folder = self.root / "tables" / stage
        with scratch_path(folder) as scratch:
            with pa.OSFile(str(scratch), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            digest = file_sha256(scratch)
            path = folder / f"{digest[:32]}.arrow"
            os.replace(scratch, path)
        return TableRef(uri=path.relative_to(self.root).as_posix(), digest=digest, rows=table.num_rows)

    def read_table(self, ref: TableRef) -> pa.Table:
        """The table, memory-mapped; raises ``ArtifactError`` when it is gone or is not what was written."""
        problem = self.damage(ref)
        if problem:
            raise ArtifactError(f"{problem}: run again to make it anew")
        with pa.memory_map(str(self.root / ref.uri)) as source:
            return pa.ipc.open_file(source).read_all()

    def write_index(self, digest: str, rows: int, build: Callable[[Path], None]) -> IndexRef:
        """Keep the index that ``build`` makes in the folder it is given, and give back its reference."""
        folder = self.root / "indexes"
        with scratch_path(folder) as scratch:
            scratch.mkdir()
            build(scratch)
            checksum = _tree_sha256(scratch)
            # The name holds the checksum: two builds of one index differ in their files and must not mix.
            path = folder / f"{digest[:24]}-{checksum[:8]}"
            os.replace(scratch, path)
        return IndexRef(uri=path.relative_to(self.root).as_posix(), digest=digest, rows=rows, checksum=checksum)

    def damage(self, ref: TableRef | IndexRef) -> str | None:
        """What is wrong with the stored work behind a reference, in a few words; None when it is whole."""
        path = self.root / ref.uri
        if not path.exists():
            return f"{ref.uri} is gone from the workspace {str(self.root)!r}"
        if isinstance(ref, IndexRef):
            expected, found = ref.checksum, _tree_sha256(path)
        else:
            expected, found = ref.digest, file_sha256(path)
        if found == expected:
            return None
        return (
            f"{ref.uri} in the workspace {str(self.root)!r} was altered "
            f"(sha256 {found[:12]}…, written as {expected[:12]}…)"
        )


def _tree_sha256(folder: Path) -> str:
    return files_sha256(folder, sorted(path for path in folder.rglob("*") if path.is_file()))
