"""Vectors that were made once are not made again: a cache on disk, shared by all configurations and runs.

A vector is kept by its embedder's name, its dimension and the sha256 of its text: a folder holds vectors of one name
and one dimension, and is refused to an embedder of the same name that knows of another. Vectors of questions are kept
apart, unless the embedder says (``symmetric``) that it embeds a question like any text.
"""

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.disk.arrow import read_table, write_table
from rag_eval.disk.files import SCRATCH_PREFIX, Stamp
from rag_eval.disk.locks import in_turn
from rag_eval.embedding.embedder import (
    Embedder,
    EmbedsAsReady,
    ReportsUsage,
    Usage,
    Vectors,
    check_embedder,
    check_texts,
    checked_vectors,
    embed_queries,
    is_remote,
    is_symmetric,
    known_dimension,
)
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.types.ids import encode_utf8, text_sha256

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


KEEP_EVERY = 1_024
EPOCH = datetime.fromtimestamp(0, UTC)


Make = Callable[[Sequence[str], Sequence[int]], Iterable[tuple[Sequence[int], Vectors]]]
"""Makes the vectors of the texts at some places, in batches of (places, vectors)."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Of the texts asked for: ``misses`` had to be embedded, ``hits`` (repeats among them too) had not."""

    hits: int = 0
    misses: int = 0

    @property
    def hit_rate(self) -> float:
        """hits / (hits + misses); 0 when nothing was asked for."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


class EmbeddingCache:
    """A folder of vectors that any number of threads and processes may use at once.

    Each embedder's vectors lie in a folder of their own. A file that was cut or altered is dropped, said in the log,
    and what it held is embedded again. Raises ``ConfigurationError`` when the folder is a file.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{str(self.folder)!r} is not a folder: give one for the embedding cache")
        self._collections: dict[str, SegmentFolder] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"EmbeddingCache({str(self.folder)!r})"

    def collection(self, embedder_name: str, *, queries: bool = False) -> SegmentFolder:
        """The vectors of texts, or of ``queries``, by the embedder of this name."""
        # Letters that every file system takes, for people; the digest keeps apart what they do not.
        readable = re.sub(r"[^a-z0-9.]+", "-", embedder_name.lower()).strip("-.")[:60]
        folder = f"{readable}-{text_sha256(embedder_name)[:16]}" + ("-queries" if queries else "")
        with self._lock:
            return self._collections.setdefault(folder, SegmentFolder(self.folder / folder))


class CachedEmbedder:
    """An embedder that embeds only texts it has not seen: same name, same dimension, same vectors.

    New vectors are kept in blocks of about ``keep_every`` while embedding goes on, so that a crash or an error loses
    at most one block. With ``made_since`` only vectors kept since then are used; others are made anew and replaced.
    Those of a ``remote`` embedder are made one call at a time, over all threads and processes of a machine, so that
    no text is paid for twice.
    Raises what the embedder raises; ``ConfigurationError`` when it gives the wrong number or size of vectors, or NaN,
    which are not kept; ``ArtifactError`` when its vectors differ in size from those kept.
    """

    def __init__(
        self,
        embedder: Embedder,
        cache: EmbeddingCache,
        *,
        keep_every: int = KEEP_EVERY,
        made_since: datetime | None = None,
    ) -> None:
        check_embedder(embedder)
        if keep_every < 1:
            raise ConfigurationError(f"keep_every is {keep_every}: give at least 1")
        self._embedder, self._cache, self._keep_every = embedder, cache, keep_every
        # Not by way of a float, which has not enough digits.
        self._since_ns = 0 if made_since is None else 1_000 * ((made_since - EPOCH) // timedelta(microseconds=1))
        self._counting = threading.Lock()
        self._statistics = CacheStatistics()
        self._calls = threading.local()

    def __repr__(self) -> str:
        return f"CachedEmbedder({self._embedder!r}, {self._cache!r})"

    @property
    def name(self) -> str:
        """The embedder's."""
        return self._embedder.name

    @property
    def dimension(self) -> int:
        """The embedder's; where it would have to find it out, that of the vectors that are kept."""
        return self.known_dimension or self._embedder.dimension

    @property
    def known_dimension(self) -> int | None:
        """The dimension, None where only the embedder could find it out."""
        return known_dimension(self._embedder) or self._cache.collection(self.name).dimension(self._since_ns)

    @property
    def folders(self) -> list[Path]:
        """Where its vectors are kept: those of texts and, unless it is symmetric, of questions."""
        kinds = [False] if self.symmetric else [False, True]
        return [self._cache.collection(self.name, queries=queries).folder for queries in kinds]

    @property
    def symmetric(self) -> bool:
        """The embedder's."""
        return is_symmetric(self._embedder)

    @property
    def usage(self) -> Usage:
        """The embedder's: what was found in the cache cost nothing."""
        if isinstance(self._embedder, ReportsUsage):
            return self._embedder.usage
        return Usage(requests=0, texts=self.statistics.misses, tokens=None, cost=None)

    @property
    def statistics(self) -> CacheStatistics:
        """Hits and misses of all calls so far."""
        with self._counting:
            return self._statistics

    @property
    def last_call(self) -> CacheStatistics:
        """Hits and misses of this thread's last call."""
        return getattr(self._calls, "last", CacheStatistics())

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, in their order; equal texts are embedded once."""
        return self._vectors(texts, self._cache.collection(self.name), self._make)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the questions, in their order."""
        if self.symmetric:
            return self.embed(texts)
        return self._vectors(texts, self._cache.collection(self.name, queries=True), self._make_queries)

    def _vectors(self, texts: Sequence[str], kept: SegmentFolder, make: Make) -> Vectors:
        check_texts(texts)
        if not texts:
            self._count(CacheStatistics())
            return self._embedder.embed([])
        digests = _digests(texts)
        found, vectors = self._find(digests, kept)
        with ExitStack() as turn:
            if is_remote(self._embedder) and not found.all():
                turn.enter_context(in_turn(kept.folder.with_name(f"{kept.folder.name}.lock")))
                found, vectors = self._find(digests, kept)  # somebody else may have made them meanwhile
            return self._completed(texts, digests, found, vectors, kept, make)

    def _find(self, digests: Digests, kept: SegmentFolder) -> tuple[NDArray[np.bool_], Vectors]:
        return kept.find(digests, known_dimension(self._embedder), self._since_ns)

    def _completed(
        self,
        texts: Sequence[str],
        digests: Digests,
        found: NDArray[np.bool_],
        vectors: Vectors,
        kept: SegmentFolder,
        make: Make,
    ) -> Vectors:
        """The vectors with those that were not found, which are made."""
        first: dict[bytes, int] = {}
        missing = np.flatnonzero(~found).tolist()
        sources = [first.setdefault(digests[place].tobytes(), place) for place in missing]
        places = list(first.values())
        self._count(CacheStatistics(hits=len(texts) - len(places), misses=len(places)))
        if places:
            new = self._made(texts, places, digests, kept, make)
            vectors = vectors if vectors.shape[1] == new.shape[1] else np.zeros((len(texts), new.shape[1]), np.float32)
            if self._since_ns:
                kept.retire(digests[places], self._since_ns)
            vectors[places] = new
            vectors[missing] = vectors[sources]
        return vectors

    def _made(
        self, texts: Sequence[str], places: list[int], digests: Digests, kept: SegmentFolder, make: Make
    ) -> Vectors:
        """The vectors of the texts at these places, kept block by block, also when an error ends the work."""
        rows = {place: row for row, place in enumerate(places)}
        vectors: Vectors | None = None
        ready: list[int] = []
        done: set[int] = set()
        try:
            for batch, given in make(texts, places):
                dimension = known_dimension(self._embedder) if vectors is None else vectors.shape[1]
                fresh = checked_vectors(given, len(batch), self.name, dimension)
                if vectors is None:
                    vectors = np.zeros((len(places), fresh.shape[1]), np.float32)
                vectors[[rows[place] for place in batch]] = fresh
                ready += batch
                done.update(batch)
                if len(ready) >= self._keep_every:
                    kept.add(digests[ready], vectors[[rows[place] for place in ready]], self._since_ns)
                    ready = []
        finally:
            if vectors is not None and ready:
                kept.add(digests[ready], vectors[[rows[place] for place in ready]], self._since_ns)
        if vectors is None or len(done) != len(places):
            raise ConfigurationError(f"the embedder {self.name} gave {len(done)} vectors for {len(places)} texts")
        return vectors

    def _make(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[Sequence[int], Vectors]]:
        if isinstance(self._embedder, EmbedsAsReady):
            yield from self._embedder.embed_as_ready(texts, places)
        else:
            for block in self._blocks(places):
                yield block, self._embedder.embed([texts[place] for place in block])

    def _make_queries(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[Sequence[int], Vectors]]:
        for block in self._blocks(places):
            yield block, embed_queries(self._embedder, [texts[place] for place in block])

    def _blocks(self, places: Sequence[int]) -> Iterator[Sequence[int]]:
        for begin in range(0, len(places), self._keep_every):
            yield places[begin : begin + self._keep_every]

    def _count(self, call: CacheStatistics) -> None:
        self._calls.last = call
        with self._counting:
            total = self._statistics
            self._statistics = CacheStatistics(total.hits + call.hits, total.misses + call.misses)
        logger.debug("embedding cache: %d hits, %d misses (%s)", call.hits, call.misses, self.name)


def _digests(texts: Sequence[str]) -> Digests:
    joined = b"".join([hashlib.sha256(encode_utf8(text, f"text {i}")).digest() for i, text in enumerate(texts)])
    return np.frombuffer(joined, np.uint8).reshape(-1, DIGEST_BYTES)
