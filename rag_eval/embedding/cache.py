"""Vectors that were made once are not made again: a cache on disk, shared by all configurations and runs.

A vector is kept by its embedder's name, its dimension and the sha256 of its text: a folder holds vectors of one name
and one dimension, and is refused to an embedder of the same name that knows of another. Vectors of questions are kept
apart, unless the embedder says (``symmetric``) that it embeds a question like any text.
"""

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import (
    Embedder,
    EmbedsAsReady,
    Vectors,
    check_embedder,
    embed_queries,
    is_remote,
    is_symmetric,
    known_dimension,
)
from rag_eval.embedding.checks import check_texts, checked_vectors
from rag_eval.embedding.segment_folder import SegmentFolder
from rag_eval.embedding.segments import DIGEST_BYTES, Digests
from rag_eval.embedding.usage import ReportsUsage, Usage
from rag_eval.errors import ConfigurationError
from rag_eval.file_locks import in_turn
from rag_eval.types.ids import encode_utf8, text_sha256

KEEP_EVERY = 1_024
EPOCH = datetime.fromtimestamp(0, UTC)

logger = logging.getLogger(__name__)

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
