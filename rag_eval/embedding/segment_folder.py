"""All kept vectors of one model: a folder of segments that many threads and processes read and add to at once.

Nobody waits for anybody: segments are added by renaming, small ones are merged into new ones, and whoever finds a
segment gone looks again. What a crash leaves behind is a scratch file, which is removed when it is a day old.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_eval.digests import Stamp
from rag_eval.embedding.base import Vectors
from rag_eval.embedding.segments import (
    SEGMENT_NAME,
    Digests,
    Segment,
    merge_segments,
    open_segment,
    prefixes_of,
    thin_segment,
    write_segment,
)
from rag_eval.errors import ArtifactError
from rag_eval.files import SCRATCH_PREFIX

MAX_SMALL_SEGMENTS = 16
FULL_SEGMENT_BYTES = 128 * 2**20  # as large as this, a segment is not merged any more
MAX_LISTINGS = 20
SCRATCH_SECONDS = 24 * 60 * 60

logger = logging.getLogger(__name__)


class SegmentFolder:
    """Vectors by the sha256 of their text; every segment is checked when it is first read and when it has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()  # guards this object, not the folder
        self._open: dict[str, Segment] = {}
        self._refused: dict[str, Stamp] = {}

    def dimension(self, since_ns: int = 0) -> int | None:
        """How many numbers the vectors have that were made since then; None when there are none."""
        return _dimension(self.folder, self._made_since(since_ns))

    def find(
        self, digests: Digests, dimension: int | None = None, since_ns: int = 0
    ) -> tuple[NDArray[np.bool_], Vectors]:
        """Which digests were made since then and kept, and an array with their vectors, zeros elsewhere.

        Raises ``ArtifactError`` when a dimension is asked for and the kept vectors are of another.
        """
        segments = self._made_since(since_ns)
        kept = _dimension(self.folder, segments)
        if kept is not None and dimension not in (None, kept):
            raise ArtifactError(_two_sizes(self.folder, kept, dimension))
        vectors = np.zeros((len(digests), kept or 0), np.float32)
        prefixes = prefixes_of(digests)
        missing = np.argsort(prefixes)  # in the order of the files, so that they are read from front to back
        for segment in segments:
            rows = segment.find(prefixes[missing], digests[missing])
            here = rows >= 0
            vectors[missing[here]] = segment.vectors[rows[here]]
            missing = missing[~here]
        found = np.ones(len(digests), bool)
        found[missing] = False
        return found, vectors

    def add(self, digests: Digests, vectors: Vectors, since_ns: int = 0) -> None:
        """Keep vectors; a disk that cannot be written is said in the log, because the vectors are worth more.

        Vectors of another size that were made before ``since_ns`` are of a model that was replaced, and go. Raises
        ``ArtifactError`` when later ones are of another size.
        """
        if not len(digests):
            return
        kept = self.dimension(since_ns)
        if kept is not None and kept != vectors.shape[1]:
            raise ArtifactError(_two_sizes(self.folder, kept, vectors.shape[1]))
        try:
            for segment in self._segments():
                if segment.vectors.shape[1] != vectors.shape[1]:
                    segment.path.unlink(missing_ok=True)
            write_segment(self.folder, digests, vectors)
        except (OSError, ArtifactError) as error:
            logger.warning("%d vectors could not be kept in %s: %s", len(digests), self.folder, error)
            return
        # New vectors are not mixed with those that are about to be retired.
        self._tidy(lambda: self._merge_small_segments(since_ns))

    def retire(self, digests: Digests, since_ns: int) -> None:
        """Remove the vectors of these digests that were made before then; what stays for a crash does no harm."""
        self._tidy(lambda: self._thin(digests, since_ns))

    def _tidy(self, work: Callable[[], None]) -> None:
        try:
            self._remove_old_scratch()
            work()
        except (OSError, ArtifactError) as error:
            logger.warning("%s could not be tidied: %s", self.folder, error)

    def _thin(self, digests: Digests, since_ns: int) -> None:
        for segment in self._segments():
            if segment.made_ns < since_ns:
                thin_segment(self.folder, segment, digests)

    def _made_since(self, since_ns: int) -> list[Segment]:
        return [segment for segment in self._segments() if segment.made_ns >= since_ns]

    def _remove_old_scratch(self) -> None:
        for path in self.folder.glob(f"{SCRATCH_PREFIX}*"):
            with suppress(FileNotFoundError):  # its writer has renamed it since
                if time.time() - path.stat().st_mtime > SCRATCH_SECONDS:
                    path.unlink()

    def _merge_small_segments(self, since_ns: int) -> None:
        """Merge once there are many, each row again only when its segment has grown severalfold."""
        small = [segment for segment in self._made_since(since_ns) if segment.vectors.nbytes < FULL_SEGMENT_BYTES]
        if len(small) <= MAX_SMALL_SEGMENTS:
            return
        chosen: list[Segment] = []
        rows = size = 0
        for segment in sorted(small, key=len):
            if len(chosen) >= 2 and (len(segment) > 2 * rows or size >= FULL_SEGMENT_BYTES):
                break
            chosen.append(segment)
            rows, size = rows + len(segment), size + segment.vectors.nbytes
        merge_segments(self.folder, chosen)

    def _segments(self) -> list[Segment]:
        """The segments as they are now on disk, the largest first."""
        with self._lock:
            for _ in range(MAX_LISTINGS):
                try:
                    self._open = self._reopened()
                    break
                except FileNotFoundError:
                    continue  # merged into another by someone else since it was listed
            return sorted(self._open.values(), key=lambda segment: (-len(segment), segment.path))

    def _reopened(self) -> dict[str, Segment]:
        try:
            with os.scandir(self.folder) as listing:
                entries = [entry for entry in listing if SEGMENT_NAME.fullmatch(entry.name)]
        except FileNotFoundError:
            return {}
        segments = {}
        for entry in entries:
            status = entry.stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            known = self._open.get(entry.name)
            if known is not None and known.stamp == stamp:
                segments[entry.name] = known
            elif self._refused.get(entry.name) != stamp:
                opened = self._opened(Path(entry.path), stamp)
                if opened is not None:
                    segments[entry.name] = opened
        return segments

    def _opened(self, path: Path, stamp: Stamp) -> Segment | None:
        try:
            return open_segment(path, stamp)
        except FileNotFoundError:
            raise
        except ArtifactError as error:
            logger.warning("%s was cut or altered (%s): it is dropped, and its texts are embedded again", path, error)
            try:
                path.unlink(missing_ok=True)
            except OSError:
                self._refused[path.name] = stamp  # a folder that is read-only
        except OSError as error:
            logger.warning("%s cannot be read (%s): its texts are embedded again", path, error)
            self._refused[path.name] = stamp
        return None


def _dimension(folder: Path, segments: list[Segment]) -> int | None:
    sizes = sorted({segment.vectors.shape[1] for segment in segments})
    if len(sizes) > 1:
        raise ArtifactError(_two_sizes(folder, sizes[0], sizes[1]))
    return sizes[0] if sizes else None


def _two_sizes(folder: Path, one: int, other: int | None) -> str:
    return (
        f"the embedding cache {str(folder)!r} is for one model, but met vectors of {one} and of {other} numbers: "
        "give embedders of different models different names, or remove the folder when the model was replaced"
    )
