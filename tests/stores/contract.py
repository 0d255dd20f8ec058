"""What the tests of the stores share: chunks, the stores themselves, and a naive twin of the rule of order."""

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.stores.chroma import ChromaVectorStore
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.rankings import Mask, Ranking
from rag_eval.stores.store import BuiltInStore, VectorStore
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

HAS_CHROMA = importlib.util.find_spec("chromadb") is not None

EXACT: dict[str, Callable[[Path], BuiltInStore]] = {
    "memory": lambda folder: InMemoryVectorStore(),
    "lance": LanceDBVectorStore,
}
ALL = EXACT | {"chroma": lambda folder: ChromaVectorStore()}


def chunks(count: int) -> list[PositionAwareChunk]:
    """Chunks of equal text in one document."""
    chunk_id, doc_id = generate_pa_chunk_id("same"), DocumentId("a.md")
    return [PositionAwareChunk(chunk_id, "same", doc_id, 4 * number, 4 * number + 4) for number in range(count)]


def vectors(rows: ArrayLike) -> NDArray[np.float32]:
    return np.array(rows, np.float32)


def random_vectors(count: int, dimension: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def naive(embeddings: NDArray[np.float32], queries: NDArray[np.float32], k: int) -> Ranking:
    """The rule of order the slow way: every pair, exact sums, Python's sort."""
    units = _units(embeddings)
    found = []
    for query in _units(queries):
        rounded = [round(math.fsum((unit * query).tolist()) * 2**24) / 2**24 for unit in units]
        scores = [max(-1.0, min(1.0, score)) for score in rounded]
        order = sorted(range(len(units)), key=lambda number: (-scores[number], number))[:k]
        found.append((np.array(order, np.int64), np.array([scores[number] for number in order])))
    return Ranking.of(found)


def assert_same(found: Ranking, expected: Ranking) -> None:
    np.testing.assert_array_equal(found.searches, expected.searches)
    np.testing.assert_array_equal(found.chunks, expected.chunks)
    np.testing.assert_array_equal(found.scores, expected.scores)


def nearest(store: VectorStore, queries: ArrayLike, k: int, among: Mask | None = None) -> list[list[int]]:
    """The numbers that each query finds, best first."""
    asked = vectors(queries)
    return [numbers.tolist() for numbers in store.search_many(asked, k, among).by_search(len(asked))]


def _units(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    long = rows.astype(np.float64)
    lengths = np.array([math.sqrt(math.fsum((row * row).tolist())) or 1.0 for row in long])
    return (long / lengths[:, None]).astype(np.float32).astype(np.float64)
