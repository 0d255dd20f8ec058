"""Files of an embedding cache: each holds some texts' digests, sorted, with their vectors, and never changes.

A segment is one of ``arrow_files``, of one record batch. Equal rows in two segments are harmless.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.arrow_files import read_table, write_table
from rag_eval.embedding.base import Vectors

Digests = NDArray[np.uint8]
"""sha256 digests, one a row of 32 bytes."""

DIGEST_BYTES = 32
SEGMENT_NAME = re.compile(r"[0-9a-f]{64}\.arrow")

Stamp = tuple[int, int, int]
"""A file's inode, size and time of change: another stamp is another file, or other bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """An open segment; its vectors are mapped from the disk and read when they are asked for."""

    path: Path
    stamp: Stamp
    prefixes: NDArray[np.uint64]
    digests: Digests
    vectors: Vectors

    def __len__(self) -> int:
        return len(self.digests)

    def find(self, prefixes: NDArray[np.uint64], digests: Digests) -> NDArray[np.int64]:
        """The row of each digest, -1 where it is not here; ``prefixes`` are those of the digests."""
        rows = np.full(len(digests), -1, np.int64)
        if not len(self):
            return rows
        places = np.searchsorted(self.prefixes, prefixes)
        open_ones = np.flatnonzero(places < len(self))
        # Different digests with the same first 8 bytes lie side by side: go on while the prefix is the same.
        while len(open_ones):
            at = places[open_ones]
            same = self.prefixes[at] == prefixes[open_ones]
            open_ones, at = open_ones[same], at[same]
            equal = (self.digests[at] == digests[open_ones]).all(axis=1)
            rows[open_ones[equal]] = at[equal]
            open_ones = open_ones[~equal]
            places[open_ones] += 1
            open_ones = open_ones[places[open_ones] < len(self)]
        return rows


def prefixes_of(digests: Digests) -> NDArray[np.uint64]:
    """The first 8 bytes of each digest as a number that sorts as the bytes do."""
    first: NDArray[np.uint64] = np.ascontiguousarray(digests[:, :8]).view(">u8")[:, 0].astype(np.uint64)
    return first


def write_segment(folder: Path, digests: Digests, vectors: Vectors) -> Path:
    """Keep the rows, each digest once (its first vector), and give back the file."""
    keys = np.ascontiguousarray(digests).view(f"V{DIGEST_BYTES}")[:, 0]
    _, first = np.unique(keys, return_index=True)
    table = pa.Table.from_arrays(
        [
            pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(DIGEST_BYTES), len(first), [None, pa.py_buffer(digests[first].tobytes())]
            ),
            pa.FixedSizeListArray.from_arrays(pa.array(vectors[first].reshape(-1)), vectors.shape[1]),
        ],
        names=["text_sha256", "vector"],
    )
    return write_table(folder, table)


def open_segment(path: Path, stamp: Stamp) -> Segment:
    """The segment, checked against its name; raises ``ArtifactError``, or ``OSError`` when it is gone."""
    table = read_table(path)
    digests = np.frombuffer(table.column("text_sha256").chunk(0).buffers()[1], np.uint8).reshape(-1, DIGEST_BYTES)
    vectors = table.column("vector").chunk(0)
    matrix = vectors.values.to_numpy().reshape(-1, vectors.type.list_size)
    return Segment(path, stamp, prefixes_of(digests), digests, matrix)


def merge_segments(folder: Path, segments: Sequence[Segment]) -> Path:
    """Write one segment with the rows of all and remove those; who has them open can go on reading."""
    path = write_segment(
        folder,
        np.concatenate([segment.digests for segment in segments]),
        np.concatenate([segment.vectors for segment in segments]),
    )
    for segment in segments:
        if segment.path != path:
            segment.path.unlink(missing_ok=True)
    return path
