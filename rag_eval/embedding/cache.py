"""Cache vectors on disk, shared by all configurations and runs, so that no text is embedded twice.

A vector is stored by its embedder's identity and the sha256 of its text: a folder has vectors of one identity and one
dimension. Vectors of questions are stored separately, unless the embedder is ``symmetric``.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.embedding.embedder import (
    BatchEmbedder,
    EmbeddedBatch,
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

BLOCK = 1_024
"""How many new vectors of a local embedder are stored at once. Those of a remote one are stored as they arrive."""

UNKNOWN = -1
"""Number of tokens of a text that was not counted."""

logger = logging.getLogger(__name__)

Tokens = NDArray[np.int32]
Batches = Callable[[Sequence[str]], Iterable[EmbeddedBatch]]
"""Embeds texts and yields batches as they are ready."""


class VectorRows(KeyedRows):
    """Vectors and numbers of tokens by the sha256 of their text; all of a folder have one dimension."""

    def __init__(self, folder: Path, storage: Storage | None = None, made_since: datetime | None = None) -> None:
        super().__init__(folder, pa.schema([("text_sha256", KEY)]), storage, made_since)

    def fits(self, schema: pa.Schema) -> bool:
        """Return whether the columns are digests, vectors of any dimension, and numbers of tokens."""
        if schema.names != ["text_sha256", "vector", "tokens"]:
            return False
        key, vector, tokens = schema.types
        is_vector = pa.types.is_fixed_size_list(vector) and vector.value_type == pa.float32()
        return bool(key == KEY and is_vector and tokens == pa.int32())

    def sized(self, dimension: int | None = None) -> tuple[list[RowFile], int | None]:
        """Return the files and their dimension, None without files.

        Raises ``ArtifactError`` if the dimensions differ, from each other or from ``dimension``.
        """
        files = self.files()
        sizes = sorted({_dimension(file) for file in files})
        if sizes and len({*sizes, dimension or sizes[0]}) > 1:
            raise ArtifactError(
                f"the embedding cache {str(self.folder)!r} is for one model, but has vectors of {sizes[0]} and of "
                f"{sizes[1] if len(sizes) > 1 else dimension} numbers: give embedders of different models different "
                "names, or remove the folder if the model was replaced"
            )
        return files, sizes[0] if sizes else None

    def find(self, digests: Keys, dimension: int | None = None) -> tuple[NDArray[np.bool_], Vectors, Tokens]:
        """Return which digests are cached, their vectors (zeros if not) and numbers of tokens.

        Raises ``ArtifactError`` if the cached vectors have another dimension.
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
        """Store vectors, and remove older ones with another dimension, which belong to a replaced model.

        If the disk cannot be written, this is logged and the run continues. Raises ``ArtifactError`` if vectors that
        are in use have another dimension.
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
            logger.warning("%d vectors could not be cached in %s: %s", len(digests), self.folder, error)


def _dimension(file: RowFile) -> int:
    return int(file.table.schema.field("vector").type.list_size)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Of the requested texts, ``misses`` were embedded and ``hits`` (including repeats) were not."""

    hits: int = 0
    misses: int = 0


class CachedEmbedder:
    """Wraps an embedder, and embeds only texts whose vectors are not in a folder.

    The name, the dimension and the vectors are those of the embedder. New vectors are stored in blocks while embedding
    continues, so that a crash loses one block at most. Vectors of a ``remote`` embedder are stored as they arrive, and
    only one of the threads and processes that share the cache embeds at a time, so that no text is paid for twice. With
    ``made_since``, vectors cached earlier are embedded again. The cache key is the embedder's ``identity`` or ``name``,
    which must contain every setting that changes vectors.

    Raises what the embedder raises; ``ConfigurationError`` if it returns the wrong number or size of vectors, or NaN;
    ``ArtifactError`` if its vectors differ in size from those cached.

    >>> embedder = CachedEmbedder(LocalEmbedder(), "vectors")  # doctest: +SKIP
    """

    def __init__(
        self,
        embedder: Embedder,
        folder: str | Path,
        storage: Storage | None = None,
        made_since: datetime | None = None,
    ) -> None:
        check_embedder(embedder)
        if Path(folder).exists() and not Path(folder).is_dir():
            raise ConfigurationError(f"{str(folder)!r} is not a folder: give one for the embedding cache")
        self._embedder = embedder
        self.name = embedder.name
        """The name of the wrapped embedder."""
        self.symmetric = getattr(embedder, "symmetric", False) is True
        """Whether the wrapped embedder is symmetric."""
        self.statistics = CacheStatistics()
        """Hits and misses of all calls so far."""
        self._counting = threading.Lock()
        self._cached_tokens: int | None = 0
        texts = identity_folder(Path(folder), digest(embedder), self.name)
        self._rows = self._query_rows = VectorRows(texts, storage, made_since)
        if not self.symmetric:
            self._query_rows = VectorRows(texts.with_name(f"{texts.name}-queries"), storage, made_since)

    @property
    def dimension(self) -> int:
        """The dimension of the embedder, or of the cached vectors if the embedder does not know it yet."""
        return self.known_dimension or self._embedder.dimension

    @property
    def known_dimension(self) -> int | None:
        """The dimension; None if the embedder would call a service or load a model for it."""
        return known_dimension(self._embedder) or self._rows.sized()[1]

    @property
    def folders(self) -> list[Path]:
        """The folders of the vectors of texts and, unless the embedder is symmetric, of questions."""
        return list(dict.fromkeys((self._rows.folder, self._query_rows.folder)))

    @property
    def usage(self) -> Usage:
        """The usage of the embedder. Cached vectors cost nothing."""
        if isinstance(self._embedder, ReportsUsage):
            return self._embedder.usage
        return Usage(requests=0, texts=self.statistics.misses, tokens=None, cost=None)

    @property
    def tokens_read(self) -> int | None:
        """The tokens of the distinct texts of each call, embedded or cached; None if the embedder cannot count.

        The number does not depend on what was cached.
        """
        fresh = self.usage.tokens
        return None if fresh is None or self._cached_tokens is None else fresh + self._cached_tokens

    def lacking(self, texts: Mapping[str, T]) -> dict[str, T]:
        """Return the texts, given by their sha256, that are not cached."""
        digests, found = list(texts), np.zeros(len(texts), bool)
        for _, places, _ in locate(keys_from_hex(digests), self._rows.files()):
            found[places] = True
        return {digests[place]: texts[digests[place]] for place in np.flatnonzero(~found).tolist()}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order; equal texts are embedded once."""
        return self._vectors(texts, self._rows, self._batches)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the questions, in their order."""
        batches = self._batches if self.symmetric else partial(_in_blocks, partial(embed_queries, self._embedder))
        return self._vectors(texts, self._query_rows, batches, "queries")

    def _batches(self, texts: Sequence[str]) -> Iterable[EmbeddedBatch]:
        embedder = self._embedder
        if isinstance(embedder, BatchEmbedder) and embedder.has_batches:
            return embedder.embed_as_ready(texts)
        return _in_blocks(embedder.embed, texts)

    def _vectors(self, texts: Sequence[str], rows: VectorRows, batches: Batches, lock: str | None = None) -> Vectors:
        """Return cached vectors, and embed the remaining texts, each distinct text once.

        With a ``lock``, and always with a remote embedder, one caller embeds at a time.
        """
        check_texts(texts)
        if not texts:
            return self._embedder.embed([])
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        digests = keys_from_hex([text_sha256(text) for text in numbers])
        lock = "" if is_remote(self._embedder) else lock
        with ExitStack() as stack:
            found, vectors, tokens = rows.find(digests, known_dimension(self._embedder))
            if lock is not None and not found.all():
                stack.enter_context(rows.locked(lock))
                found, vectors, tokens = rows.find(digests, known_dimension(self._embedder))
            distinct, missing = np.array(list(numbers), object), np.flatnonzero(~found)
            self._count(len(texts), len(missing), self._tokens(distinct[found].tolist(), tokens[found]))
            if len(missing):
                fresh = self._embed_missing(distinct[missing].tolist(), digests[missing], rows, batches)
                if vectors.shape[1] != fresh.shape[1]:
                    vectors = np.zeros((len(distinct), fresh.shape[1]), np.float32)
                vectors[missing] = fresh
        by_text: Vectors = vectors[[numbers[text] for text in texts]]
        return by_text

    def _count(self, texts: int, misses: int, tokens: Tokens | None) -> None:
        """Record hits and misses, and the tokens of cached texts."""
        with self._counting:
            before = self._cached_tokens
            self._cached_tokens = None if before is None or tokens is None else before + int(tokens.sum())
            hits = self.statistics.hits + texts - misses
            self.statistics = CacheStatistics(hits, self.statistics.misses + misses)
        logger.debug("embedding cache: %d hits, %d misses (%s)", texts - misses, misses, self.name)

    def _tokens(self, texts: Sequence[str], known: Tokens) -> Tokens | None:
        """Return the number of tokens of each text, counting the unknown ones; None if they cannot be counted."""
        unknown = np.flatnonzero(known == UNKNOWN)
        if not len(unknown):
            return known
        uncounted = [texts[row] for row in unknown.tolist()]
        count = getattr(self._embedder, "count_tokens", None)
        counts: Sequence[int] | None = count(uncounted) if count else None
        if counts is None:
            return None
        if np.shape(counts) != (len(uncounted),):
            raise ConfigurationError(
                f"count_tokens of the embedder {self.name} returned {preview(repr(counts))} for {len(uncounted)} "
                "texts: return one number for each"
            )
        counted = known.copy()
        counted[unknown] = counts
        return counted

    def _embed_missing(self, texts: Sequence[str], digests: Keys, rows: VectorRows, batches: Batches) -> Vectors:
        """Embed the texts and store their vectors block by block, even if an error interrupts it."""
        vectors: Vectors | None = None
        tokens, is_done = np.full(len(texts), UNKNOWN, np.int32), np.zeros(len(texts), bool)
        unsaved: list[int] = []
        block = 1 if is_remote(self._embedder) else BLOCK
        try:
            for batch in batches(texts):
                dimension = known_dimension(self._embedder) if vectors is None else vectors.shape[1]
                fresh = checked_vectors(batch.vectors, len(batch.places), self.name, dimension)
                if vectors is None:
                    vectors = np.zeros((len(texts), fresh.shape[1]), np.float32)
                vectors[batch.places], is_done[batch.places] = fresh, True
                if batch.tokens is not None:
                    tokens[batch.places] = batch.tokens
                unsaved += batch.places
                if len(unsaved) >= block:
                    places, unsaved = unsaved, []  # first: after an error they are not stored again
                    self._keep(places, texts, digests, vectors, tokens, rows)
        finally:
            if vectors is not None and unsaved:
                self._keep(unsaved, texts, digests, vectors, tokens, rows)
        if vectors is None or not is_done.all():
            raise ConfigurationError(f"the embedder {self.name} gave {is_done.sum()} vectors for {len(texts)} texts")
        return vectors

    def _keep(
        self,
        places: Sequence[int],
        texts: Sequence[str],
        digests: Keys,
        vectors: Vectors,
        tokens: Tokens,
        rows: VectorRows,
    ) -> None:
        """Store the vectors of the texts at these places with their numbers of tokens, counting the unknown ones."""
        check_unchanged(self._embedder)
        counts = None
        try:
            counts = self._tokens([texts[place] for place in places], tokens[places])
        finally:  # store paid vectors even if counting raises
            rows.keep(digests[places], vectors[places], counts)


def _in_blocks(embed: Callable[[list[str]], Vectors], texts: Sequence[str]) -> Iterable[EmbeddedBatch]:
    for begin in range(0, len(texts), BLOCK):
        block = list(texts[begin : begin + BLOCK])
        yield EmbeddedBatch(range(begin, begin + len(block)), embed(block))
