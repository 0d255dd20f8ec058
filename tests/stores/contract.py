"""What the tests of the stores share: chunks, the stores themselves, and a naive twin of the rule of order."""

import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.stores.chroma import ChromaVectorStore
from rag_eval.stores.exact_search import BuiltInStore
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.store import AnyChunk, SearchResult
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_chunk_id, generate_pa_chunk_id

HAS_CHROMA = importlib.util.find_spec("chromadb") is not None

EXACT: dict[str, Callable[[Path], BuiltInStore]] = {
    "memory": lambda folder: InMemoryVectorStore(),
    "lance": LanceDBVectorStore,
}
ALL = EXACT | {"chroma": ChromaVectorStore}


def chunk(doc: str, start: int, text: str = "same") -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id(text), text, DocumentId(doc), start, start + len(text))


def plain(doc: str, text: str = "same") -> Chunk:
    return Chunk(generate_chunk_id(text), text, DocumentId(doc))


def chunks(count: int, each: int = 10) -> list[PositionAwareChunk]:
    """Chunks of as many documents as are needed, in an order that is not that of their places."""
    places = [(f"{number // each:03d}.md", 4 * (number % each)) for number in range(count)]
    shuffled = np.random.default_rng(count).permutation(count)
    return [chunk(*places[number]) for number in shuffled]


def vectors(rows: ArrayLike) -> NDArray[np.float32]:
    return np.array(rows, np.float32)


def random_vectors(count: int, dimension: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def numbers_of(result: SearchResult) -> list[list[int]]:
    return [[number for number in row if number >= 0] for row in result.numbers.tolist()]


def naive(
    kept: Sequence[AnyChunk], embeddings: NDArray[np.float32], queries: NDArray[np.float32], k: int
) -> SearchResult:
    """The rule of order the slow way: every pair, exact sums, Python's sort."""
    ordinals: dict[str, int] = {}
    places = []
    for piece in kept:
        ordinal = ordinals[piece.doc_id] = ordinals.get(piece.doc_id, -1) + 1
        place = (piece.start, piece.end) if isinstance(piece, PositionAwareChunk) else (ordinal,)
        places.append((piece.doc_id, *place))
    units, asked = _units(embeddings), _units(queries)
    k = min(k, len(units))
    result = SearchResult(np.full((len(queries), k), -1), np.full((len(queries), k), -np.inf, np.float32))
    for row, query in enumerate(asked):
        rounded = [round(math.fsum((unit * query).tolist()) * 2**24) / 2**24 for unit in units]
        scores = [max(-1.0, min(1.0, score)) for score in rounded]
        order = sorted(range(len(units)), key=lambda number: (-scores[number], places[number]))[:k]
        result.numbers[row, : len(order)] = order
        result.scores[row, : len(order)] = [scores[number] for number in order]
    return result


def assert_same(found: SearchResult, expected: SearchResult) -> None:
    np.testing.assert_array_equal(found.numbers, expected.numbers)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert found.numbers.dtype == np.int64
    assert found.scores.dtype == np.float32


def _units(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    long = rows.astype(np.float64)
    lengths = np.array([math.sqrt(math.fsum((row * row).tolist())) or 1.0 for row in long])
    return (long / lengths[:, None]).astype(np.float32).astype(np.float64)
