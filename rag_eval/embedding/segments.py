"""Files of an embedding cache: each holds some texts' digests, sorted, with their vectors, and never changes.

A segment is one of ``arrow_files``, of one record batch. Equal rows in two segments are harmless.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.arrow_files import read_table, write_table
from rag_eval.digests import Stamp
from rag_eval.embedding.base import Vectors

Digests = NDArray[np.uint8]
"""sha256 digests, one a row of 32 bytes."""

DIGEST_BYTES = 32
SEGMENT_NAME = re.compile(r"[0-9a-f]{64}\.arrow")


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

    @property
    def made_ns(self) -> int:
        """When the vectors were made, in nanoseconds; of some of them it may be later."""
        return self.stamp[2]

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


def write_segment(folder: Path, digests: Digests, vectors: Vectors, made_ns: int | None = None) -> Path:
    """Keep the rows, each digest once (its first vector), as made now or at ``made_ns``, and give back the file."""
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
    # By this machine's clock: the one that files are stamped with lags behind it, and on a network drive is another.
    return write_table(folder, table, time.time_ns() if made_ns is None else made_ns)


def open_segment(path: Path, stamp: Stamp) -> Segment:
    """The segment, checked against its name; raises ``ArtifactError``, or ``OSError`` when it is gone."""
    table = read_table(path)
    digests = np.frombuffer(table.column("text_sha256").chunk(0).buffers()[1], np.uint8).reshape(-1, DIGEST_BYTES)
    vectors = table.column("vector").chunk(0)
    matrix = vectors.values.to_numpy().reshape(-1, vectors.type.list_size)
    return Segment(path, stamp, prefixes_of(digests), digests, matrix)


def merge_segments(folder: Path, segments: Sequence[Segment]) -> Path:
    """Write one segment with the rows of all and remove those; who has them open can go on reading.

    Of equal digests the newest vector stays. The segment is as old as the oldest of them, so that none seems newer.
    """
    newest_first = sorted(segments, key=lambda segment: -segment.made_ns)
    path = write_segment(
        folder,
        np.concatenate([segment.digests for segment in newest_first]),
        np.concatenate([segment.vectors for segment in newest_first]),
        newest_first[-1].made_ns,
    )
    for segment in segments:
        if segment.path != path:
            segment.path.unlink(missing_ok=True)
    return path


def thin_segment(folder: Path, segment: Segment, digests: Digests) -> None:
    """Leave only the rows of other digests in the folder, as old as they were."""
    rows = segment.find(prefixes_of(digests), digests)
    kept = np.ones(len(segment), bool)
    kept[rows[rows >= 0]] = False
    if kept.all():
        return
    if kept.any():
        write_segment(folder, segment.digests[kept], segment.vectors[kept], segment.made_ns)
    segment.path.unlink(missing_ok=True)
