"""Arrow tables in files that are named by the digest of their bytes, written whole or not at all and never changed."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

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
    """The table, memory-mapped; raises ``ArtifactError`` when it is not what was written, ``OSError`` when it is gone.

    The bytes are read, and held against the name, only if they have changed since this process last did.
    """
    found = kept_sha256(path)
    if found != path.stem:
        raise ArtifactError(f"sha256 {found[:12]}…, written as {path.stem[:12]}…")
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            raise ArtifactError("it holds no Arrow table") from None
