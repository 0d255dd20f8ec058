"""What a vector store is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.types.chunk import Chunk, PositionAwareChunk

AnyChunk = Chunk | PositionAwareChunk


@dataclass(frozen=True, slots=True)
class StoreHit:
    """A chunk that a store found, its number in the order of addition, and its cosine similarity to the query."""

    chunk: AnyChunk
    number: int
    score: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best chunks of many queries, a row a query, best first.

    There are k columns, or as many as the store has chunks where these are fewer. ``numbers`` counts chunks in the
    order they were added; -1 (at score -inf) fills up where fewer were found. ``scores`` are cosine similarities, 0
    wherever one side is a zero vector.
    """

    numbers: NDArray[np.int64]
    scores: NDArray[np.float32]


@runtime_checkable
class VectorStore(Protocol):
    """Keeps chunks with their vectors and finds the nearest by cosine similarity.

    Equal texts at different places are different chunks. Equal scores are ordered by document, then by start (for
    chunks without a place: by their order within the document), so that every exact store gives the same order.
    """

    @property
    def name(self) -> str:
        """The store, and whatever changes what it finds."""

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Keep chunks with their vectors; raises ``TableError`` when their numbers or the dimensions differ."""

    def search(self, vector: NDArray[np.float32], k: int) -> list[StoreHit]:
        """The k best chunks, best first; fewer when the store holds fewer."""

    def search_many(self, vectors: Vectors, k: int) -> SearchResult:
        """The k best chunks of every vector at once."""

    def clear(self) -> None:
        """Forget all chunks."""
