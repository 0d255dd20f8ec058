import sys
from pathlib import Path

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.chroma import ChromaVectorStore
from tests.stores.contract import chunk, chunks, naive, random_vectors, vectors


def test_without_chromadb_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chromadb", None)
    with pytest.raises(ConfigurationError, match=r"needs the extra chroma .*pip install 'rag-span-eval\[chroma\]'"):
        ChromaVectorStore()


@pytest.fixture
def chromadb() -> object:
    return pytest.importorskip("chromadb")


@pytest.mark.usefixtures("chromadb")
def test_its_name_says_that_it_is_approximate() -> None:
    assert ChromaVectorStore().name == "chroma(hnsw, approximate)"


@pytest.mark.usefixtures("chromadb")
def test_stores_in_memory_do_not_share_chunks() -> None:
    one, two = ChromaVectorStore(), ChromaVectorStore()
    one.add(chunks(3), np.eye(3, dtype=np.float32))
    assert len(two) == 0
    assert two.search(vectors([1, 0, 0]), 1) == []


@pytest.mark.usefixtures("chromadb")
def test_a_store_opened_on_a_folder_searches_at_once_and_goes_on(tmp_path: Path) -> None:
    ChromaVectorStore(tmp_path).add(chunks(30), random_vectors(30, 4, 1))
    opened = ChromaVectorStore(tmp_path)
    assert len(opened) == 30
    assert opened.search(random_vectors(1, 4, 1)[0], 1)[0].chunk == chunks(30)[0]
    with pytest.raises(TableError, match="two chunks stand at"):
        opened.add(chunks(30)[:1], random_vectors(1, 4, 2))
    opened.add([chunk("new.md", 0)], vectors([[1, 2, 3, 4]]))
    assert opened.search(vectors([1, 2, 3, 4]), 1)[0].number == 30


@pytest.mark.usefixtures("chromadb")
def test_a_collection_of_something_else_is_refused(tmp_path: Path) -> None:
    import chromadb

    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(path=str(tmp_path), settings=settings)
    client.create_collection("chunks", embedding_function=None).add(ids=["x"], embeddings=vectors([[1, 2]]))
    with pytest.raises(TableError, match="the Chroma collection 'chunks' was not filled by a store"):
        ChromaVectorStore(tmp_path)


@pytest.mark.usefixtures("chromadb")
def test_it_finds_nearly_all_of_the_best_at_their_exact_scores() -> None:
    kept, embeddings, queries = chunks(6_000), random_vectors(6_000, 24, 3), random_vectors(20, 24, 4)
    store = ChromaVectorStore()
    store.add(kept, embeddings)  # more than Chroma takes at once
    found, expected = store.search_many(queries, 10), naive(kept, embeddings, queries, 10)
    shared = np.mean([len({*a} & {*b}) / 10 for a, b in zip(found.numbers, expected.numbers, strict=True)])
    assert shared > 0.7
    everything = naive(kept, embeddings, queries[:3], len(kept))
    for query in range(3):
        scores = dict(zip(everything.numbers[query].tolist(), everything.scores[query].tolist(), strict=True))
        assert [scores[number] for number in found.numbers[query].tolist()] == found.scores[query].tolist()
    assert (np.diff(found.scores) <= 0).all()


@pytest.mark.usefixtures("chromadb")
def test_it_searches_some_documents_alone() -> None:
    kept, embeddings, queries = chunks(60, each=6), random_vectors(60, 8, 5), random_vectors(5, 8, 6)
    store = ChromaVectorStore()
    store.add(kept, embeddings)
    among = np.array([int(one.doc_id[:3]) % 3 == 0 for one in kept])
    found = store.search_many(queries, 10, among)
    for row, numbers in zip(found.numbers, naive(kept, embeddings, queries, 60).numbers, strict=True):
        assert row.tolist() == numbers[among[numbers]][:10].tolist()
