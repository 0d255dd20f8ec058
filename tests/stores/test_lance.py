import gc
import subprocess
import sys
import weakref
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pytest

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.lance import TILED_FROM, Hnsw, IvfPq, LanceDBVectorStore
from rag_eval.tables import chunks_to_table
from tests.stores.contract import assert_same, chunk, chunks, naive, plain, random_vectors, vectors


def test_importing_the_module_does_not_import_lancedb() -> None:
    code = "import rag_eval.stores.lance, sys; sys.exit('lancedb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_tables_and_objects_make_the_same_store(tmp_path: Path) -> None:
    kept, embeddings, queries = chunks(200), random_vectors(200, 16, 1), random_vectors(9, 16, 2)
    by_table, by_object = LanceDBVectorStore(tmp_path, table="one"), LanceDBVectorStore(tmp_path, table="two")
    by_table.add_tables([(chunks_to_table(kept), embeddings)])
    by_object.add(kept, embeddings)
    assert_same(by_table.search_many(queries, 5), by_object.search_many(queries, 5))
    database = lancedb.connect(tmp_path)
    assert database.open_table("one").to_arrow().equals(database.open_table("two").to_arrow())
    assert by_table.chunks(np.arange(200)) == kept


def test_what_filled_a_new_table_is_let_go_at_once(tmp_path: Path) -> None:
    def fill() -> "weakref.ref[object]":
        embeddings = random_vectors(200, 16, 1)
        LanceDBVectorStore(tmp_path).add_tables([(chunks_to_table(chunks(200)), embeddings)])
        return weakref.ref(embeddings)

    gc.disable()  # commands look for garbage seldom
    try:
        assert fill()() is None
    finally:
        gc.enable()


def test_plain_chunks_come_as_a_table_too(tmp_path: Path) -> None:
    kept = [plain("b.md", "x"), plain("a.md", "y"), plain("a.md", "z")]
    store = LanceDBVectorStore(tmp_path)
    store.add_tables([(chunks_to_table(kept), np.ones((3, 2), np.float32))])
    assert store.chunks(np.array([2, 0])) == [kept[2], kept[0]]
    assert store.search_many(vectors([[1, 1]]), 3).numbers.tolist() == [[1, 2, 0]]
    assert store.take(np.array([2, 0]), ["ordinal", "doc_id"]).to_pylist() == [
        {"ordinal": 1, "doc_id": "a.md"},
        {"ordinal": 0, "doc_id": "b.md"},
    ]
    with pytest.raises(TableError, match=r"two chunks stand at ordinal 1 of 'a.md', the second in row 2"):
        store.add_tables(
            [
                (
                    chunks_to_table([plain("c.md"), plain("c.md"), plain("a.md"), plain("a.md")]).slice(1),
                    np.ones((3, 2), np.float32),
                )
            ]
        )


def test_a_table_that_is_not_one_of_chunks_is_refused(tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path)
    with pytest.raises(TableError, match=r"missing \['metadata'\]"):
        store.add_tables([(chunks_to_table(chunks(2)).drop_columns(["metadata"]), np.ones((2, 2), np.float32))])
    with pytest.raises(TableError, match="2 chunks and 3 vectors"):
        store.add_tables([(chunks_to_table(chunks(2)), np.ones((3, 2), np.float32))])
    store.add_tables([(chunks_to_table([]), np.empty((0, 7), np.float32))])
    assert len(store) == 0


@pytest.mark.parametrize("as_text", [True, False])
def test_a_store_opened_on_a_table_searches_at_once_and_goes_on(tmp_path: Path, as_text: bool) -> None:
    kept, embeddings, queries = chunks(300), random_vectors(300, 8, 3), random_vectors(7, 8, 4)
    first = LanceDBVectorStore(str(tmp_path) if as_text else tmp_path)
    for begin in range(0, 200, 40):
        first.add(kept[begin : begin + 40], embeddings[begin : begin + 40])
    opened = LanceDBVectorStore(tmp_path)
    assert len(opened) == 200
    assert_same(opened.search_many(queries, 6), naive(kept[:200], embeddings[:200], queries, 6))
    assert [hit.chunk for hit in opened.search(queries[0], 6)] == [hit.chunk for hit in first.search(queries[0], 6)]
    with pytest.raises(TableError, match="the query vectors have 3 dimensions, the store's vectors have 8"):
        opened.search(vectors([1, 2, 3]), 1)
    with pytest.raises(TableError, match="two chunks stand at"):
        opened.add(kept[:1], embeddings[:1])
    opened.add(kept[200:], embeddings[200:])
    assert_same(opened.search_many(queries, 6), naive(kept, embeddings, queries, 6))
    assert opened.chunks(np.arange(300)) == kept


def test_a_compacted_table_is_the_same_store(tmp_path: Path) -> None:
    kept, embeddings, queries = chunks(90), random_vectors(90, 8, 3), random_vectors(7, 8, 4)
    store = LanceDBVectorStore(tmp_path)
    for begin in range(0, 90, 10):
        store.add(kept[begin : begin + 10], embeddings[begin : begin + 10])
    lancedb.connect(tmp_path).open_table("chunks").optimize()
    assert_same(LanceDBVectorStore(tmp_path).search_many(queries, 6), naive(kept, embeddings, queries, 6))
    assert LanceDBVectorStore(tmp_path).chunks(np.arange(90)) == kept


def test_rows_that_lie_in_another_order_are_the_same_store(tmp_path: Path) -> None:
    kept, embeddings, queries = chunks(40), random_vectors(40, 8, 3), random_vectors(7, 8, 4)
    LanceDBVectorStore(tmp_path).add(kept, embeddings)
    database = lancedb.connect(tmp_path)
    rows = database.open_table("chunks").to_arrow().take(pa.array(np.random.default_rng(5).permutation(40)))
    database.create_table("chunks", rows, mode="overwrite")
    moved = LanceDBVectorStore(tmp_path)
    moved.add([chunk("new.md", 0)], embeddings[:1])
    kept.append(chunk("new.md", 0))
    assert moved.chunks(np.arange(41)) == kept
    assert_same(moved.search_many(queries, 6), naive(kept, np.concatenate([embeddings, embeddings[:1]]), queries, 6))


def test_what_another_store_added_meanwhile_is_seen_before_adding(tmp_path: Path) -> None:
    one, two = LanceDBVectorStore(tmp_path), LanceDBVectorStore(tmp_path)
    one.add([chunk("a.md", 0)], vectors([[1, 0]]))
    two.add([chunk("b.md", 0)], vectors([[1, 0]]))
    with pytest.raises(TableError, match=r"two chunks stand at \[0, 4\) of 'b.md'"):
        one.add([chunk("b.md", 0)], vectors([[1, 0]]))
    assert [hit.chunk.doc_id for hit in one.search(vectors([1, 0]), 9)] == ["a.md", "b.md"]
    two.clear()
    one.add([chunk("c.md", 0)], vectors([[1, 0, 0]]))
    assert [hit.chunk.doc_id for hit in LanceDBVectorStore(tmp_path).search(vectors([1, 0, 0]), 9)] == ["c.md"]


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_table_that_another_store_cleared_and_refilled_is_not_taken_for_the_old_one(
    tmp_path: Path, dimension: int
) -> None:
    stale, other = LanceDBVectorStore(tmp_path), LanceDBVectorStore(tmp_path)
    stale.add([chunk("a.md", 0), chunk("a.md", 4)], vectors([[1, 0], [0, 1]]))
    other.clear()
    other.add([chunk("x.md", 0), chunk("y.md", 0)], np.eye(2, dimension, dtype=np.float32))  # version 1 once more
    with pytest.raises(TableError, match="'chunks' was cleared by another store since this one read it"):
        stale.search(vectors([1, 0]), 2)
    if dimension == 3:
        with pytest.raises(TableError, match="2 dimensions, the store's vectors have 3"):
            stale.add([chunk("z.md", 0)], vectors([[1, 1]]))
    else:
        stale.add([chunk("z.md", 0)], vectors([[1, 1]]))
        found = [hit.chunk.doc_id for hit in stale.search(vectors([1, 0]), 9)]
        assert found == ["x.md", "z.md", "y.md"]
        assert found == [hit.chunk.doc_id for hit in LanceDBVectorStore(tmp_path).search(vectors([1, 0]), 9)]
    other.clear()
    with pytest.raises(TableError, match="was cleared by another store"):
        stale.search_many(np.ones((1, dimension), np.float32), 2)


def test_rows_of_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    LanceDBVectorStore(tmp_path).add(chunks(3), np.eye(3, dtype=np.float32))
    table = lancedb.connect(tmp_path).open_table("chunks")
    table.add(table.to_arrow().slice(1, 1))
    with pytest.raises(TableError, match="two writers at once"):
        LanceDBVectorStore(tmp_path)


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    lancedb.connect(tmp_path).create_table("chunks", pa.table({"vector": [[1.0, 2.0]], "text": ["x"]}))
    with pytest.raises(TableError, match=r"the LanceDB table 'chunks' has the columns \['text', 'vector'\]"):
        LanceDBVectorStore(tmp_path)
    assert len(LanceDBVectorStore(tmp_path, table="mine")) == 0


def test_metadata_that_json_would_change_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    piece = chunk("a.md", 0)
    piece.metadata["pair"] = (1, 2)  # type: ignore[index]  # a dict, in these tests
    store = LanceDBVectorStore(tmp_path)
    with pytest.raises(TableError, match="would not survive JSON"):
        store.add([piece], vectors([[1, 0]]))
    assert len(store) == 0
    assert store.search(vectors([1, 0]), 1) == []


def test_a_uri_and_storage_options_are_passed_on(tmp_path: Path) -> None:
    store = LanceDBVectorStore(f"file://{tmp_path}/lake", storage_options={"allow_http": "true"})
    store.add(chunks(3), np.eye(3, dtype=np.float32))
    assert len(LanceDBVectorStore(tmp_path / "lake")) == 3


@pytest.mark.parametrize("index", [IvfPq(num_partitions=4, nprobes=4), Hnsw(num_partitions=2, ef=80)])
def test_an_index_is_searched_as_it_is(tmp_path: Path, index: Hnsw | IvfPq) -> None:
    kept, embeddings, queries = chunks(1500), random_vectors(1500, 16, 5), random_vectors(30, 16, 6)
    store = LanceDBVectorStore(tmp_path, index=index)
    store.add(kept[:1000], embeddings[:1000])
    store.add(kept[1000:], embeddings[1000:])
    assert store.name == f"lancedb(index={index})"
    found = store.search_many(queries, 10)
    # What the index itself answers, asked without the store.
    table = lancedb.connect(tmp_path).open_table("chunks")
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    asked = index.tune(table.search(units, vector_column_name="vector").distance_type("dot").limit(10))
    answer = asked.select(["number", "_distance"]).to_arrow()
    theirs = answer.column("number").to_numpy().reshape(30, 10)
    assert [set(row) for row in found.numbers.tolist()] == [set(row) for row in theirs.tolist()]
    np.testing.assert_allclose(found.scores.ravel(), 1 - answer.column("_distance").to_numpy(), atol=1e-5)
    exact = LanceDBVectorStore(tmp_path).search_many(queries, 10)
    assert_same(exact, naive(kept, embeddings, queries, 10))
    shared = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found.numbers, exact.numbers, strict=True)])
    assert 0.05 < shared <= 1  # by chance 10 of 1,500; how the index is trained is chance too


def test_an_index_is_asked_by_many_at_once_as_by_each_alone_whichever_chunks_may_be_found(tmp_path: Path) -> None:
    kept, embeddings, queries = chunks(600), random_vectors(600, 16, 5), random_vectors(TILED_FROM + 8, 16, 6)
    index = IvfPq(num_partitions=8, nprobes=1)
    store = LanceDBVectorStore(tmp_path, index=index)
    store.add(kept, embeddings)
    some = np.isin(np.arange(600) // 40, [0, 3, 4, 14])  # the first and the last among them
    table = lancedb.connect(tmp_path).open_table("chunks")
    for among in (None, some):
        found = store.search_many(queries, 5, among)
        alone = [store.search_many(queries[row : row + 1], 5, among).numbers[0] for row in range(len(queries))]
        assert found.numbers.tolist() == np.array(alone).tolist()
        exact = LanceDBVectorStore(tmp_path).search_many(queries, 5, among).numbers
        assert found.numbers.tolist() != exact.tolist()
        listed = ", ".join(map(str, np.flatnonzero(np.ones(600) if among is None else among).tolist()))
        for query, numbers in zip(queries, found.numbers, strict=True):
            asked = table.search(query / np.linalg.norm(query), vector_column_name="vector").distance_type("dot")
            theirs = index.tune(asked.limit(5)).where(f"number IN ({listed})", prefilter=True).to_arrow()
            assert {*numbers[numbers >= 0].tolist()} == {*theirs.column("number").to_pylist()}


def test_a_refined_index_finds_more_than_a_compressed_one(tmp_path: Path) -> None:
    kept, embeddings, queries = chunks(1500), random_vectors(1500, 16, 5), random_vectors(30, 16, 6)
    plain_index = IvfPq(num_partitions=4, nprobes=4)
    LanceDBVectorStore(tmp_path, index=plain_index).add(kept, embeddings)
    exact = LanceDBVectorStore(tmp_path).search_many(queries, 5).numbers
    recalls = []
    for index in (plain_index, IvfPq(num_partitions=4, nprobes=4, refine_factor=20)):
        store = LanceDBVectorStore(tmp_path, index=index)
        found = store.search_many(queries, 5).numbers
        recalls.append(np.mean([len({*a} & {*b}) / 5 for a, b in zip(found, exact, strict=True)]))
        assert store.recall(queries, 5, 5) == pytest.approx(recalls[-1])
    assert recalls[0] < recalls[1]


def test_recall_is_that_of_the_first_ten_and_unknown_of_exact_search(tmp_path: Path) -> None:
    kept, embeddings, queries = chunks(600), random_vectors(600, 16, 5), random_vectors(100, 16, 6)
    index = IvfPq(num_partitions=8, nprobes=1)
    store = LanceDBVectorStore(tmp_path, index=index)
    assert store.recall(queries, 10) is None  # of nothing
    store.add(kept, embeddings)
    assert LanceDBVectorStore(tmp_path).recall(queries, 10) is None
    found, exact = store.search_many(queries, 40).numbers[:, :10], naive(kept, embeddings, queries, 10).numbers
    expected = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found, exact, strict=True)])
    assert store.recall(queries, 40) == pytest.approx(expected)
    assert store.recall(np.zeros((3, 16), np.float32), 10) is None


def test_a_chunk_as_near_as_the_last_counts_as_found(tmp_path: Path) -> None:
    kept, embeddings = chunks(600), random_vectors(2, 16, 5)[np.arange(600) % 2]
    store = LanceDBVectorStore(tmp_path, index=Hnsw(num_partitions=1))
    store.add(kept, embeddings)
    assert store.recall(embeddings[:1], 10) == 1.0


def test_an_index_that_is_not_there_cannot_be_evaluated(tmp_path: Path) -> None:
    LanceDBVectorStore(tmp_path).add(chunks(3), np.eye(3, dtype=np.float32))
    with pytest.raises(ConfigurationError, match=r"has the indexes \[\], not IvfPq"):
        LanceDBVectorStore(tmp_path, index=IvfPq())


def test_a_single_query_to_a_small_index(tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path, index=Hnsw())
    store.add(chunks(3), np.eye(3, 16, dtype=np.float32))
    assert store.search(np.eye(3, 16, dtype=np.float32)[1], 1)[0].number == 1


def test_what_another_store_added_meanwhile_is_seen_before_adding_tables(tmp_path: Path) -> None:
    one, two = LanceDBVectorStore(tmp_path), LanceDBVectorStore(tmp_path)
    two.add([chunk("b.md", 0)], vectors([[1, 0]]))
    one.add_tables([(chunks_to_table([chunk("a.md", 0)]), vectors([[1, 0]]))])
    assert [hit.chunk.doc_id for hit in one.search(vectors([1, 0]), 9)] == ["a.md", "b.md"]
    assert len(LanceDBVectorStore(tmp_path)) == 2
