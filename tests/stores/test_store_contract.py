"""What every store owes, the approximate ones too."""

from pathlib import Path

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError, TableError, TextEncodingError
from rag_eval.stores.exact_search import BuiltInStore
from rag_eval.stores.store import VectorStore
from tests.stores.contract import ALL, HAS_CHROMA, assert_same, chunk, chunks, naive, numbers_of, plain, vectors


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltInStore:
    if request.param == "chroma" and not HAS_CHROMA:
        pytest.skip("chromadb is not installed")
    made: BuiltInStore = ALL[request.param](tmp_path / "database")
    return made


def test_it_is_a_store_with_a_name(store: BuiltInStore) -> None:
    assert isinstance(store, VectorStore)
    assert store.name


def test_the_best_come_first_with_their_cosine(store: BuiltInStore) -> None:
    kept = [chunk("a.md", 0, "one"), chunk("a.md", 3, "two"), chunk("b.md", 0, "three")]
    store.add(kept, vectors([[2, 0], [3, 3], [0, -5]]))
    hits = store.search(vectors([0, 7]), 3)
    assert [hit.chunk for hit in hits] == [kept[1], kept[0], kept[2]]
    assert [hit.number for hit in hits] == [1, 0, 2]
    np.testing.assert_allclose([hit.score for hit in hits], [np.sqrt(0.5), 0, -1], atol=1e-7)
    assert len(store) == 3


def test_many_queries_at_once_find_what_each_finds_alone(store: BuiltInStore) -> None:
    rng = np.random.default_rng(3)
    store.add(chunks(60), rng.normal(size=(60, 8)).astype(np.float32))
    queries = rng.normal(size=(20, 8)).astype(np.float32)
    together = store.search_many(queries, 4)
    for row, query in enumerate(queries):
        alone = store.search(query, 4)
        assert [hit.number for hit in alone] == together.numbers[row].tolist()
        assert [hit.score for hit in alone] == together.scores[row].tolist()


def test_no_queries_find_nothing(store: BuiltInStore) -> None:
    store.add(chunks(3), np.eye(3, dtype=np.float32))
    assert store.search_many(np.empty((0, 3), np.float32), 2).numbers.shape == (0, 2)


def test_equal_texts_at_different_places_stay_apart(store: BuiltInStore) -> None:
    kept = [chunk("b.md", 0), chunk("a.md", 9), chunk("a.md", 3)]
    store.add(kept, np.ones((3, 4), np.float32))
    assert [hit.chunk for hit in store.search(np.ones(4, np.float32), 5)] == [kept[2], kept[1], kept[0]]


def test_equal_scores_are_ordered_by_document_start_and_end(store: BuiltInStore) -> None:
    # Code points, not the alphabet: capitals first, then accents, then what lies beyond the basic plane.
    docs = ["\U0001f600.md", "é.md", "a.md", "B.md", "\ufffd.md"]
    kept = [chunk(doc, start, text) for doc in docs for start, text in ((10, "x"), (2, "long"), (2, "x"))]
    store.add(kept, np.tile(vectors([1, 2, 3]), (len(kept), 1)))
    hits = store.search(vectors([1, 1, 1]), 9)
    expected = sorted(kept, key=lambda piece: (piece.doc_id, piece.start, piece.end))[:9]
    assert [hit.chunk for hit in hits] == expected


def test_ties_deeper_than_what_a_search_fetches_first_are_ordered_by_place(store: BuiltInStore) -> None:
    kept = chunks(90)
    store.add(kept, np.tile(vectors([0.1, 0.7, 0.3]), (90, 1)))
    result = store.search_many(vectors([[1, 2, 3], [3, 2, 1]]), 3)
    first = sorted(range(90), key=lambda number: (kept[number].doc_id, kept[number].start))[:3]
    assert result.numbers.tolist() == [first, first]


def test_chunks_without_a_place_are_ordered_as_they_stood_in_their_document(store: BuiltInStore) -> None:
    kept = [plain("b.md"), plain("a.md", "one"), plain("a.md", "two")]
    store.add(kept, np.ones((3, 2), np.float32))
    store.add([plain("a.md", "three")], np.ones((1, 2), np.float32))
    hits = store.search(np.ones(2, np.float32), 9)
    assert [(hit.chunk.doc_id, hit.chunk.content) for hit in hits] == [
        ("a.md", "one"),
        ("a.md", "two"),
        ("a.md", "three"),
        ("b.md", "same"),
    ]
    assert all(type(hit.chunk) is type(kept[0]) for hit in hits)


def test_a_zero_vector_is_found_at_score_zero(store: BuiltInStore) -> None:
    store.add([chunk("a.md", 0), chunk("b.md", 0), chunk("c.md", 0)], vectors([[0, 0], [1, 0], [-1, 0]]))
    hits = store.search(vectors([1, 0]), 3)
    assert [(hit.chunk.doc_id, hit.score) for hit in hits] == [("b.md", 1.0), ("a.md", 0.0), ("c.md", -1.0)]


def test_a_zero_query_finds_the_first_by_place_at_score_zero(store: BuiltInStore) -> None:
    kept = chunks(50)
    store.add(kept, np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32))
    result = store.search_many(vectors([[0, 0, 0, 0], [1, 0, 0, 0]]), 4)
    assert result.numbers[0].tolist() == sorted(range(50), key=lambda n: (kept[n].doc_id, kept[n].start))[:4]
    assert result.scores[0].tolist() == [0.0] * 4
    assert result.scores[1, 0] > 0.5


def test_the_order_of_addition_changes_the_numbers_and_nothing_else(store: BuiltInStore) -> None:
    kept = chunks(40)
    embeddings = np.random.default_rng(2).integers(-1, 2, (40, 3)).astype(np.float32)
    queries = np.random.default_rng(5).integers(-2, 3, (10, 3)).astype(np.float32)
    store.add(kept, embeddings)
    together = [[(hit.chunk, hit.score) for hit in store.search(query, 7)] for query in queries]
    store.clear()
    order = np.random.default_rng(4).permutation(40)
    for part in np.array_split(order, 7):
        store.add([kept[number] for number in part], embeddings[part])
    assert [[(hit.chunk, hit.score) for hit in store.search(query, 7)] for query in queries] == together
    expected = naive(kept, embeddings, queries, 7)
    back = np.argsort(order)
    np.testing.assert_array_equal(store.search_many(queries, 7).numbers, back[expected.numbers])


@pytest.mark.parametrize("k", [4, 10**9])
def test_where_there_are_fewer_than_k_all_are_found_and_k_costs_no_memory(store: BuiltInStore, k: int) -> None:
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    result = store.search_many(vectors([[1, 0], [0, 0], [0, 1]]), k)
    assert result.numbers.shape == result.scores.shape == (3, 2)
    assert [len(row) for row in numbers_of(result)] == [2, 2, 2]
    assert len(store.search(vectors([1, 0]), k)) == 2


def test_an_empty_store_finds_nothing(store: BuiltInStore) -> None:
    assert store.search(vectors([1, 2]), 3) == []
    result = store.search_many(vectors([[1, 2], [0, 0]]), 3)
    assert result.numbers.tolist() == [[], []]
    store.add([], np.empty((0, 5), np.float32))
    assert store.search(vectors([1, 2]), 3) == []


def test_adding_nothing_changes_nothing(store: BuiltInStore) -> None:
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    store.add([], np.empty((0, 2), np.float32))
    assert len(store) == 2


def test_clear_forgets_chunks_places_and_dimension(store: BuiltInStore) -> None:
    store.clear()
    store.add(chunks(5), np.ones((5, 4), np.float32))
    store.clear()
    assert len(store) == 0
    assert store.search(np.ones(4, np.float32), 1) == []
    store.add([plain("z.md")], np.ones((1, 2), np.float32))
    assert [hit.number for hit in store.search(vectors([1, 1]), 9)] == [0]
    store.clear()
    store.clear()


def test_ugly_text_and_metadata_come_back_as_they_were(store: BuiltInStore) -> None:
    texts = ["\x00", "\r\n\r", "👩🏽‍🚀 ﷽", "\u2028<|endoftext|>", " ", "x" * 100_000]
    kept = [chunk("ü/ 'quoted\".md", 10 * number, text) for number, text in enumerate(texts)]
    kept[0].metadata["deep"] = {"list": [1, None, "é"], "": True}  # type: ignore[index]  # a dict, in these tests
    store.add(kept, np.eye(6, dtype=np.float32))
    for number, vector in enumerate(np.eye(6, dtype=np.float32)):
        assert store.search(vector, 1)[0].chunk == kept[number]
    assert store.search(vectors([1, 0, 0, 0, 0, 0]), 1)[0].chunk.metadata == kept[0].metadata


def test_chunks_are_given_back_by_number(store: BuiltInStore) -> None:
    kept = chunks(12)
    store.add(kept, np.ones((12, 2), np.float32))
    assert store.chunks(np.array([7, 3, 7, 0])) == [kept[7], kept[3], kept[7], kept[0]]
    assert store.chunks(np.empty(0, np.int64)) == []


@pytest.mark.parametrize("length", [1e-30, 1.0, 1e30])
def test_length_does_not_matter(store: BuiltInStore, length: float) -> None:
    store.add(chunks(3), vectors([[3, 4], [4, 3], [-3, 4]]) * np.float32(length))
    plain_length = store.search_many(vectors([[3, 4]]), 3)
    scaled = store.search_many(vectors([[3, 4]]) * np.float32(length), 3)
    assert plain_length.numbers.tolist() == [[0, 1, 2]]
    np.testing.assert_allclose(plain_length.scores, [[1, 0.96, 0.28]], atol=2e-7)
    np.testing.assert_allclose(plain_length.scores, scaled.scores, atol=2e-7)


def test_a_score_is_never_above_one(store: BuiltInStore) -> None:
    embeddings = np.random.default_rng(8).normal(size=(200, 3)).astype(np.float32)
    store.add(chunks(200), embeddings)
    assert store.search_many(embeddings, 1).scores.max() == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_row(store: BuiltInStore, bad: float) -> None:
    with pytest.raises(TableError, match="row 1 of the embeddings holds a number that is not finite"):
        store.add(chunks(3), vectors([[1, 2], [bad, 2], [1, 2]]))
    assert len(store) == 0
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    with pytest.raises(TableError, match="row 2 of the query vectors holds a number that is not finite"):
        store.search_many(vectors([[1, 2], [0, 0], [1, bad]]), 1)
    with pytest.raises(TableError, match="row 0 of the query vectors"):
        store.search(vectors([bad, 1]), 1)


def test_vectors_too_large_for_float32_are_refused(store: BuiltInStore) -> None:
    with pytest.raises(TableError, match="row 0 of the embeddings"):
        store.add(chunks(1), np.array([[1e300, 1.0]]))  # type: ignore[arg-type]  # float64 on purpose


def test_the_wrong_dimension_is_refused_with_both_numbers(store: BuiltInStore) -> None:
    store.add(chunks(3), np.eye(3, dtype=np.float32))
    with pytest.raises(TableError, match="the query vectors have 2 dimensions, the store's vectors have 3"):
        store.search(vectors([1, 0]), 1)
    with pytest.raises(TableError, match="the embeddings have 4 dimensions, the store's vectors have 3"):
        store.add([chunk("new.md", 0)], np.ones((1, 4), np.float32))
    assert len(store) == 3


@pytest.mark.parametrize("shape", [(2,), (2, 2, 2), (2, 0)])
def test_vectors_stand_one_a_row(store: BuiltInStore, shape: tuple[int, ...]) -> None:
    with pytest.raises(TableError, match="give one vector a row"):
        store.add(chunks(2), np.ones(shape, np.float32))


def test_what_is_not_numbers_is_refused(store: BuiltInStore) -> None:
    with pytest.raises(TableError, match="not an array of numbers"):
        store.add(chunks(2), [[1.0], [1.0, 2.0]])  # type: ignore[arg-type]  # ragged on purpose


def test_every_chunk_needs_a_vector(store: BuiltInStore) -> None:
    with pytest.raises(TableError, match="2 chunks and 1 vectors"):
        store.add(chunks(2), np.ones((1, 4), np.float32))
    with pytest.raises(TableError, match="0 chunks and 1 vectors"):
        store.add([], np.ones((1, 4), np.float32))


@pytest.mark.parametrize("k", [0, -1])
def test_k_must_be_positive(store: BuiltInStore, k: int) -> None:
    store.add(chunks(2), np.eye(2, dtype=np.float32))
    with pytest.raises(ConfigurationError, match=f"k is {k}"):
        store.search(vectors([1, 0]), k)
    with pytest.raises(ConfigurationError, match=f"k is {k}"):
        store.search_many(vectors([[1, 0]]), k)


def test_a_place_is_kept_once(store: BuiltInStore) -> None:
    store.add([chunk("a.md", 0), chunk("a.md", 4)], np.eye(2, dtype=np.float32))
    with pytest.raises(TableError, match=r"two chunks stand at \[4, 8\) of 'a.md', the second in row 1 of what"):
        store.add([chunk("b.md", 4), chunk("a.md", 4)], np.eye(2, dtype=np.float32))
    with pytest.raises(TableError, match=r"two chunks stand at \[0, 4\) of 'c.md', the second in row 2"):
        store.add([chunk("c.md", 0), chunk("c.md", 1), chunk("c.md", 0)], np.ones((3, 2), np.float32))
    assert len(store) == 2
    store.add([chunk("b.md", 4)], vectors([[1, 0]]))
    assert [hit.number for hit in store.search(vectors([1, 0]), 5)] == [0, 2, 1]


def test_chunks_with_and_without_a_place_are_not_mixed(store: BuiltInStore) -> None:
    with pytest.raises(TableError, match="cannot share a store"):
        store.add([chunk("a.md", 0), plain("a.md")], np.eye(2, dtype=np.float32))
    store.add([plain("a.md")], np.ones((1, 2), np.float32))
    with pytest.raises(TableError, match="cannot share a store"):
        store.add([chunk("a.md", 0)], np.ones((1, 2), np.float32))


def test_a_document_id_that_utf8_cannot_hold_is_refused(store: BuiltInStore) -> None:
    with pytest.raises(TextEncodingError, match=r"the document id '.udc80.md' has a lone surrogate"):
        store.add([chunk("\udc80.md", 0)], np.ones((1, 2), np.float32))
    assert len(store) == 0


def test_the_vectors_given_are_left_as_they_were(store: BuiltInStore) -> None:
    embeddings, queries = vectors([[3, 4], [0, 0]]), vectors([[5, 12]])
    store.add(chunks(2), embeddings)
    before = store.search_many(queries, 2)
    embeddings[:] = 9
    assert queries.tolist() == [[5, 12]]
    assert_same(store.search_many(queries, 2), before)
