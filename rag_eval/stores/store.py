"""What a vector store is, and what the stores of this library share: the checks, exact search and the order of hits."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.exact_search import (
    ROWS_AT_ONCE,
    Integers,
    Mask,
    SearchResult,
    exact_scores,
    search_tiles,
    unit_vectors,
)
from rag_eval.types.chunks import Chunk, PositionAwareChunk

AnyChunk = Chunk | PositionAwareChunk

RECALL_AT = 10
"""How many of the nearest chunks an approximate search is compared on."""


@runtime_checkable
class VectorStore(Protocol):
    """Keeps the vectors of chunks and finds the nearest by cosine similarity.

    Chunks are numbered from 0 in the order they are added. Equal scores are ordered by number, so whoever adds chunks
    in the order of their places gets the same hits from every exact store.
    """

    @property
    def name(self) -> str:
        """The store, and whatever changes what it finds."""

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Add chunks with their vectors."""

    def search_many(self, vectors: Vectors, k: int) -> SearchResult:
        """Return the k nearest chunks of every vector."""

    def clear(self) -> None:
        """Forget all chunks."""


class BuiltInStore(ABC):
    """A store of this library. It keeps unit vectors by number; the chunks stay with whoever added them.

    A subclass keeps the vectors and reads them again. Search is exact unless it overrides ``_nearest``.
    """

    is_exact: ClassVar[bool] = True
    """Whether the best of all chunks are always found, so that shards of them can be searched apart."""
    _queries_at_once: ClassVar[int] = 256
    _dimension: int | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The store, and whatever changes what it finds."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def clear(self) -> None:
        """Forget all vectors; the next may have another dimension."""

    @abstractmethod
    def vectors(self, numbers: Integers) -> Vectors:
        """Return the unit vectors of these numbers, in the order of the numbers."""

    @abstractmethod
    def _append(self, units: Vectors) -> None:
        """Keep unit vectors under the next numbers."""

    def _finish(self) -> None:  # noqa: B027  # most stores have nothing to do
        """Do what is to be done once after vectors were added, such as building an index."""

    def _tiles(self) -> Iterator[tuple[Integers, Vectors]]:
        """Yield all numbers with their unit vectors, at most ``ROWS_AT_ONCE`` at a time."""
        for begin in range(0, len(self), ROWS_AT_ONCE):
            numbers = np.arange(begin, min(begin + ROWS_AT_ONCE, len(self)))
            yield numbers, self.vectors(numbers)

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Add the vectors of chunks, scaled to length 1; nothing is kept when anything is refused.

        Raises ``TableError`` when chunks and vectors differ in number, the dimension is not the store's, or a vector is
        not finite.
        """
        if len(embeddings) != len(chunks):
            raise TableError(f"there are {len(chunks)} chunks and {len(embeddings)} vectors: give one for each")
        self.fill([embeddings])

    def fill(self, parts: Iterable[Vectors]) -> None:
        """Add vectors that come in parts, one at a time in memory; raises as ``add``, with the parts before kept."""
        for embeddings in parts:
            if len(embeddings):
                units = unit_vectors(embeddings, "embeddings", self._dimension)
                self._append(units)
                self._dimension = units.shape[1]
        self._finish()

    def search_many(self, vectors: Vectors, k: int, among: Mask | None = None) -> SearchResult:
        """Return the k nearest chunks of every vector, of those that ``among`` allows.

        To a zero vector all chunks are equal, at score 0: it finds the first k. Raises ``ConfigurationError`` when k is
        below 1, and ``TableError`` on a vector of another dimension or one that is not finite.
        """
        if k < 1:
            raise ConfigurationError(f"k is {k}: ask for at least one chunk")
        units = unit_vectors(vectors, "query vectors", self._dimension)
        count = min(k, len(self) if among is None else int(among.sum()))
        result = SearchResult.empty(len(units), count)
        blank = ~units.any(axis=1)
        result.numbers[blank] = np.arange(count) if among is None else np.flatnonzero(among)[:count]
        result.scores[blank] = 0
        if count and not blank.all():
            found = self._nearest(units[~blank], count, among)
            result.numbers[~blank], result.scores[~blank] = found.numbers, found.scores
        return result

    def recall(self, vectors: Vectors, depth: int, k: int = RECALL_AT) -> float | None:
        """Return the share of the exact best k chunks that are among the first k of a search for ``depth``.

        A chunk as near as the k-th counts too. None where search is exact, and without vectors or chunks.
        """
        units = unit_vectors(vectors, "query vectors", self._dimension)
        units, count = units[units.any(axis=1)], min(k, len(self))
        if self.is_exact or not count or not len(units):
            return None
        least = BuiltInStore._nearest(self, units, count, None).scores[:, -1]
        found = self.search_many(units, max(depth, count)).numbers[:, :count]
        queries, ranks = np.nonzero(found >= 0)
        scores = exact_scores(units, self.vectors(found[queries, ranks]), queries, np.arange(len(queries)))
        return int((scores >= least[queries]).sum()) / (len(units) * count)

    def _nearest(self, units: Vectors, k: int, among: Mask | None) -> SearchResult:
        """Return the k nearest of every unit vector, none of which is zero; k is at most the number of chunks."""

        def tiles() -> Iterator[tuple[Integers, Vectors]]:
            for numbers, rows in self._tiles():
                allowed = slice(None) if among is None else among[numbers]
                yield numbers[allowed], rows[allowed]

        return search_tiles(units, k, tiles, self._queries_at_once)
