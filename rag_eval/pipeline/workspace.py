"""The folder where a pipeline keeps its work: Arrow tables named by their content, LanceDB indexes, run records.

Files are written beside their place and renamed into it, so that a reader meets a whole file or none, and two
writers of the same content do no harm. What is read is checked against the digest in the reference.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from rag_eval.arrow_files import read_table, write_table
from rag_eval.digests import file_sha256, files_sha256
from rag_eval.errors import ArtifactError
from rag_eval.files import scratch_path
from rag_eval.pipeline.references import Effort, IndexRef, TableRef
from rag_eval.types.ids import text_sha256


class Workspace(BaseModel):
    """All that a pipeline keeps, below one folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path
    refresh: bool = False
    """Make everything again instead of using what is kept; not part of any key."""

    @property
    def results(self) -> Path:
        """Where task results (references as JSON) are kept, by cache key."""
        return self.root.absolute() / "results"

    @property
    def runs(self) -> Path:
        """Where the outcome of each run is kept."""
        return self.root / "runs"

    @property
    def embedding_cache(self) -> Path:
        """Where vectors are kept, by embedder and text."""
        return self.root / "cache" / "embeddings"

    def chunk_cache(self, chunker_name: str) -> Path:
        """Where the cuts of one chunker are kept, by document."""
        return self.root / "cache" / "chunks" / text_sha256(chunker_name)[:32]

    def write_table(self, kind: str, table: pa.Table, effort: Effort | None = None) -> TableRef:
        """Keep a table and give back its reference; writing the same content twice keeps one file."""
        # One chunk a column, no schema metadata: equal tables make equal files.
        path = write_table(self.root / "tables" / kind, table.combine_chunks().replace_schema_metadata(None))
        uri = path.relative_to(self.root).as_posix()
        return TableRef(uri=uri, digest=path.stem, rows=table.num_rows, effort=effort)

    def read_table(self, ref: TableRef) -> pa.Table:
        """The table, memory-mapped; raises ``ArtifactError`` when it is gone or is not what was written."""
        try:
            return read_table(self.root / ref.uri)
        except (OSError, ArtifactError):
            raise ArtifactError(f"{self.damage(ref)}: run again to make it anew") from None

    def index_folder(self, ref: IndexRef) -> Path:
        """The folder of an index; raises ``ArtifactError`` when it is gone or is not what was written."""
        problem = self.damage(ref)
        if problem:
            raise ArtifactError(f"{problem}: run again to make it anew")
        return self.root / ref.uri

    def write_index(self, digest: str, rows: int, build: Callable[[Path], None]) -> IndexRef:
        """Keep the index that ``build`` makes in the folder it is given, and give back its reference."""
        folder = self.root / "indexes"
        with scratch_path(folder) as scratch:
            scratch.mkdir()
            build(scratch)
            checksum, size = _tree_sha256(scratch), _tree_size(scratch)
            # The name holds the checksum: two builds of one index differ in their files and must not mix.
            path = folder / f"{digest[:24]}-{checksum[:8]}"
            if not path.exists():
                os.replace(scratch, path)
        uri = path.relative_to(self.root).as_posix()
        return IndexRef(uri=uri, digest=digest, rows=rows, size=size, checksum=checksum)

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


def _tree_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _tree_sha256(folder: Path) -> str:
    return files_sha256(folder, sorted(path for path in folder.rglob("*") if path.is_file()))
