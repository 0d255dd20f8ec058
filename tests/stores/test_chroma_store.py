import sys

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.stores.chroma import ChromaVectorStore
from tests.stores.contract import assert_same, chunks, naive, nearest, random_vectors


def test_without_chromadb_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chromadb", None)
    with pytest.raises(ConfigurationError, match=r"needs the extra chroma .*pip install 'rag-span-eval\[chroma\]'"):
        ChromaVectorStore()


@pytest.fixture
def store() -> ChromaVectorStore:
    pytest.importorskip("chromadb")
    return ChromaVectorStore()


def test_its_name_says_that_it_is_approximate_and_no_other_store_shares_its_chunks(store: ChromaVectorStore) -> None:
    assert store.name == "chroma(hnsw, approximate)"
    other = ChromaVectorStore()
    store.add(chunks(3), np.eye(3, dtype=np.float32))
    assert len(other) == 0
    assert nearest(other, [[1, 0, 0]], 1) == [[]]


def test_it_finds_nearly_all_of_the_best_at_their_exact_scores(store: ChromaVectorStore) -> None:
    embeddings, queries = random_vectors(6_000, 24, 3), random_vectors(20, 24, 4)
    store.add(chunks(6_000), embeddings)  # more than Chroma takes at once
    found, expected = nearest(store, queries, 10), naive(embeddings, queries, 10).by_search(20)
    shared = np.mean([len({*a} & {*b.tolist()}) / 10 for a, b in zip(found, expected, strict=True)])
    assert shared > 0.7
    assert store.recall(queries, 10) == pytest.approx(shared)
    scored, everything = store.search_many(queries[:3], 10), naive(embeddings, queries[:3], 6_000)
    columns = (everything.searches.tolist(), everything.chunks.tolist(), everything.scores.tolist())
    exact = {(search, chunk): score for search, chunk, score in zip(*columns, strict=True)}
    pairs = zip(scored.searches.tolist(), scored.chunks.tolist(), strict=True)
    assert [exact[pair] for pair in pairs] == scored.scores.tolist()
    assert all((np.diff(scored.scores[scored.searches == search]) <= 0).all() for search in range(3))


def test_it_searches_some_chunks_alone(store: ChromaVectorStore) -> None:
    embeddings, queries = random_vectors(60, 8, 5), random_vectors(5, 8, 6)
    store.add(chunks(60), embeddings)
    among = np.arange(60) // 6 % 3 == 0
    everything = naive(embeddings, queries, 60)
    assert_same(store.search_many(queries, 10, among), everything.where(among[everything.chunks]).first(10))
