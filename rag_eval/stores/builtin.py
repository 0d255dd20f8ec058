"""What the stores of this library share: the checks, the order and the way from numbers to hits."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.base import AnyChunk, SearchResult, StoreHit
from rag_eval.stores.ordering import DEFAULT, Blocks, Candidates, best, exact_scores
from rag_eval.stores.places import Places
from rag_eval.stores.vectors import unit_vectors


class BuiltInStore(ABC):
    """A store that finds candidates its own way and leaves their scores and their order to the one rule."""

    _places: Places
    _dimension: int | None
    _blocks: Blocks = DEFAULT

    @property
    @abstractmethod
    def name(self) -> str:
        """The store, and whatever changes what it finds."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Keep chunks with their vectors, scaled to length 1; nothing is kept when anything is refused.

        Raises ``TableError`` when chunks and vectors differ in number, when the dimension is not the store's, when a
        vector is not finite, when a place is taken already, or when chunks with and without a place are mixed.
        """
        units = self._checked(len(chunks), embeddings)
        if len(chunks):
            places = self._places.with_chunks(chunks)
            self._keep(chunks, units, places)
            self._places, self._dimension = places, units.shape[1]

    def search(self, vector: NDArray[np.float32], k: int) -> list[StoreHit]:
        """The k best chunks, best first; fewer when the store holds fewer.

        Raises ``ConfigurationError`` when k is below 1, ``TableError`` on a vector of another dimension or one that
        is not finite.
        """
        found = self.search_many(np.asarray(vector)[None], k)
        kept = found.numbers[0] >= 0
        numbers, scores = found.numbers[0][kept], found.scores[0][kept].tolist()
        chunks = self.chunks(numbers)
        return [StoreHit(*hit) for hit in zip(chunks, numbers.tolist(), scores, strict=True)]

    def search_many(self, vectors: Vectors, k: int) -> SearchResult:
        """The k best chunks of every vector at once; raises as ``search`` does.

        To a zero vector all chunks are equal, at score 0: it finds the first k by place.
        """
        if k < 1:
            raise ConfigurationError(f"k is {k}: ask for at least one chunk")
        units = unit_vectors(vectors, "query vectors", self._dimension)
        count, size = min(k, len(self)), len(self)
        blank = ~units.any(axis=1)
        asked = np.flatnonzero(~blank)
        found = self._candidates(units[asked], count) if size and len(asked) else iter(())
        parts = (_renumbered(part, asked) for part in found)
        result = best(parts, self._places.rank, len(units), count, self._blocks.found)
        result.numbers[blank] = self._places.order[:count]
        result.scores[blank] = 0
        return result

    @abstractmethod
    def chunks(self, numbers: NDArray[np.int64]) -> list[AnyChunk]:
        """The chunks of these numbers, in the order asked for."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all chunks; the next may have another dimension."""

    @abstractmethod
    def _keep(self, chunks: Sequence[AnyChunk], units: Vectors, places: Places) -> None:
        """Keep the chunks and their unit vectors; they are the last rows of ``places``."""

    @abstractmethod
    def _candidates(self, units: Vectors, k: int) -> Iterator[Candidates]:
        """Chunks that include the best k of every query, no pair of query and chunk twice; k is at most the size."""

    @abstractmethod
    def _vectors(self, numbers: NDArray[np.int64]) -> Vectors:
        """The unit vectors of the chunks of these numbers, in the order asked for."""

    def _scored(self, units: Vectors, queries: NDArray[np.int64], numbers: NDArray[np.int64]) -> Iterator[Candidates]:
        """Pairs of query and chunk with their exact scores, a bounded number at once."""
        step = max(1, self._blocks.loaded // units.shape[1])
        for begin in range(0, len(numbers), step):
            query, number = queries[begin : begin + step], numbers[begin : begin + step]
            scores = exact_scores(units[query], self._vectors(number), self._blocks.summed)
            yield Candidates(query, number, scores)

    def _checked(self, chunks: int, embeddings: Vectors) -> Vectors:
        if len(embeddings) != chunks:
            raise TableError(f"there are {chunks} chunks and {len(embeddings)} vectors: give one for each")
        if chunks == 0:
            return np.empty((0, 0), np.float32)
        return unit_vectors(embeddings, "embeddings", self._dimension)


def _renumbered(part: Candidates, rows: NDArray[np.int64]) -> Candidates:
    return Candidates(rows[part.queries], part.numbers, part.scores)
