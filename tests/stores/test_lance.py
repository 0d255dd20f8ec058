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
from rag_eval.stores.lance import Hnsw, IvfPq, LanceDBVectorStore
from tests.stores.contract import assert_same, chunks, naive, nearest, random_vectors, vectors


def filled(folder: Path, count: int, index: IvfPq | Hnsw | None = None) -> tuple[LanceDBVectorStore, np.ndarray]:
    """A store of so many random vectors, added in two parts."""
    store, embeddings = LanceDBVectorStore(folder, index=index), random_vectors(count, 16, 5)
    store.add(chunks(count // 2), embeddings[: count // 2])
    store.add(chunks(count - count // 2), embeddings[count // 2 :])
    return store, embeddings


def shared(found: list[list[int]], exact: list[list[int]]) -> float:
    return float(np.mean([len({*a} & {*b}) / len(b) for a, b in zip(found, exact, strict=True)]))


def test_importing_the_module_does_not_import_lancedb() -> None:
    code = "import rag_eval.stores.lance, sys; sys.exit('lancedb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_filled_a_new_table_is_let_go_at_once(tmp_path: Path) -> None:
    def fill() -> "weakref.ref[object]":
        embeddings = random_vectors(200, 16, 1)
        LanceDBVectorStore(tmp_path).fill([embeddings])
        return weakref.ref(embeddings)

    gc.disable()  # commands look for garbage seldom
    try:
        assert fill()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("place", ["{}", "file://{}/lake"])
def test_a_store_opened_on_a_table_searches_at_once_and_goes_on(tmp_path: Path, place: str) -> None:
    uri, embeddings, queries = place.format(tmp_path), random_vectors(300, 8, 3), random_vectors(7, 8, 4)
    first = LanceDBVectorStore(uri)
    for begin in range(0, 200, 40):
        first.add(chunks(40), embeddings[begin : begin + 40])
    opened = LanceDBVectorStore(uri)
    assert len(opened) == 200
    assert_same(opened.search_many(queries, 6), naive(embeddings[:200], queries, 6))
    with pytest.raises(TableError, match="the query vectors have 3 dimensions, the store's vectors have 8"):
        opened.search_many(vectors([[1, 2, 3]]), 1)
    opened.add(chunks(100), embeddings[200:])
    lancedb.connect(uri).open_table("chunks").optimize()
    for store in (opened, LanceDBVectorStore(uri)):
        assert_same(store.search_many(queries, 6), naive(embeddings, queries, 6))


def test_rows_of_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    LanceDBVectorStore(tmp_path).add(chunks(3), np.eye(3, dtype=np.float32))
    table = lancedb.connect(tmp_path).open_table("chunks")
    table.add(table.to_arrow().slice(1, 1))
    with pytest.raises(TableError, match="two writers at once"):
        LanceDBVectorStore(tmp_path)


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    lancedb.connect(tmp_path).create_table("chunks", pa.table({"vector": [[1.0, 2.0]], "text": ["x"]}))
    with pytest.raises(TableError, match=r"the LanceDB table 'chunks' in .* has the columns \['text', 'vector'\]"):
        LanceDBVectorStore(tmp_path)


@pytest.mark.parametrize("index", [IvfPq(num_partitions=4, nprobes=4), Hnsw(num_partitions=2, ef=80)])
def test_an_index_is_searched_as_it_is(tmp_path: Path, index: Hnsw | IvfPq) -> None:
    (store, embeddings), queries = filled(tmp_path, 1500, index), random_vectors(30, 16, 6)
    assert store.name == f"lancedb(index={index})"
    found = store.search_many(queries, 10)
    # What the index itself answers, asked without the store.
    table = lancedb.connect(tmp_path).open_table("chunks")
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    asked = index.tune(table.search(units, vector_column_name="vector").distance_type("dot").limit(10))
    answer = asked.select(["number", "_distance"]).to_arrow()
    theirs = answer.column("number").to_numpy().reshape(30, 10)
    numbers = nearest(store, queries, 10)
    assert [set(row) for row in numbers] == [set(row) for row in theirs.tolist()]
    np.testing.assert_allclose(found.scores, 1 - answer.column("_distance").to_numpy(), atol=1e-5)
    exact = LanceDBVectorStore(tmp_path)
    assert_same(exact.search_many(queries, 10), naive(embeddings, queries, 10))
    assert 0.05 < shared(numbers, nearest(exact, queries, 10)) <= 1  # how the index is trained is chance


def test_an_index_is_asked_by_many_at_once_as_by_each_alone_whichever_chunks_may_be_found(tmp_path: Path) -> None:
    index, queries = IvfPq(num_partitions=8, nprobes=1), random_vectors(40, 16, 6)
    store, _ = filled(tmp_path, 600, index)
    some = np.isin(np.arange(600) // 40, [0, 3, 4, 14])  # the first and the last among them
    table = lancedb.connect(tmp_path).open_table("chunks")
    for among in (None, some):
        found = nearest(store, queries, 5, among)
        assert found == [numbers for query in queries for numbers in nearest(store, [query], 5, among)]
        assert found != nearest(LanceDBVectorStore(tmp_path), queries, 5, among)
        listed = ", ".join(map(str, np.flatnonzero(np.ones(600) if among is None else among).tolist()))
        for query, numbers in zip(queries, found, strict=True):
            asked = table.search(query / np.linalg.norm(query), vector_column_name="vector").distance_type("dot")
            theirs = index.tune(asked.limit(5)).where(f"number IN ({listed})", prefilter=True).to_arrow()
            assert {*numbers} == {*theirs.column("number").to_pylist()}


def test_a_refined_index_finds_more_than_a_compressed_one(tmp_path: Path) -> None:
    plain_index, queries = IvfPq(num_partitions=4, nprobes=4), random_vectors(30, 16, 6)
    filled(tmp_path, 1500, plain_index)
    exact = nearest(LanceDBVectorStore(tmp_path), queries, 5)
    recalls = []
    for index in (plain_index, IvfPq(num_partitions=4, nprobes=4, refine_factor=20)):
        store = LanceDBVectorStore(tmp_path, index=index)
        recalls.append(shared(nearest(store, queries, 5), exact))
        assert store.recall(queries, 5, 5) == pytest.approx(recalls[-1])
    assert recalls[0] < recalls[1]


def test_recall_is_that_of_the_first_ten_and_unknown_of_exact_search(tmp_path: Path) -> None:
    queries, index = random_vectors(100, 16, 6), IvfPq(num_partitions=8, nprobes=1)
    assert LanceDBVectorStore(tmp_path, index=index).recall(queries, 10) is None  # of nothing
    store, embeddings = filled(tmp_path, 600, index)
    assert LanceDBVectorStore(tmp_path).recall(queries, 10) is None
    found = [numbers[:10] for numbers in nearest(store, queries, 40)]
    exact = [numbers.tolist() for numbers in naive(embeddings, queries, 10).by_search(100)]
    assert store.recall(queries, 40) == pytest.approx(shared(found, exact))
    assert store.recall(np.zeros((3, 16), np.float32), 10) is None


def test_a_chunk_as_near_as_the_last_counts_as_found(tmp_path: Path) -> None:
    embeddings = random_vectors(2, 16, 5)[np.arange(600) % 2]
    store = LanceDBVectorStore(tmp_path, index=Hnsw(num_partitions=1))
    store.add(chunks(600), embeddings)
    assert store.recall(embeddings[:1], 10) == 1.0


def test_an_index_that_is_not_there_cannot_be_evaluated(tmp_path: Path) -> None:
    LanceDBVectorStore(tmp_path).add(chunks(3), np.eye(3, dtype=np.float32))
    with pytest.raises(ConfigurationError, match=r"has the indexes \[\], not IvfPq"):
        LanceDBVectorStore(tmp_path, index=IvfPq())


def test_a_single_query_to_a_small_index(tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path, index=Hnsw())
    store.add(chunks(3), np.eye(3, 16, dtype=np.float32))
    assert nearest(store, np.eye(3, 16)[1:2], 1) == [[1]]
