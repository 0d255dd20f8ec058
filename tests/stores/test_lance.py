from pathlib import Path

import numpy as np
import pytest

from rag_eval import DocumentId, PositionAwareChunk, generate_pa_chunk_id
from rag_eval.errors import TableError
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.tables import chunks_to_table


def chunk(doc: str, start: int) -> PositionAwareChunk:
    return PositionAwareChunk(generate_pa_chunk_id("same"), "same", DocumentId(doc), start, start + 4)


def test_search_equals_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    vectors, queries = rng.normal(size=(300, 16)).astype(np.float32), rng.normal(size=(40, 16)).astype(np.float32)
    store = LanceDBVectorStore(tmp_path)
    store.add_table(chunks_to_table([chunk(f"{n // 50}.md", n % 50) for n in range(300)]), vectors)
    cosine = queries @ vectors.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(vectors, axis=1)
    best = np.argsort(-cosine, axis=1)[:, :7]
    found = store.search_many(queries, 7)
    assert found.column("query_index").to_pylist() == [n for n in range(40) for _ in range(7)]
    assert found.column("rank").to_pylist() == [*range(1, 8)] * 40
    places = list(zip(found.column("doc_id").to_pylist(), found.column("start").to_pylist(), strict=True))
    assert places == [(f"{n // 50}.md", n % 50) for n in best.ravel()]
    np.testing.assert_allclose(found.column("score").to_numpy(), np.take_along_axis(cosine, best, 1).ravel(), atol=1e-6)


def test_equal_texts_at_different_places_are_kept_apart_and_ties_are_broken_by_place(tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path)
    chunks = [chunk("b.md", 0), chunk("a.md", 9), chunk("a.md", 3)]
    store.add_table(chunks_to_table(chunks), np.ones((3, 4), np.float32))
    found = store.search_many(np.ones((1, 4), np.float32), 2)
    assert found.select(["doc_id", "start"]).to_pylist() == [
        {"doc_id": "a.md", "start": 3},
        {"doc_id": "a.md", "start": 9},
    ]


def test_a_zero_vector_is_found_at_score_zero(tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path)
    store.add_table(chunks_to_table([chunk("a.md", 0), chunk("b.md", 0)]), np.array([[0, 0], [1, 0]], np.float32))
    found = store.search_many(np.array([[1, 0], [0, 0]], np.float32), 5)
    assert found.column("score").to_pylist() == [1, 0, 0, 0]
    assert found.column("doc_id").to_pylist() == ["b.md", "a.md", "a.md", "b.md"]


def test_every_chunk_needs_a_vector(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="2 chunks and 1 vectors"):
        LanceDBVectorStore(tmp_path).add_table(
            chunks_to_table([chunk("a.md", 0), chunk("b.md", 0)]), np.ones((1, 4), np.float32)
        )
