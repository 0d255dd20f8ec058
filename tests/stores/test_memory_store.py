import tracemalloc

import numpy as np
import pytest

from rag_eval.stores.exact_search import Blocks, near_pairs
from rag_eval.stores.memory import InMemoryVectorStore
from tests.stores.contract import assert_same, chunks, naive, random_vectors

# So small that every border is crossed.
TINY = Blocks(queries=7, rows=16, candidates=60, found=30, loaded=40, summed=24)


class Tiled(InMemoryVectorStore):
    _blocks = TINY


@pytest.mark.parametrize("k", [1, 5, 16, 17, 40, 150])
@pytest.mark.parametrize("distinct", [3, 150])
def test_borders_of_tiles_and_pools_change_nothing(k: int, distinct: int) -> None:
    kept = chunks(150)
    embeddings = random_vectors(distinct, 6, 1)[np.random.default_rng(2).integers(0, distinct, 150)]
    queries = random_vectors(20, 6, 3)
    store = Tiled()
    store.add(kept, embeddings)
    assert_same(store.search_many(queries, k), naive(kept, embeddings, queries, k))


def test_scores_that_rise_from_tile_to_tile() -> None:
    kept, queries = chunks(150), random_vectors(3, 2, 4)
    angles = np.linspace(-3, 3, 150)
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    for order in (np.arange(150), np.arange(150)[::-1]):
        store = Tiled()
        store.add([kept[number] for number in order], embeddings[order])
        expected = naive([kept[number] for number in order], embeddings[order], queries, 4)
        assert_same(store.search_many(queries, 4), expected)


def test_of_scores_that_rise_no_more_pairs_are_left_than_can_matter() -> None:
    angles = np.linspace(-3, 0, 150)
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    begins = range(0, 150, TINY.rows)
    tiles = [(np.arange(begin, min(begin + TINY.rows, 150)), embeddings[begin : begin + TINY.rows]) for begin in begins]
    passes = []

    def begin_pass() -> list[tuple[np.ndarray, np.ndarray]]:
        passes.append(1)
        return tiles

    found = list(near_pairs(embeddings[-1:].repeat(7, axis=0), 4, begin_pass, TINY))
    assert sorted(number for _, numbers in found for number in numbers.tolist()) == sorted([146, 147, 148, 149] * 7)
    assert len(passes) <= 3  # what is let go in time does not fill the memory, so that few queries are taken again


def peak_megabytes(store: InMemoryVectorStore, queries: np.ndarray, k: int) -> float:
    tracemalloc.start()
    store.search_many(queries, k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def test_memory_does_not_grow_with_queries_times_rows() -> None:
    store = InMemoryVectorStore()
    store.add(chunks(60_000), random_vectors(60_000, 8, 5))
    store.search_many(random_vectors(2, 8, 6), 10)
    assert peak_megabytes(store, random_vectors(2_000, 8, 6), 10) < 60  # all scores at once: 458 MB


def test_memory_does_not_grow_with_ties() -> None:
    store = InMemoryVectorStore()
    store.add(chunks(30_000), np.ones((30_000, 4), np.float32))
    queries = random_vectors(120, 4, 7)
    store.search_many(queries[:2], 10)
    assert peak_megabytes(store, queries, 10) < 300  # the tile, and 2 M candidates of 3.6 M


def test_search_in_memory_is_exact_and_has_no_recall_to_measure() -> None:
    store = InMemoryVectorStore()
    store.add(chunks(40), random_vectors(40, 8, 1))
    assert store.is_exact
    assert store.recall(random_vectors(5, 8, 2), 10) is None
