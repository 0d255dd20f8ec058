"""Define the interface of vector stores, and what the built-in ones share: checks, exact search and tie order."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.exact_search import ROWS_AT_ONCE, exact_scores, search_tiles, unit_vectors
from rag_eval.stores.rankings import Mask, Numbers, Ranking
from rag_eval.types.chunks import Chunk, PositionAwareChunk

AnyChunk = Chunk | PositionAwareChunk

RECALL_AT = 10
"""Number of nearest chunks on which an approximate search is compared."""


@runtime_checkable
class VectorStore(Protocol):
    """A store of the vectors of chunks, which finds the nearest by cosine similarity.

    Chunks are numbered from 0 in the order they are added. Equal scores are ordered by number, so every exact store
    finds the same hits if chunks are added in the order of their places.
    """

    @property
    def name(self) -> str:
        """The store and the settings that change what it finds."""

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Add chunks with their vectors."""

    def search_many(self, vectors: Vectors, k: int, among: Mask | None = None) -> Ranking:
        """Return the k nearest chunks of every vector, of those that ``among`` allows."""

    def clear(self) -> None:
        """Remove all chunks."""


class BuiltInStore(ABC):
    """A built-in store. It stores unit vectors by number; chunks are only remembered for ``search``.

    A subclass writes and reads the vectors. Search is exact unless it overrides ``_nearest``.
    """

    is_exact: ClassVar[bool] = True
    """Whether the best chunks are always found, so that shards can be searched separately."""
    _queries_at_once: ClassVar[int] = 256
    _fillings: int = 0
    _chunks: Sequence[AnyChunk] = ()
    _dimension: int | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The store and the settings that change what it finds."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def clear(self) -> None:
        """Remove all vectors; the next may have another dimension."""

    @abstractmethod
    def vectors(self, numbers: Numbers) -> Vectors:
        """Return the unit vectors of these numbers, in the order of the numbers."""

    @abstractmethod
    def _append(self, units: Vectors) -> None:
        """Store unit vectors under the next numbers."""

    def _finish(self) -> None:  # noqa: B027  # optional
        """Runs once after vectors were added, for example to build an index."""

    def _tiles(self) -> Iterator[tuple[Numbers, Vectors]]:
        """Yield all numbers with their unit vectors, at most ``ROWS_AT_ONCE`` at a time."""
        for begin in range(0, len(self), ROWS_AT_ONCE):
            numbers = np.arange(begin, min(begin + ROWS_AT_ONCE, len(self)))
            yield numbers, self.vectors(numbers)

    @property
    def filling(self) -> tuple[int, int]:
        """The number of additions and of vectors; the pair changes when the store is filled again."""
        return self._fillings, len(self)

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Add the vectors of chunks, scaled to length 1.

        Raises ``TableError``, and adds nothing, if chunks and vectors differ in number, the dimension is not the
        store's, or a vector is not finite.
        """
        if len(embeddings) != len(chunks):
            raise TableError(f"there are {len(chunks)} chunks and {len(embeddings)} vectors: give one for each")
        before = self._chunks[: len(self)]
        self.fill([embeddings])
        self._chunks = [*before, *chunks]

    def fill(self, parts: Iterable[Vectors]) -> None:
        """Add vectors in parts, one at a time in memory; raises like ``add``, and keeps the parts added before."""
        self._fillings += 1
        self._chunks = ()
        for embeddings in parts:
            if len(embeddings):
                units = unit_vectors(embeddings, "embeddings", self._dimension)
                self._append(units)
                self._dimension = units.shape[1]
        self._finish()

    def search_many(self, vectors: Vectors, k: int, among: Mask | None = None) -> Ranking:
        """Return the k nearest chunks of every vector, of those that ``among`` allows.

        A zero vector is equally near to all chunks: it finds the first k, at score 0.

        Raises:
            ConfigurationError: k is below 1.
            TableError: A vector has another dimension or is not finite.
        """
        if k < 1:
            raise ConfigurationError(f"k is {k}: ask for at least one chunk")
        units = unit_vectors(vectors, "query vectors", self._dimension)
        allowed = np.arange(len(self)) if among is None else np.flatnonzero(among)
        blank, depth = ~units.any(axis=1), min(k, len(allowed))
        zeros = Ranking.of([(allowed[:depth], np.zeros(depth))] * int(blank.sum()))
        if not depth or blank.all():
            return zeros
        found = self._nearest(units[~blank], depth, among)
        return Ranking.joined([(np.flatnonzero(~blank), found), (np.flatnonzero(blank), zeros)])

    def search(self, query_embedding: Sequence[float] | Vectors, k: int) -> list[AnyChunk]:
        """Return the k nearest of the chunks that were added; raises like ``search_many``."""
        if len(self._chunks) < len(self):
            raise ConfigurationError(f"{self.name} has vectors without chunks: add the chunks, or use search_many")
        found = self.search_many(np.asarray([query_embedding], np.float32), k)
        return [self._chunks[number] for number in found.chunks.tolist()]

    def recall(self, vectors: Vectors, depth: int, k: int = RECALL_AT) -> float | None:
        """Return the share of the exact best k chunks that are among the first k of a search for ``depth``.

        A chunk that is as near as the k-th also counts. None if search is exact, or there are no vectors or chunks.
        """
        units = unit_vectors(vectors, "query vectors", self._dimension)
        units, count = units[units.any(axis=1)], min(k, len(self))
        if self.is_exact or not count or not len(units):
            return None
        kth_best = BuiltInStore._nearest(self, units, count, None).scores.reshape(-1, count)[:, -1]
        found = self.search_many(units, max(depth, count)).first(count)
        scores = exact_scores(units, self.vectors(found.chunks), found.searches, np.arange(len(found.chunks)))
        return int((scores >= kth_best[found.searches]).sum()) / (len(units) * count)

    def _nearest(self, units: Vectors, k: int, among: Mask | None) -> Ranking:
        """Return the k nearest of every unit vector; none is zero, and at least k chunks are allowed."""

        def tiles() -> Iterator[tuple[Numbers, Vectors]]:
            for numbers, rows in self._tiles():
                allowed = slice(None) if among is None else among[numbers]
                yield numbers[allowed], rows[allowed]

        return search_tiles(units, k, tiles, self._queries_at_once)
