"""Cache vectors on disk, shared by all configurations and runs, so that no text is embedded twice.

A vector is stored by its embedder's identity and the sha256 of its text: a folder holds vectors of one identity and one
dimension, and is refused to an embedder of the same identity that knows of another. Vectors of questions are stored
apart, unless the embedder says (``symmetric``) that it embeds a question like any text.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.embedding.embedder import (
    Embedder,
    ReportsUsage,
    Usage,
    Vectors,
    check_embedder,
    check_texts,
    checked_vectors,
    embed_queries,
    known_dimension,
)
from rag_eval.errors import ArtifactError, ConfigurationError, preview
from rag_eval.parts import digest, is_remote
from rag_eval.parts.objects import check_unchanged
from rag_eval.storage.bucket import Storage
from rag_eval.storage.rows import KEY, KeyedRows, Keys, RowFile, identity_folder, keys_from_hex, locate
from rag_eval.types.ids import text_sha256

T = TypeVar("T")

KEEP_EVERY = 1_024
"""How many new vectors of a local embedder a crash may lose; those of a remote one are stored as they come."""

UNKNOWN = -1
"""The number of tokens of a text that nobody counted."""

logger = logging.getLogger(__name__)

Tokens = NDArray[np.int32]


class VectorRows(KeyedRows):
    """Vectors by the sha256 of their text, and how many tokens it has; all of one folder have one dimension."""

    def __init__(self, folder: Path, storage: Storage | None = None, made_since: datetime | None = None) -> None:
        super().__init__(folder, pa.schema([("text_sha256", KEY)]), storage, made_since)

    def fits(self, schema: pa.Schema) -> bool:
        """Tell whether these are digests, vectors of whatever dimension, and numbers of tokens."""
        if schema.names != ["text_sha256", "vector", "tokens"]:
            return False
        key, vector, tokens = schema.types
        is_vector = pa.types.is_fixed_size_list(vector) and vector.value_type == pa.float32()
        return bool(key == KEY and is_vector and tokens == pa.int32())

    def sized(self, dimension: int | None = None) -> tuple[list[RowFile], int | None]:
        """Return the files, and how many numbers their vectors have; None when there are none.

        Raises ``ArtifactError`` when they differ in that, from each other or from the ``dimension`` asked for.
        """
        files = self.files()
        sizes = sorted({_dimension(file) for file in files})
        if sizes and len({*sizes, dimension or sizes[0]}) > 1:
            raise ArtifactError(
                f"the embedding cache {str(self.folder)!r} is for one model, but met vectors of {sizes[0]} and of "
                f"{sizes[1] if len(sizes) > 1 else dimension} numbers: give embedders of different models different "
                "names, or remove the folder when the model was replaced"
            )
        return files, sizes[0] if sizes else None

    def find(self, digests: Keys, dimension: int | None = None) -> tuple[NDArray[np.bool_], Vectors, Tokens]:
        """Return which digests are cached, their vectors and how many tokens each has.

        Vectors of others are zeros. Raises ``ArtifactError`` when the cached vectors are of another dimension.
        """
        files, size = self.sized(dimension)
        found, vectors = np.zeros(len(digests), bool), np.zeros((len(digests), size or 0), np.float32)
        tokens = np.full(len(digests), UNKNOWN, np.int32)
        for file, places, rows in locate(digests, files):
            vectors[places] = file.table.column("vector").chunk(0).values.to_numpy().reshape(len(file), -1)[rows]
            tokens[places] = file.table.column("tokens").to_numpy()[rows]
            found[places] = True
        return found, vectors, tokens

    def keep(self, digests: Keys, vectors: Vectors, tokens: Tokens | None = None) -> None:
        """Store vectors; where the disk cannot be written, the log says so, because the vectors are worth more.

        Older vectors of another size are of a model that was replaced, and are removed. Raises ``ArtifactError`` when
        others are of another size.
        """
        self.sized(vectors.shape[1])
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        counts = np.full(len(digests), UNKNOWN, np.int32) if tokens is None else tokens
        try:
            for file in self.all_files():
                if _dimension(file) != vectors.shape[1]:
                    self.remove(file.path)
            self.add(digests, pa.table({"vector": column, "tokens": pa.array(counts, pa.int32())}))
        except (OSError, ArtifactError) as error:
            logger.warning("%d vectors could not be kept in %s: %s", len(digests), self.folder, error)


def _dimension(file: RowFile) -> int:
    return int(file.table.schema.field("vector").type.list_size)


Make = Callable[[Sequence[str], Sequence[int]], Iterable[Sequence[Any]]]
"""Embeds the texts at some places, in batches of (places, vectors), maybe with the tokens of each."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Of the texts asked for: ``misses`` had to be embedded, ``hits`` (repeats among them too) had not."""

    hits: int = 0
    misses: int = 0


class EmbeddingCache:
    """A folder of vectors that any number of threads and processes may use at once.

    The vectors of each embedder are in a folder of their own. A damaged file is removed, which the log says, and what
    it held is embedded again. Raises ``ConfigurationError`` when the folder is a file.
    """

    def __init__(self, folder: str | Path, storage: Storage | None = None) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{str(self.folder)!r} is not a folder: give one for the embedding cache")
        self._storage = storage

    def __repr__(self) -> str:
        return f"EmbeddingCache({str(self.folder)!r})"

    def rows(
        self, identity: str, label: str, *, queries: bool = False, made_since: datetime | None = None
    ) -> VectorRows:
        """Return the vectors of texts, or of ``queries``, by the embedder of this identity."""
        folder = identity_folder(self.folder, identity, label)
        folder = folder.with_name(f"{folder.name}-queries") if queries else folder
        return VectorRows(folder, self._storage, made_since)


class CachedEmbedder:
    """An embedder that embeds only texts it has not seen: same name, same dimension, same vectors.

    New vectors are stored in blocks of about ``keep_every`` while embedding goes on, so that a crash or an error loses
    at most one block. With ``made_since`` only vectors stored since then are used; others are embedded again.
    Those of a ``remote`` embedder are stored as they come, and embedded one call at a time, over all threads and
    processes that share the cache, so that no text is paid for twice. What tells its vectors from all others is its
    identity, which of an embedder that is not a part is its ``identity`` or its ``name``: that must hold every setting
    that changes them. Raises what the embedder raises; ``ConfigurationError`` when it gives the wrong number or size
    of vectors, or NaN, which are not stored; ``ArtifactError`` when its vectors differ in size from those stored.
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
        self._embedder, self._cache, self._keep_every, self._made_since = embedder, cache, keep_every, made_since
        self.name = embedder.name
        """The embedder's."""
        self._counting = threading.Lock()
        self.statistics = CacheStatistics()
        """Hits and misses of all calls so far."""
        self._cached_tokens: int | None = 0
        self.symmetric = getattr(embedder, "symmetric", False) is True
        """The embedder's."""

    def __repr__(self) -> str:
        return f"CachedEmbedder({self._embedder!r}, {self._cache!r})"

    @cached_property
    def _rows(self) -> VectorRows:
        """The vectors of texts."""
        return self._cache.rows(digest(self._embedder), self.name, made_since=self._made_since)

    @cached_property
    def _query_rows(self) -> VectorRows:
        """The vectors of questions."""
        if self.symmetric:
            return self._rows
        return self._cache.rows(digest(self._embedder), self.name, queries=True, made_since=self._made_since)

    @property
    def dimension(self) -> int:
        """The embedder's; where it would have to find it out, that of the vectors that are cached."""
        return self.known_dimension or self._embedder.dimension

    @property
    def known_dimension(self) -> int | None:
        """The dimension, None where only the embedder could find it out."""
        return known_dimension(self._embedder) or self._rows.sized()[1]

    @property
    def folders(self) -> list[Path]:
        """Where its vectors are stored: those of texts and, unless it is symmetric, of questions."""
        return list(dict.fromkeys((self._rows.folder, self._query_rows.folder)))

    @property
    def usage(self) -> Usage:
        """The embedder's: what was found in the cache cost nothing."""
        if isinstance(self._embedder, ReportsUsage):
            return self._embedder.usage
        return Usage(requests=0, texts=self.statistics.misses, tokens=None, cost=None)

    @property
    def tokens_read(self) -> int | None:
        """The tokens of all texts asked for, of each call the distinct ones once, embedded now or found in the cache.

        So it is the same number whatever was cached; None where the embedder cannot count.
        """
        fresh = self.usage.tokens
        return None if fresh is None or self._cached_tokens is None else fresh + self._cached_tokens

    def lacking(self, texts: Mapping[str, T]) -> dict[str, T]:
        """Return those of the texts, given by their sha256, that would have to be embedded."""
        digests, found = list(texts), np.zeros(len(texts), bool)
        for _, places, _ in locate(keys_from_hex(digests), self._rows.files()):
            found[places] = True
        return {digests[place]: texts[digests[place]] for place in np.flatnonzero(~found).tolist()}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order; equal texts are embedded once."""
        return self._vectors(texts, self._rows, self._make_texts())

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the questions, in their order."""
        make = partial(self._in_blocks, partial(embed_queries, self._embedder))
        return self._vectors(texts, self._query_rows, self._make_texts() if self.symmetric else make, "queries")

    def _make_texts(self) -> Make:
        # Whoever writes another embed over that of a class means every way to embed.
        for kind in type(self._embedder).__mro__:
            if "embed_as_ready" in vars(kind):
                make: Make = self._embedder.embed_as_ready  # type: ignore[attr-defined]  # optional
                return make
            if "embed" in vars(kind):
                break
        return partial(self._in_blocks, self._embedder.embed)

    def _vectors(self, texts: Sequence[str], rows: VectorRows, make: Make, lock: str | None = None) -> Vectors:
        """Return the vectors of the texts: those cached, and with ``make`` the others, each distinct text once.

        What has a ``lock``, as all that a remote embedder is asked, is embedded by one caller at a time.
        """
        check_texts(texts)
        if not texts:
            return self._embedder.embed([])
        digests = keys_from_hex([text_sha256(text) for text in texts])
        found, vectors, tokens = rows.find(digests, known_dimension(self._embedder))
        with ExitStack() as stack:
            is_paid = is_remote(self._embedder)
            if (is_paid or lock) and not found.all():
                stack.enter_context(rows.locked("" if is_paid else lock or ""))
                found, vectors, tokens = rows.find(digests, known_dimension(self._embedder))
            first: dict[bytes, int] = {}
            missing = np.flatnonzero(~found).tolist()
            sources = [first.setdefault(digests[place].tobytes(), place) for place in missing]
            places = list(first.values())
            self._count(texts, np.flatnonzero(found).tolist(), tokens, len(places))
            if places:
                new = self._embed_missing(texts, places, digests, rows, make)
                if vectors.shape[1] != new.shape[1]:
                    vectors = np.zeros((len(texts), new.shape[1]), np.float32)
                vectors[places] = new
                vectors[missing] = vectors[sources]
        return vectors

    def _count(self, texts: Sequence[str], cached: Sequence[int], tokens: Tokens, misses: int) -> None:
        """Count the hits and the misses of a call, and the tokens of the texts at the cached places."""
        distinct = list({texts[place]: place for place in cached}.values())
        counts = self._counted(texts, distinct, tokens[distinct])
        hits = len(texts) - misses
        with self._counting:
            before = self._cached_tokens
            self._cached_tokens = None if before is None or counts is None else before + int(counts.sum())
            self.statistics = CacheStatistics(self.statistics.hits + hits, self.statistics.misses + misses)
        logger.debug("embedding cache: %d hits, %d misses (%s)", hits, misses, self.name)

    def _counted(self, texts: Sequence[str], places: Sequence[int], known: Tokens) -> Tokens | None:
        """Return how many tokens the texts at these places have, unknown ones counted; None where none can be."""
        count = getattr(self._embedder, "count_tokens", None)
        unknown = np.flatnonzero(known == UNKNOWN)
        if len(unknown):
            uncounted = [texts[places[row]] for row in unknown.tolist()]
            counts = None if count is None else count(uncounted)
            if counts is None:
                return None
            if np.shape(counts) != (len(uncounted),):
                raise ConfigurationError(
                    f"count_tokens of the embedder {self.name} gave {preview(repr(counts))} for {len(uncounted)} "
                    "texts: have it give one number for each"
                )
            known = known.copy()
            known[unknown] = counts
        return known

    def _embed_missing(
        self, texts: Sequence[str], places: list[int], digests: Keys, kept: VectorRows, make: Make
    ) -> Vectors:
        """Return the vectors of the texts at these places, stored block by block, also when an error ends it."""
        rows = {place: row for row, place in enumerate(places)}
        vectors: Vectors | None = None
        tokens = np.full(len(places), UNKNOWN, np.int32)
        ready: list[int] = []
        done: set[int] = set()

        def store() -> None:
            if vectors is None or not ready:
                return
            check_unchanged(self._embedder)
            block, here, counts = ready.copy(), [rows[place] for place in ready], None
            ready.clear()
            try:
                counts = self._counted(texts, block, tokens[here])
            finally:  # what was paid for is stored, whatever counting raises
                kept.keep(digests[block], vectors[here], counts)

        try:
            for batch, given, *counts in make(texts, places):
                dimension = known_dimension(self._embedder) if vectors is None else vectors.shape[1]
                fresh = checked_vectors(given, len(batch), self.name, dimension)
                if vectors is None:
                    vectors = np.zeros((len(places), fresh.shape[1]), np.float32)
                here = [rows[place] for place in batch]
                vectors[here] = fresh
                if counts:
                    tokens[here] = counts[0]
                ready += batch
                done.update(batch)
                if len(ready) >= self._keep_every or is_remote(self._embedder):
                    store()
        finally:
            store()
        if vectors is None or len(done) != len(places):
            raise ConfigurationError(f"the embedder {self.name} gave {len(done)} vectors for {len(places)} texts")
        return vectors

    def _in_blocks(
        self, embed: Callable[[list[str]], Vectors], texts: Sequence[str], places: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Vectors]]:
        for begin in range(0, len(places), self._keep_every):
            block = places[begin : begin + self._keep_every]
            yield block, embed([texts[place] for place in block])
