"""Exact search in memory against numpy's own tiled top k and against LanceDB, with seeded vectors, in CPU seconds.

Numpy starts from unit vectors and gives numbers in the order of its float32 scores; the store checks and scales the
queries, scores the candidates anew in float64 and orders ties by place, and all of that is in its time.
"""

import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.ids import DocumentId, generate_pa_chunk_id

T = TypeVar("T")
K, TURNS = 10, 3
CASES = {"100 k x 256, 2,000 queries": (100_000, 256, 2_000), "1 M x 64, 500 queries": (1_000_000, 64, 500)}
LANCE_ROWS, LANCE_DIMENSION, LANCE_QUERIES, ONE_BY_ONE = 100_000, 256, 256, 12
REPEATED = 0.43

Vectors = NDArray[np.float32]


def random_units(rng: np.random.Generator, rows: int, dimension: int) -> Vectors:
    """Directions without a preference, of length 1."""
    drawn = rng.standard_normal((rows, dimension), np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn


def make_chunks(rows: int) -> list[PositionAwareChunk]:
    """Chunks of documents of 500 pieces each."""
    chunk_id = generate_pa_chunk_id("text")
    names = [DocumentId(f"part_{number:05d}.md") for number in range(rows // 500 + 1)]
    return [
        PositionAwareChunk(chunk_id, "text", names[n // 500], 4 * (n % 500), 4 * (n % 500) + 4) for n in range(rows)
    ]


def numpy_top_k(queries: Vectors, matrix: Vectors, k: int, at_once: int = 256, rows: int = 16_384) -> NDArray[np.int64]:
    """Tile by tile: multiply, take each tile's best by argpartition, merge with the best so far."""
    found = np.empty((len(queries), k), np.int64)
    for first in range(0, len(queries), at_once):
        block = queries[first : first + at_once]
        best_scores = np.empty((len(block), 0), np.float32)
        best_numbers = np.empty((len(block), 0), np.int64)
        for begin in range(0, len(matrix), rows):
            scores = block @ matrix[begin : begin + rows].T
            columns = np.argpartition(scores, -k, axis=1)[:, -k:] if scores.shape[1] > k else _all_columns(scores)
            best_scores = np.concatenate([best_scores, np.take_along_axis(scores, columns, 1)], axis=1)
            best_numbers = np.concatenate([best_numbers, columns + begin], axis=1)
            if best_scores.shape[1] > k:
                best = np.argpartition(best_scores, -k, axis=1)[:, -k:]
                best_scores = np.take_along_axis(best_scores, best, 1)
                best_numbers = np.take_along_axis(best_numbers, best, 1)
        order = np.argsort(-best_scores, axis=1)
        found[first : first + at_once] = np.take_along_axis(best_numbers, order, 1)
    return found


def _all_columns(scores: Vectors) -> NDArray[np.int64]:
    return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)


def against_numpy(name: str, rows: int, dimension: int, queries: int) -> list[dict[str, object]]:
    """Store and numpy take turns on the same work; the ratio is the median over the turns."""
    rng = np.random.default_rng(20240711)
    matrix, asked = random_units(rng, rows, dimension), random_units(rng, queries, dimension)
    store = InMemoryVectorStore()
    store.add(make_chunks(rows), matrix)
    store.search_many(asked[:2], K)  # the order of places is found once, not by every search
    store_seconds, numpy_seconds, same = [], [], 0.0
    for _ in range(TURNS):
        seconds, result = _timed(lambda: store.search_many(asked, K))
        store_seconds.append(seconds)
        seconds, expected = _timed(lambda: numpy_top_k(asked, matrix, K))
        numpy_seconds.append(seconds)
        same = float((result.chunks.reshape(expected.shape) == expected).mean())
    tracemalloc.start()
    store.search_many(asked, K)
    megabytes = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    ratio = median(theirs / ours for theirs, ours in zip(numpy_seconds, store_seconds, strict=True))
    return [
        _figure(f"search: in memory, {name}", median(store_seconds), None, "s CPU"),
        _figure(f"search: numpy, {name}", median(numpy_seconds), None, "s CPU"),
        _figure(f"search: times numpy's speed, {name}", ratio, 0.5, "x", ratio >= 0.5),
        _figure(f"search: hits in numpy's order, {name}", same, 0.999, "", same >= 0.999),
        _figure(f"search: memory a search adds, {name}", megabytes, 128, "MB", megabytes <= 128),
    ]


def repeated_text() -> list[dict[str, object]]:
    """The same search where 43 % of the vectors repeat another, against the search without repetition."""
    rows, dimension, queries = CASES["100 k x 256, 2,000 queries"]
    rng = np.random.default_rng(7)
    matrix, asked = random_units(rng, rows, dimension), random_units(rng, queries, dimension)
    repeating = matrix.copy()
    again = rng.random(rows) < REPEATED
    repeating[again] = matrix[rng.integers(0, rows // 20, int(again.sum()))]
    seconds = []
    for kept in (matrix, repeating):
        store = InMemoryVectorStore()
        store.add(make_chunks(rows), kept)
        store.search_many(asked[:2], K)
        seconds.append(median(_timed(lambda: store.search_many(asked, K))[0] for _ in range(TURNS)))  # noqa: B023
    ratio = seconds[1] / seconds[0]
    return [_figure("search: 43 % repeated vectors, times the time without", ratio, 2, "x", ratio <= 2)]


def against_lance() -> list[dict[str, object]]:
    """LanceDB asked one query at a time, its own way, and our LanceDB store asked for all of them at once."""
    rng = np.random.default_rng(3)
    matrix = random_units(rng, LANCE_ROWS, LANCE_DIMENSION)
    asked = random_units(rng, LANCE_QUERIES, LANCE_DIMENSION)
    chunks = make_chunks(LANCE_ROWS)
    memory = InMemoryVectorStore()
    memory.add(chunks, matrix)
    with tempfile.TemporaryDirectory() as folder:
        import lancedb

        store = LanceDBVectorStore(folder)
        store.fill([matrix])
        table = lancedb.connect(folder).open_table("chunks")
        single_seconds, memory_seconds, batch_seconds, same = [], [], [], True
        memory.search_many(asked[:2], K)
        for turn in range(TURNS):
            seconds, found = _timed(lambda: memory.search_many(asked, K))
            memory_seconds.append(seconds / len(asked))
            part = asked[turn * ONE_BY_ONE : (turn + 1) * ONE_BY_ONE]
            seconds, _ = _timed(lambda: [_lance_search(table, query) for query in part])  # noqa: B023
            single_seconds.append(seconds / len(part))
            seconds, batch = _timed(lambda: store.search_many(asked, K))
            batch_seconds.append(seconds / len(asked))
            same = same and np.array_equal(found.chunks, batch.chunks) and np.array_equal(found.scores, batch.scores)
    ratio = median(one / ours for one, ours in zip(single_seconds, memory_seconds, strict=True))
    batch_ratio = median(one / ours for one, ours in zip(single_seconds, batch_seconds, strict=True))
    return [
        _figure("search: LanceDB one by one, 100 k x 256, a query", median(single_seconds) * 1000, None, "ms CPU"),
        _figure("search: in memory, times LanceDB one by one", ratio, 10, "x", ratio >= 10),
        _figure("search: LanceDB store in batches, times LanceDB one by one", batch_ratio, None, "x"),
        _figure("search: LanceDB store and memory agree hit for hit", float(same), 1, "", same),
    ]


def _lance_search(table: Any, query: NDArray[np.float32]) -> pa.Table:
    asked = table.search(query, vector_column_name="vector").distance_type("dot").bypass_vector_index()
    return asked.limit(K).select(["number", "_distance"]).to_arrow()


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def run() -> list[dict[str, object]]:
    """The figures: speed against numpy and LanceDB, agreement with both, and what a search adds to memory."""
    figures = []
    for name, (rows, dimension, queries) in CASES.items():
        figures += against_numpy(name, rows, dimension, queries)
        gc.collect()
    return [*figures, *repeated_text(), *against_lance()]


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    figures = run()
    for figure in figures:
        target = "" if figure["target"] is None else f"(target {figure['target']:g})"
        line = f"{figure['name']:<72} {figure['value']:>12.4g} {figure['unit']:<6} {target:<18}"
        print(line, "ok" if figure["ok"] else "MISSED")
    return 0 if all(figure["ok"] for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
