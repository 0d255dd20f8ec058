"""The exact stores agree hit for hit, with each other and with a naive computation."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.stores.exact_search import BuiltInStore
from rag_eval.stores.lance import TILED_FROM
from rag_eval.stores.store import SearchResult
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Corpus
from tests.stores.contract import EXACT, assert_same, chunks, naive, plain, random_vectors, vectors

CHROMA = Path(__file__).parents[2].parent / "shared" / "data" / "chroma"
ROUNDS = settings(deadline=None, derandomize=True, max_examples=30)


@pytest.fixture(params=EXACT)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BuiltInStore:
    made: BuiltInStore = EXACT[request.param](tmp_path)
    return made


@pytest.fixture(params=EXACT, scope="module")
def reused(request: pytest.FixtureRequest) -> Iterator[BuiltInStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield EXACT[request.param](Path(folder))


def assert_exact(
    store: BuiltInStore,
    kept: list[PositionAwareChunk],
    embeddings: NDArray[np.float32],
    queries: NDArray[np.float32],
    ks: list[int],
) -> None:
    """Few queries at once, and many, which a store may search for in another way."""
    whole = naive(kept, embeddings, queries, max(ks))  # once: fewer are the first of them
    for k in ks:
        for times in (1, 1 + TILED_FROM // len(queries)):
            expected = SearchResult(*(np.tile(one[:, :k], (times, 1)) for one in (whole.numbers, whole.scores)))
            assert_same(store.search_many(np.tile(queries, (times, 1)), k), expected)


@pytest.mark.parametrize("dimension", [1, 2, 7, 64, 300])
def test_random_vectors(store: BuiltInStore, dimension: int) -> None:
    kept, embeddings = chunks(300), random_vectors(300, dimension, 1)
    queries = random_vectors(25, dimension, 2)
    store.add(kept, embeddings)
    assert_exact(store, kept, embeddings, queries, [1, 10, 299, 300, 400])


def test_repeated_vectors(store: BuiltInStore) -> None:
    kept, distinct = chunks(600), random_vectors(15, 48, 3)
    embeddings = distinct[np.random.default_rng(4).integers(0, 15, 600)]
    queries = np.concatenate([distinct[:5], random_vectors(15, 48, 5)])
    store.add(kept[:100], embeddings[:100])
    store.add(kept[100:], embeddings[100:])
    assert_exact(store, kept, embeddings, queries, [1, 5, 60])


def test_vectors_a_rounding_apart(store: BuiltInStore) -> None:
    """Neighbours in float32, whose kernel scores depend on where they stand in a tile."""
    kept, base = chunks(400), random_vectors(1, 96, 6)
    nudged = np.random.default_rng(7).integers(-2, 3, (400, 96)).astype(np.float32) * np.float32(6e-8) + 1
    embeddings = base * nudged
    queries = np.concatenate([base, random_vectors(10, 96, 8)])
    store.add(kept, embeddings)
    assert_exact(store, kept, embeddings, queries, [1, 10, 50])


def test_scores_that_cancel_to_zero(store: BuiltInStore) -> None:
    """The same numbers in another order: equal in mathematics, apart by the noise of the sum near 0."""
    kept = chunks(60)
    rng = np.random.default_rng(9)
    embeddings = np.stack([rng.permutation(vectors([1, 2, -3, 5, 0.3, -5.3])) for _ in range(60)])
    queries = vectors([[1, 1, 1, 1, 1, 1], [7, 7, 7, 7, 7, 7.5]])
    store.add(kept, embeddings)
    assert_same(store.search_many(queries, 20), naive(kept, embeddings, queries, 20))


@ROUNDS
@given(data=st.data())
def test_few_values_and_many_ties(reused: BuiltInStore, data: st.DataObject) -> None:
    dimension = data.draw(st.integers(1, 5))
    row = st.lists(st.integers(-1, 1), min_size=dimension, max_size=dimension)
    embeddings = vectors(data.draw(st.lists(row, min_size=1, max_size=60)))
    queries = vectors(data.draw(st.lists(row, min_size=1, max_size=4)))
    k = data.draw(st.integers(1, 12))
    placed = data.draw(st.booleans())
    kept = chunks(len(embeddings), each=7) if placed else [plain(c.doc_id) for c in chunks(len(embeddings), each=7)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(kept)), max_size=2)))
    reused.clear()
    for begin, end in zip([0, *cuts], [*cuts, len(kept)], strict=True):
        reused.add(kept[begin:end], embeddings[begin:end])
    assert_same(reused.search_many(queries, k), naive(kept, embeddings, queries, k))
    among = np.array(data.draw(st.lists(st.booleans(), min_size=len(kept), max_size=len(kept))))
    left, whole = int(among.sum()), naive(kept, embeddings, queries, len(kept))
    for found, numbers in zip(reused.search_many(queries, k, among).numbers, whole.numbers, strict=True):
        assert found.tolist() == numbers[among[numbers]][: min(k, left)].tolist()


@pytest.mark.skipif(not CHROMA.is_dir(), reason="Chroma's dataset is not at ../shared/data/chroma")
def test_chunks_of_a_real_corpus(store: BuiltInStore) -> None:
    import csv

    corpus = Corpus.from_folder(CHROMA / "corpora", "*.md")
    chunker, embedder = RecursiveTokenChunker(chunk_size=400, chunk_overlap=0), LocalEmbedder()
    kept = [piece for document in corpus.documents for piece in chunker.chunk_with_positions(document)]
    embeddings = embedder.embed([piece.content for piece in kept])
    with (CHROMA / "questions_df.csv").open(encoding="utf-8", newline="") as lines:
        queries = embedder.embed([row["question"] for row in csv.DictReader(lines)])
    store.add(kept, embeddings)
    found = store.search_many(queries, 5)
    assert len(queries) == 472
    # All 472 in plain float64, and the slow twin for some.
    cosine = queries.astype(np.float64) @ embeddings.astype(np.float64).T
    place = {number: (piece.doc_id, piece.start) for number, piece in enumerate(kept)}
    for row, scores in enumerate(cosine):
        near = np.argsort(-scores)[:40].tolist()
        expected = sorted(near, key=lambda number: (-round(scores[number] * 2**22), place[number]))[:5]
        assert found.numbers[row].tolist() == expected
    assert_same(store.search_many(queries[:8], 5), naive(kept, embeddings, queries[:8], 5))
