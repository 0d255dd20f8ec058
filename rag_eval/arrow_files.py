"""Arrow tables in files that are named by the sha256 of their bytes.

A file is written under a scratch name and renamed, so a reader meets a whole file or none, equal tables make one file,
and writers need no lock. One that was cut or altered no longer fits its name.
"""

import os
from pathlib import Path

import pyarrow as pa

from rag_eval.digests import file_sha256
from rag_eval.errors import ArtifactError
from rag_eval.files import scratch_path


def write_table(folder: Path, table: pa.Table) -> Path:
    """Keep the table in the folder and give back its file, whose stem is the digest of its bytes."""
    with scratch_path(folder) as scratch:
        with pa.OSFile(str(scratch), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        path = folder / f"{file_sha256(scratch)}.arrow"
        os.replace(scratch, path)
    return path


def read_table(path: Path) -> pa.Table:
    """The table, memory-mapped; raises ``ArtifactError`` when the bytes do not fit the name, ``OSError`` when gone."""
    found = file_sha256(path)
    if found != path.stem:
        raise ArtifactError(f"sha256 {found[:12]}…, written as {path.stem[:12]}…")
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
