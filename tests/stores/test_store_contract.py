"""What every store owes, the approximate ones too."""

from pathlib import Path

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.rankings import Ranking
from rag_eval.stores.store import BuiltInStore, VectorStore
from tests.stores.contract import ALL, HAS_CHROMA, assert_same, chunks, naive, nearest, vectors


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltInStore:
    if request.param == "chroma" and not HAS_CHROMA:
        pytest.skip("chromadb is not installed")
    made: BuiltInStore = ALL[request.param](tmp_path / "database")
    return made


def test_the_best_come_first_with_their_cosine(store: BuiltInStore) -> None:
    assert isinstance(store, VectorStore)
    assert store.name
    store.add(chunks(3), vectors([[2, 0], [3, 3], [0, -5]]))
    found = store.search_many(vectors([[0, 7]]), 3)
    assert found.chunks.tolist() == [1, 0, 2]
    np.testing.assert_allclose(found.scores, [np.sqrt(0.5), 0, -1], atol=1e-7)
    assert len(store) == 3


def test_many_queries_at_once_find_what_each_finds_alone(store: BuiltInStore) -> None:
    rng = np.random.default_rng(3)
    store.add(chunks(60), rng.normal(size=(60, 8)).astype(np.float32))
    queries = rng.normal(size=(20, 8)).astype(np.float32)
    alone = [(np.array([row]), store.search_many(queries[row : row + 1], 4)) for row in range(20)]
    assert_same(store.search_many(queries, 4), Ranking.joined(alone))
    assert nearest(store, np.empty((0, 8), np.float32), 2) == []


def test_equal_scores_are_ordered_by_number_however_deep_they_go(store: BuiltInStore) -> None:
    store.add(chunks(40), np.tile(vectors([0.1, 0.7, 0.3]), (40, 1)))
    store.add(chunks(50), np.tile(vectors([0.1, 0.7, 0.3]), (50, 1)))
    assert nearest(store, [[1, 2, 3], [3, 2, 1]], 3) == [[0, 1, 2], [0, 1, 2]]


def test_a_zero_vector_is_found_at_score_zero_and_a_zero_query_finds_the_first(store: BuiltInStore) -> None:
    store.add(chunks(3), vectors([[0, 0], [1, 0], [-1, 0]]))
    found = store.search_many(vectors([[1, 0], [0, 0]]), 3)
    assert found.chunks.tolist() == [1, 0, 2, 0, 1, 2]
    assert found.scores.tolist() == [1, 0, -1, 0, 0, 0]
    some = np.array([False, True, True])
    assert nearest(store, [[0, 0]], 1, some) == [[1]]


def test_vectors_added_in_parts_are_those_added_at_once(store: BuiltInStore) -> None:
    embeddings = np.random.default_rng(2).integers(-1, 2, (40, 3)).astype(np.float32)
    queries = np.random.default_rng(5).integers(-2, 3, (10, 3)).astype(np.float32)
    store.fill(np.array_split(embeddings, 7))
    assert_same(store.search_many(queries, 7), naive(embeddings, queries, 7))
    np.testing.assert_allclose(store.vectors(np.array([7, 3, 7])), store.vectors(np.arange(40))[[7, 3, 7]])


@pytest.mark.parametrize("k", [4, 10**9])
def test_where_there_are_fewer_than_k_all_are_found_and_k_costs_no_memory(store: BuiltInStore, k: int) -> None:
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    assert nearest(store, [[1, 0], [0, 0], [0, 1]], k) == [[0, 1], [0, 1], [1, 0]]


def test_an_empty_store_finds_nothing_and_adding_nothing_changes_nothing(store: BuiltInStore) -> None:
    assert nearest(store, [[1, 2], [0, 0]], 3) == [[], []]
    store.add([], np.empty((0, 5), np.float32))
    assert nearest(store, [[1, 2]], 3) == [[]]
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    store.add([], np.empty((0, 2), np.float32))
    assert len(store) == 2


def test_clear_forgets_vectors_and_dimension(store: BuiltInStore) -> None:
    store.clear()
    store.add(chunks(5), np.ones((5, 4), np.float32))
    store.clear()
    assert len(store) == 0
    assert nearest(store, np.ones((1, 4)), 1) == [[]]
    store.add(chunks(1), np.ones((1, 2), np.float32))
    assert nearest(store, [[1, 1]], 9) == [[0]]
    store.clear()
    store.clear()


@pytest.mark.parametrize("length", [1e-30, 1.0, 1e30])
def test_length_does_not_matter(store: BuiltInStore, length: float) -> None:
    store.add(chunks(3), vectors([[3, 4], [4, 3], [-3, 4]]) * np.float32(length))
    for scale in (1.0, length):
        found = store.search_many(vectors([[3, 4]]) * np.float32(scale), 3)
        assert found.chunks.tolist() == [0, 1, 2]
        np.testing.assert_allclose(found.scores, [1, 0.96, 0.28], atol=2e-7)


def test_a_score_is_never_above_one(store: BuiltInStore) -> None:
    embeddings = np.random.default_rng(8).normal(size=(200, 3)).astype(np.float32)
    store.add(chunks(200), embeddings)
    assert store.search_many(embeddings, 1).scores.max() == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_row(store: BuiltInStore, bad: float) -> None:
    with pytest.raises(TableError, match="row 1 of the embeddings has a number that is not finite"):
        store.add(chunks(3), vectors([[1, 2], [bad, 2], [1, 2]]))
    assert len(store) == 0
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    with pytest.raises(TableError, match="row 2 of the query vectors has a number that is not finite"):
        store.search_many(vectors([[1, 2], [0, 0], [1, bad]]), 1)


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.array([[1e300, 1.0]] * 2), "row 0 of the embeddings"),  # too large for float32
        (np.ones(2), "give one vector per row"),
        (np.ones((2, 2, 2)), "give one vector per row"),
        (np.ones((2, 0)), "give one vector per row"),
        ([[1.0], [1.0, 2.0]], "not an array of numbers"),
        (np.ones((1, 4)), "2 chunks and 1 vectors"),
    ],
)
def test_what_cannot_be_the_vectors_of_two_chunks_is_refused(
    store: BuiltInStore, embeddings: np.ndarray, message: str
) -> None:
    with pytest.raises(TableError, match=message):
        store.add(chunks(2), embeddings)
    assert len(store) == 0


def test_the_wrong_dimension_is_refused_with_both_numbers(store: BuiltInStore) -> None:
    store.add(chunks(3), np.eye(3, dtype=np.float32))
    with pytest.raises(TableError, match="the query vectors have 2 dimensions, the store's vectors have 3"):
        store.search_many(vectors([[1, 0]]), 1)
    with pytest.raises(TableError, match="the embeddings have 4 dimensions, the store's vectors have 3"):
        store.add(chunks(1), np.ones((1, 4), np.float32))
    assert len(store) == 3


@pytest.mark.parametrize("k", [0, -1])
def test_k_must_be_positive(store: BuiltInStore, k: int) -> None:
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    with pytest.raises(ConfigurationError, match=f"k is {k}"):
        store.search_many(vectors([[1, 0]]), k)


def test_the_vectors_given_are_left_as_they_were(store: BuiltInStore) -> None:
    embeddings, queries = vectors([[3, 4], [0, 0]]), vectors([[5, 12]])
    store.add(chunks(2), embeddings)
    before = store.search_many(queries, 2)
    embeddings[:] = 9
    assert queries.tolist() == [[5, 12]]
    assert_same(store.search_many(queries, 2), before)
