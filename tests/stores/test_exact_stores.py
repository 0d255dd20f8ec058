"""The exact stores agree hit for hit, with each other and with a naive computation."""

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.stores import exact_search, memory, store
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.stores.store import BuiltInStore
from rag_eval.types.documents import Corpus
from tests.stores.contract import EXACT, assert_same, chunks, naive, nearest, random_vectors, vectors

CHROMA = Path(__file__).parents[2].parent / "shared" / "data" / "chroma"
ROUNDS = settings(deadline=None, derandomize=True, max_examples=30)


@pytest.fixture(params=EXACT)
def exact(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltInStore:
    made: BuiltInStore = EXACT[request.param](tmp_path)
    return made


@pytest.fixture(params=EXACT, scope="module")
def reused(request: pytest.FixtureRequest) -> Iterator[BuiltInStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield EXACT[request.param](Path(folder))


def assert_exact(
    store: BuiltInStore, embeddings: NDArray[np.float32], queries: NDArray[np.float32], ks: list[int]
) -> None:
    whole = naive(embeddings, queries, max(ks))  # once: fewer are the first of them
    for k in ks:
        assert_same(store.search_many(queries, k), whole.first(k))


@pytest.mark.parametrize("dimension", [1, 2, 7, 64, 300])
def test_random_vectors(exact: BuiltInStore, dimension: int) -> None:
    embeddings, queries = random_vectors(300, dimension, 1), random_vectors(25, dimension, 2)
    exact.add(chunks(300), embeddings)
    assert_exact(exact, embeddings, queries, [1, 10, 299, 300, 400])


def test_repeated_vectors(exact: BuiltInStore) -> None:
    distinct = random_vectors(15, 48, 3)
    embeddings = distinct[np.random.default_rng(4).integers(0, 15, 600)]
    queries = np.concatenate([distinct[:5], random_vectors(15, 48, 5)])
    exact.add(chunks(100), embeddings[:100])
    exact.add(chunks(500), embeddings[100:])
    assert_exact(exact, embeddings, queries, [1, 5, 60])


def test_vectors_a_rounding_apart(exact: BuiltInStore) -> None:
    """Neighbours in float32, whose kernel scores depend on where they stand in a tile."""
    base = random_vectors(1, 96, 6)
    embeddings = base * (np.random.default_rng(7).integers(-2, 3, (400, 96)).astype(np.float32) * np.float32(6e-8) + 1)
    exact.add(chunks(400), embeddings)
    assert_exact(exact, embeddings, np.concatenate([base, random_vectors(10, 96, 8)]), [1, 10, 50])


def test_scores_that_cancel_to_zero(exact: BuiltInStore) -> None:
    """The same numbers in another order: equal in mathematics, apart by the noise of the sum near 0."""
    rng = np.random.default_rng(9)
    embeddings = np.stack([rng.permutation(vectors([1, 2, -3, 5, 0.3, -5.3])) for _ in range(60)])
    exact.add(chunks(60), embeddings)
    assert_exact(exact, embeddings, vectors([[1, 1, 1, 1, 1, 1], [7, 7, 7, 7, 7, 7.5]]), [20])


@ROUNDS
@given(data=st.data())
def test_few_values_and_many_ties(reused: BuiltInStore, data: st.DataObject) -> None:
    dimension = data.draw(st.integers(1, 5))
    row = st.lists(st.integers(-1, 1), min_size=dimension, max_size=dimension)
    embeddings = vectors(data.draw(st.lists(row, min_size=1, max_size=60)))
    queries = vectors(data.draw(st.lists(row, min_size=1, max_size=4)))
    k, count = data.draw(st.integers(1, 12)), len(embeddings)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=2)))
    reused.clear()
    for begin, end in zip([0, *cuts], [*cuts, count], strict=True):
        reused.add(chunks(end - begin), embeddings[begin:end])
    assert_exact(reused, embeddings, queries, [k])
    among = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    everything = naive(embeddings, queries, count)
    assert_same(reused.search_many(queries, k, among), everything.where(among[everything.chunks]).first(k))


@pytest.mark.parametrize("k", [1, 5, 16, 17, 40, 150])
@pytest.mark.parametrize("distinct", [3, 150])
def test_borders_of_tiles_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, k: int, distinct: int) -> None:
    for module in (exact_search, store, memory):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 16)
    monkeypatch.setattr(exact_search, "SUMMED_AT_ONCE", 24)
    monkeypatch.setattr(InMemoryVectorStore, "_queries_at_once", 7)
    tiled, embeddings = InMemoryVectorStore(), random_vectors(distinct, 6, 1)
    embeddings = embeddings[np.random.default_rng(2).integers(0, distinct, 150)]
    tiled.add(chunks(150), embeddings)
    assert_exact(tiled, embeddings, random_vectors(20, 6, 3), [k])
    angles = np.linspace(-3, 3, 150)  # scores that rise, and fall, from tile to tile
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    for rows in (embeddings, embeddings[::-1]):
        tiled.clear()
        tiled.add(chunks(150), rows)
        assert_exact(tiled, rows, random_vectors(3, 2, 4), [k])


def peak_megabytes(store: InMemoryVectorStore, queries: np.ndarray, k: int) -> float:
    tracemalloc.start()
    store.search_many(queries, k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def test_memory_grows_neither_with_queries_times_rows_nor_with_ties() -> None:
    store = InMemoryVectorStore()
    store.fill([random_vectors(60_000, 8, 5)])
    store.search_many(random_vectors(2, 8, 6), 10)
    assert peak_megabytes(store, random_vectors(2_000, 8, 6), 10) < 60  # all scores at once: 458 MB
    store.clear()
    store.fill([np.ones((60_000, 4), np.float32)])
    store.search_many(random_vectors(2, 4, 7), 10)
    assert peak_megabytes(store, random_vectors(120, 4, 7), 10) < 250  # a tile of ties; all pairs: 7.2 M


def test_exact_search_has_no_recall_to_measure() -> None:
    store = InMemoryVectorStore()
    store.add(chunks(40), random_vectors(40, 8, 1))
    assert store.is_exact
    assert store.recall(random_vectors(5, 8, 2), 10) is None


@pytest.mark.skipif(not CHROMA.is_dir(), reason="Chroma's dataset is not at ../shared/data/chroma")
def test_chunks_of_a_real_corpus(exact: BuiltInStore) -> None:
    import csv

    corpus = Corpus.from_folder(CHROMA / "corpora", "*.md")
    chunker, embedder = RecursiveTokenChunker(chunk_size=400, chunk_overlap=0), LocalEmbedder()
    kept = [piece for document in corpus.documents for piece in chunker.chunk_with_positions(document)]
    embeddings = embedder.embed([piece.content for piece in kept])
    with (CHROMA / "questions_df.csv").open(encoding="utf-8", newline="") as lines:
        queries = embedder.embed([row["question"] for row in csv.DictReader(lines)])
    exact.add(kept, embeddings)
    found = nearest(exact, queries, 5)
    assert len(queries) == 472
    # All 472 in plain float64, and the slow twin for some.
    cosine = queries.astype(np.float64) @ embeddings.astype(np.float64).T
    for row, scores in enumerate(cosine):
        near = np.argsort(-scores)[:40].tolist()
        expected = sorted(near, key=lambda number: (-round(scores[number] * 2**22), number))[:5]
        assert found[row] == expected
    assert_same(exact.search_many(queries[:8], 5), naive(embeddings, queries[:8], 5))
