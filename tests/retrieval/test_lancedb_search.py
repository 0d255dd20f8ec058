"""LanceDB's own search against the same calls made directly, and search engines of users."""

from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lancedb.index import FTS
from lancedb.rerankers import LinearCombinationReranker, MRRReranker, RRFReranker

from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.retrieval import RETRIEVER
from rag_eval.retrieval.engines import ForeignEngine, SearchEngine, check_limit, searched
from rag_eval.retrieval.lancedb_search import LanceDBSearch
from rag_eval.sample import CORPUS
from rag_eval.stores import INDEX
from rag_eval.types.documents import Corpus

PARAGRAPHS = [
    (str(document.id), text)
    for document in Corpus.from_folder(CORPUS)
    for text in document.content.split("\n\n")
    if len(text) > 40
]
VECTORS = LocalEmbedder().embed([text for _, text in PARAGRAPHS])
CHUNKS = pa.table(
    {
        "number": np.arange(len(PARAGRAPHS)),
        "doc_id": [doc_id for doc_id, _ in PARAGRAPHS],
        "text": [text for _, text in PARAGRAPHS],
    }
)
QUERIES = ["When does the last ferry leave?", "how is bread stored", "who pays for parking"]
QUERY_VECTORS = np.array([LocalEmbedder().embed_query(query) for query in QUERIES])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table that a script of LanceDB's documentation makes."""
    rows = [
        {"number": n, "text": text, "vector": VECTORS[n], "doc_id": doc_id}
        for n, (doc_id, text) in enumerate(PARAGRAPHS)
    ]
    made = lancedb.connect(str(tmp_path_factory.mktemp("direct"))).create_table("docs", rows)
    made.create_index("text", config=FTS())
    return made


def engine(**settings: object) -> LanceDBSearch:
    made: LanceDBSearch = RETRIEVER.make({"type": "lancedb", **settings})
    return made


def found(engine: SearchEngine, folder: Path, limit: int = 8, doc_ids: list[str] | None = None) -> list[list[int]]:
    vectors = VECTORS if engine.uses_vectors else None
    engine.build(folder, CHUNKS, vectors)
    query_vectors = QUERY_VECTORS if engine.uses_vectors else None
    ranking = searched(engine, folder, QUERIES, query_vectors, limit, doc_ids, len(PARAGRAPHS))
    return [ranking.chunks[ranking.searches == number].tolist() for number in range(len(QUERIES))]


def numbers(query: Any) -> list[int]:
    listed: list[int] = query.limit(8).to_arrow().column("number").to_pylist()
    return listed


@pytest.mark.parametrize(
    ("settings", "reranker"),
    [
        ({}, RRFReranker()),
        ({"reranker": {"type": "rrf", "k": 1}}, RRFReranker(K=1)),
        ({"reranker": {"type": "linear", "weight": 0.2}}, LinearCombinationReranker(weight=0.2)),
        ({"reranker": "mrr"}, MRRReranker()),
    ],
    ids=["default", "rrf", "linear", "mrr"],
)
def test_a_hybrid_search_finds_what_lancedb_finds(
    settings: dict[str, object], reranker: Any, table: Any, tmp_path: Path
) -> None:
    asked = [
        table.search(query_type="hybrid").vector(vector).text(text).rerank(reranker)
        for vector, text in zip(QUERY_VECTORS, QUERIES, strict=True)
    ]
    assert found(engine(**settings), tmp_path) == list(map(numbers, asked))


def test_full_text_and_vector_searches_find_what_lancedb_finds(table: Any, tmp_path: Path) -> None:
    words = [numbers(table.search(text, query_type="fts")) for text in QUERIES]
    assert found(engine(query="fts"), tmp_path / "fts") == words
    near = [numbers(table.search(vector)) for vector in QUERY_VECTORS]
    assert found(engine(query="vector"), tmp_path / "vector") == near
    assert found(engine(query="vector", limit=3), tmp_path / "few") == [hits[:3] for hits in near]


def test_the_settings_of_the_full_text_index_reach_lancedb(tmp_path: Path) -> None:
    plain = engine(query="fts", fts={"stem": False, "remove_stop_words": False})
    ngrams = engine(query="fts", fts={"base_tokenizer": "ngram", "ngram_min_length": 2, "ngram_max_length": 4})
    results = [found(one, tmp_path / str(number)) for number, one in enumerate((engine(query="fts"), plain, ngrams))]
    assert results[0] != results[1] != results[2] != results[0]
    german = engine(query="fts", fts={"language": "Klingon"})
    with pytest.raises(ConfigurationError, match=r"LanceDB could not build the index \(.*Klingon"):
        found(german, tmp_path / "klingon")


@pytest.mark.parametrize("index", [name for name in INDEX.types if name != "none"])
def test_every_index_of_lancedb_is_built_and_searched(index: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(600, 16)).astype(np.float32)
    chunks = pa.table({"number": np.arange(600), "doc_id": ["a"] * 600, "text": ["text"] * 600})
    one = engine(query="vector", index={"type": index, "num_partitions": 2, "nprobes": 2})
    one.build(tmp_path, chunks, rows)
    kinds = [made.index_type for made in lancedb.connect(str(tmp_path)).open_table("chunks").list_indices()]
    assert one.index is not None
    assert kinds == [one.index.lance_type]
    best = [hits[0][0] for hits in one.search(tmp_path, ["q"] * 20, rows[:20], 5, None)]
    assert sum(number == row for row, number in enumerate(best)) >= 15


def test_refining_a_quantised_index_orders_by_full_vectors(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(600, 16)).astype(np.float32)
    queries = np.random.default_rng(2).normal(size=(20, 16)).astype(np.float32)
    chunks = pa.table({"number": np.arange(600), "doc_id": ["a"] * 600, "text": ["text"] * 600})
    exact = np.argsort(((queries[:, None] - rows[None]) ** 2).sum(axis=2), axis=1)[:, :5].tolist()
    coarse = {"type": "ivf-pq", "num_partitions": 1, "num_sub_vectors": 2}
    shares = []
    for number, index in enumerate((coarse, coarse | {"refine_factor": 40})):
        one = engine(query="vector", index=index)
        one.build(tmp_path / str(number), chunks, rows)
        hits = one.search(tmp_path / str(number), ["q"] * 20, queries, 5, None)
        shares.append(
            np.mean([len({n for n, _ in mine} & {*best}) / 5 for mine, best in zip(hits, exact, strict=True)])
        )
    assert shares[0] < 0.8 < shares[1]


@pytest.mark.parametrize("query", ["vector", "fts", "hybrid"])
@pytest.mark.parametrize("scalar_index", ["none", "btree", "bitmap"])
def test_a_filter_leaves_as_many_hits_unless_it_comes_after_the_search(
    query: str, scalar_index: str, tmp_path: Path
) -> None:
    doc_ids = sorted({doc_id for doc_id, _ in PARAGRAPHS})[::3]
    settings = {"query": query, "scalar_index": scalar_index}
    before = found(engine(**settings), tmp_path / "before", 4, doc_ids)
    assert {PARAGRAPHS[number][0] for hits in before for number in hits} <= {*doc_ids}
    after = found(engine(**settings, prefilter=False), tmp_path / "after", 4, doc_ids)
    assert sum(map(len, after)) < sum(map(len, before))
    assert found(engine(**settings), tmp_path / "nothing", 4, []) == [[], [], []]


def test_documents_with_quotes_in_their_names_can_be_filtered(tmp_path: Path) -> None:
    chunks = pa.table({"number": [0, 1], "doc_id": ["it's.md", "b.md"], "text": ["a ferry", "a ferry too"]})
    one = engine(query="fts")
    one.build(tmp_path, chunks, None)
    ((hit,),) = one.search(tmp_path, ["ferry"], None, 5, ["it's.md"])
    assert hit[0] == 0


def test_bad_settings_and_failures_of_lancedb_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="combines the searches of query: hybrid, and this is query: fts"):
        engine(query="fts", reranker="rrf")
    with pytest.raises(ConfigurationError, match="lancedb hybrid limit=4 finds 4 hits and the largest k is 5: raise"):
        check_limit(engine(limit=4), 5)
    one = engine(query="vector")
    one.build(tmp_path / "dimension", CHUNKS, VECTORS)
    with pytest.raises(ConfigurationError, match="LanceDB could not search"):
        one.search(tmp_path / "dimension", ["q"], QUERY_VECTORS[:1, :7], 5, None)


class Newest:
    """A user's engine, which finds the last chunks of its documents."""

    def __init__(self, answers: list[list[tuple[int, float]]] | None = None) -> None:
        self.answers = answers

    def build(self, location: Path, chunks: pa.Table, vectors: object) -> None:
        (location / "count").write_text(str(chunks.num_rows))

    def search(self, location: Path, queries: list[str], vectors: object, limit: int, doc_ids: object) -> object:
        count = int((location / "count").read_text())
        return self.answers or [[(count - 1 - n, 1 / (n + 1)) for n in range(limit)] for _ in queries]


def test_a_class_of_a_user_is_a_search_engine(tmp_path: Path) -> None:
    own = RETRIEVER.take(Newest())
    assert isinstance(own, ForeignEngine)
    assert not own.uses_vectors
    assert found(own, tmp_path, 2) == [[len(PARAGRAPHS) - 1, len(PARAGRAPHS) - 2]] * 3


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([[]], "answered 1 of 3 queries"),
        ([[(1, 0.5), (1, 0.4)], [], []], r"returned '\[1, 1\]': return at most 8 numbers"),
        ([[(10_000, 0.5)], [], []], "numbers of chunks below"),
    ],
)
def test_an_invalid_answer_of_an_engine_is_named(
    answers: list[list[tuple[int, float]]], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        found(RETRIEVER.take(Newest(answers)), tmp_path)
