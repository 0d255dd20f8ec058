"""Vectors that were made once are not made again: a cache on disk, shared by all configurations and runs.

A vector is kept by its embedder's identity and the sha256 of its text: a folder holds vectors of one identity and one
dimension, and is refused to an embedder of the same identity that knows of another. Vectors of questions are kept
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
from rag_eval.storage.rows import KEY, KeyedRows, Keys, RowFile, identity_folder, keys_from_hex, locate, nanoseconds
from rag_eval.types.ids import text_sha256

T = TypeVar("T")

KEEP_EVERY = 1_024
"""How many new vectors of a local embedder may be lost by a crash; those of a remote one are kept as they come."""

logger = logging.getLogger(__name__)


Tokens = NDArray[np.int32]


class VectorRows(KeyedRows):
    """Vectors by the sha256 of their text, and how many tokens it has; all of one folder have one dimension."""

    def __init__(self, folder: Path, storage: Storage | None = None) -> None:
        super().__init__(folder, pa.schema([("text_sha256", KEY)]), storage)

    def fits(self, schema: pa.Schema) -> bool:
        """Tell whether these are digests and vectors, of whatever dimension, and tokens where they were counted."""
        if schema.names != ["text_sha256", "vector", "tokens"][: max(2, len(schema))]:
            return False
        kind = schema.field("vector").type
        is_vector = pa.types.is_fixed_size_list(kind) and kind.value_type == pa.float32()
        is_counted = len(schema) == 2 or schema.field("tokens").type == pa.int32()
        return bool(is_vector and is_counted and schema.field("text_sha256").type == KEY)

    def sized(self, since_ns: int = 0, dimension: int | None = None) -> tuple[list[RowFile], int | None]:
        """Return the files made since then, and how many numbers their vectors have; None when there are none.

        Raises ``ArtifactError`` when they differ in that, from each other or from the ``dimension`` asked for.
        """
        files = self.files(since_ns)
        sizes = sorted({file.table.schema.field("vector").type.list_size for file in files})
        if sizes and len({*sizes, dimension or sizes[0]}) > 1:
            raise ArtifactError(
                f"the embedding cache {str(self.folder)!r} is for one model, but met vectors of {sizes[0]} and of "
                f"{sizes[1] if len(sizes) > 1 else dimension} numbers: give embedders of different models different "
                "names, or remove the folder when the model was replaced"
            )
        return files, sizes[0] if sizes else None

    def find(
        self, digests: Keys, dimension: int | None = None, since_ns: int = 0
    ) -> tuple[NDArray[np.bool_], Vectors, Tokens]:
        """Return which digests were made since then and kept, their vectors and how many tokens each has.

        Vectors of others are zeros; tokens that nobody counted are -1. Raises ``ArtifactError`` when a dimension is
        asked for and the kept vectors are of another.
        """
        files, size = self.sized(since_ns, dimension)
        found, vectors = np.zeros(len(digests), bool), np.zeros((len(digests), size or 0), np.float32)
        tokens = np.full(len(digests), -1, np.int32)
        for file, places, rows in locate(digests, files):
            vectors[places] = file.table.column("vector").chunk(0).values.to_numpy().reshape(len(file), -1)[rows]
            if "tokens" in file.table.column_names:
                tokens[places] = file.table.column("tokens").fill_null(-1).to_numpy()[rows]
            found[places] = True
        return found, vectors, tokens

    def keep(self, digests: Keys, vectors: Vectors, since_ns: int = 0, tokens: Tokens | None = None) -> None:
        """Keep vectors; a disk that cannot be written is said in the log, because the vectors are worth more.

        Vectors of another size that were made before ``since_ns`` are of a model that was replaced, and go. Raises
        ``ArtifactError`` when later ones are of another size.
        """
        self.sized(since_ns, vectors.shape[1])
        columns = {"vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])}
        if tokens is not None:
            columns["tokens"] = pa.array(tokens, pa.int32())
        try:
            for file in self.files():
                if file.table.schema.field("vector").type.list_size != vectors.shape[1]:
                    self._remove(file.path)
            self.add(digests, pa.table(columns), since_ns)
        except (OSError, ArtifactError) as error:
            logger.warning("%d vectors could not be kept in %s: %s", len(digests), self.folder, error)


Make = Callable[[Sequence[str], Sequence[int]], Iterable[Sequence[Any]]]
"""Makes the vectors of the texts at some places, in batches of (places, vectors), maybe with the tokens of each."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Of the texts asked for: ``misses`` had to be embedded, ``hits`` (repeats among them too) had not."""

    hits: int = 0
    misses: int = 0


class EmbeddingCache:
    """A folder of vectors that any number of threads and processes may use at once.

    Each embedder's vectors lie in a folder of their own. A damaged file is removed, which the log says,
    and what it held is embedded again. ``storage`` is that of the workspace the folder is in, if it is in one. Raises
    ``ConfigurationError`` when the folder is a file.
    """

    def __init__(self, folder: str | Path, storage: Storage | None = None) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{str(self.folder)!r} is not a folder: give one for the embedding cache")
        self._storage = storage
        self._collections: dict[Path, VectorRows] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"EmbeddingCache({str(self.folder)!r})"

    def collection(self, identity: str, label: str, *, queries: bool = False) -> VectorRows:
        """Return the vectors of texts, or of ``queries``, by the embedder of this identity."""
        folder = identity_folder(self.folder, identity, label)
        folder = folder.with_name(f"{folder.name}-queries") if queries else folder
        with self._lock:
            if folder not in self._collections:
                self._collections[folder] = VectorRows(folder, self._storage)
            return self._collections[folder]


class CachedEmbedder:
    """An embedder that embeds only texts it has not seen: same name, same dimension, same vectors.

    New vectors are kept in blocks of about ``keep_every`` while embedding goes on, so that a crash or an error loses
    at most one block. With ``made_since`` only vectors kept since then are used; others are made anew and replaced.
    Those of a ``remote`` embedder are kept as they come, and made one call at a time, over all threads, processes and
    machines that share the cache, so that no text is paid for twice. What tells its vectors from all others is its
    identity, which of an embedder that is no part is its ``identity`` or its ``name``: that must hold every setting
    that changes them. Raises what the embedder raises; ``ConfigurationError`` when it gives the wrong number or size
    of vectors, or NaN, which are not kept; ``ArtifactError`` when its vectors differ in size from those kept.
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
        self.name = embedder.name
        """The embedder's."""
        self._since_ns = nanoseconds(made_since)
        self._counting = threading.Lock()
        self.statistics = CacheStatistics()
        """Hits and misses of all calls so far."""
        self._kept_tokens: int | None = 0
        self.symmetric = getattr(embedder, "symmetric", False) is True
        """The embedder's."""

    def __repr__(self) -> str:
        return f"CachedEmbedder({self._embedder!r}, {self._cache!r})"

    @property
    def dimension(self) -> int:
        """The embedder's; where it would have to find it out, that of the vectors that are kept."""
        return self.known_dimension or self._embedder.dimension

    @property
    def known_dimension(self) -> int | None:
        """The dimension, None where only the embedder could find it out."""
        return known_dimension(self._embedder) or self._kept[0].sized(self._since_ns)[1]

    @property
    def folders(self) -> list[Path]:
        """Where its vectors are kept: those of texts and, unless it is symmetric, of questions."""
        return list(dict.fromkeys(rows.folder for rows in self._kept))

    @property
    def usage(self) -> Usage:
        """The embedder's: what was found in the cache cost nothing."""
        if isinstance(self._embedder, ReportsUsage):
            return self._embedder.usage
        return Usage(requests=0, texts=self.statistics.misses, tokens=None, cost=None)

    @property
    def tokens_read(self) -> int | None:
        """The tokens of all texts asked for, of each call the distinct ones once, made now or found in the cache.

        So it is the same number whatever was kept; None where the embedder does not tell.
        """
        fresh = self.usage.tokens
        return None if fresh is None or self._kept_tokens is None else fresh + self._kept_tokens

    def lacking(self, texts: Mapping[str, T]) -> dict[str, T]:
        """Return those of the texts, given by their sha256, that would have to be embedded."""
        digests, found = list(texts), np.zeros(len(texts), bool)
        for _, places, _ in locate(keys_from_hex(digests), self._kept[0].files(self._since_ns)):
            found[places] = True
        return {digests[place]: texts[digests[place]] for place in np.flatnonzero(~found).tolist()}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order; equal texts are embedded once."""
        return self._embedded(texts)

    def _embedded(self, texts: Sequence[str], alone: str | None = None) -> Vectors:
        make: Make = partial(self._in_blocks, self._embedder.embed)
        # Whoever writes another embed over that of a class means every way to embed.
        for kind in type(self._embedder).__mro__:
            if "embed_as_ready" in vars(kind):
                make = self._embedder.embed_as_ready  # type: ignore[attr-defined]  # optional
            if {"embed", "embed_as_ready"} & vars(kind).keys():
                break
        return self._vectors(texts, self._kept[0], make, alone)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the questions, in their order."""
        if self.symmetric:
            return self._embedded(texts, "queries")
        make = partial(self._in_blocks, partial(embed_queries, self._embedder))
        return self._vectors(texts, self._kept[1], make, "queries")

    @cached_property
    def _kept(self) -> tuple[VectorRows, VectorRows]:
        """The vectors of texts and those of questions, which are the same where the embedder is symmetric."""
        kept = partial(self._cache.collection, digest(self._embedder), self.name)
        return kept(), kept(queries=not self.symmetric)

    def _vectors(self, texts: Sequence[str], kept: VectorRows, make: Make, alone: str | None = None) -> Vectors:
        """Return the vectors of the texts: those kept, and with ``make`` the others, each distinct text once.

        What is ``alone`` by a name, as all that a remote embedder is asked, is made by one at a time.
        """
        check_texts(texts)
        if not texts:
            return self._embedder.embed([])
        digests = keys_from_hex([text_sha256(text) for text in texts])
        found, vectors, tokens = kept.find(digests, known_dimension(self._embedder), self._since_ns)
        with ExitStack() as turn:
            is_paid = is_remote(self._embedder)
            if (is_paid or alone) and not found.all():
                turn.enter_context(kept.locked("" if is_paid else alone or ""))  # somebody else may make them meanwhile
                found, vectors, tokens = kept.find(digests, known_dimension(self._embedder), self._since_ns)
            first: dict[bytes, int] = {}
            missing = np.flatnonzero(~found).tolist()
            sources = [first.setdefault(digests[place].tobytes(), place) for place in missing]
            places = list(first.values())
            hits, misses = len(texts) - len(places), len(places)
            reused = list({texts[place]: place for place in np.flatnonzero(found).tolist()}.values())
            counts = self._counted(texts, reused, tokens[reused])
            with self._counting:
                before = self._kept_tokens
                self._kept_tokens = None if before is None or counts is None else before + int(counts.sum())
                self.statistics = CacheStatistics(self.statistics.hits + hits, self.statistics.misses + misses)
            logger.debug("embedding cache: %d hits, %d misses (%s)", hits, misses, self.name)
            if places:
                new = self._made(texts, places, digests, kept, make)
                if vectors.shape[1] != new.shape[1]:
                    vectors = np.zeros((len(texts), new.shape[1]), np.float32)
                if self._since_ns:
                    kept.retire(digests[places], self._since_ns)
                vectors[places] = new
                vectors[missing] = vectors[sources]
        return vectors

    def _counted(self, texts: Sequence[str], places: Sequence[int], known: Tokens) -> Tokens | None:
        """How many tokens the texts at these places have, those that are -1 counted; None where none can be."""
        count = getattr(self._embedder, "count_tokens", None)
        unknown = np.flatnonzero(known < 0)
        if len(unknown):
            asked = [texts[places[row]] for row in unknown.tolist()]
            counts = None if count is None else count(asked)
            if counts is None:
                return None
            if np.shape(counts) != (len(asked),):
                raise ConfigurationError(
                    f"count_tokens of the embedder {self.name} gave {preview(repr(counts))} for {len(asked)} texts: "
                    "have it give one number for each"
                )
            known = known.copy()
            known[unknown] = counts
        return known

    def _made(self, texts: Sequence[str], places: list[int], digests: Keys, kept: VectorRows, make: Make) -> Vectors:
        """Return the vectors of the texts at these places, kept block by block, also when an error ends the work."""
        rows = {place: row for row, place in enumerate(places)}
        vectors: Vectors | None = None
        tokens = np.full(len(places), -1, np.int32)
        ready: list[int] = []
        done: set[int] = set()

        def keep() -> None:
            if vectors is not None and ready:
                check_unchanged(self._embedder)
                here = [rows[place] for place in ready]
                try:
                    counts = self._counted(texts, ready, tokens[here])
                except Exception:
                    kept.keep(digests[ready], vectors[here], self._since_ns, None)  # what was paid for is kept first
                    ready.clear()
                    raise
                kept.keep(digests[ready], vectors[here], self._since_ns, counts)
                ready.clear()

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
                    keep()
        finally:
            keep()
        if vectors is None or len(done) != len(places):
            raise ConfigurationError(f"the embedder {self.name} gave {len(done)} vectors for {len(places)} texts")
        return vectors

    def _in_blocks(
        self, embed: Callable[[list[str]], Vectors], texts: Sequence[str], places: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Vectors]]:
        for begin in range(0, len(places), self._keep_every):
            block = places[begin : begin + self._keep_every]
            yield block, embed([texts[place] for place in block])
