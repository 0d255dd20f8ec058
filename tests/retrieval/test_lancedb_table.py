"""An existing LanceDB table, made by LangChain as people do, as a whole system."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pytest
from lancedb.index import FTS
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import Embeddings
from langchain_text_splitters import RecursiveCharacterTextSplitter

from rag_eval.config.models import BenchmarkConfig
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.parts import as_data, digest, label
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval import SYSTEM
from rag_eval.retrieval.lancedb_table import LanceDBTable
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.storage.files import file_sha256
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import Query
from rag_eval.types.ids import DocumentId
from tests.chain import run_benchmark

EMBEDDER = LocalEmbedder()


class LocalEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = EMBEDDER.embed(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        vector: list[float] = EMBEDDER.embed_query(text).tolist()
        return vector


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a table of LangChain's store, in which one row is of another corpus."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # langchain-community is being sunset
        from langchain_community.vectorstores import LanceDB
    folder, paths = tmp_path_factory.mktemp("production"), sorted(CORPUS.rglob("*.md"))
    read = [LangChainDocument(path.read_text("utf-8"), metadata={"source": str(path)}) for path in paths]
    pieces = RecursiveCharacterTextSplitter(chunk_size=400, chunk_overlap=50).split_documents(read)
    pieces.append(LangChainDocument("The last ferry leaves. This is no text of the corpus.", metadata={"source": "?"}))
    store = LanceDB.from_documents(pieces, LocalEmbeddings(), uri=str(folder), table_name="docs")
    store.get_table().create_index("text", config=FTS())
    return folder


def system(database: Path, **settings: object) -> LanceDBTable:
    made: LanceDBTable = SYSTEM.make({"type": "lancedb", "uri": str(database), "table": "docs", **settings})
    return made


def files(folder: Path) -> dict[str, str]:
    return {str(path): file_sha256(path) for path in folder.rglob("*") if path.is_file()}


def test_the_system_survives_its_data_and_pickling(database: Path) -> None:
    table = system(database, source="metadata.source", limit=7)
    assert SYSTEM.make(as_data(table)) == table
    assert pickle.loads(pickle.dumps(table)) == table  # noqa: S301  # our own bytes


@pytest.mark.parametrize("source", ["metadata.source", None])
def test_every_row_of_the_corpus_has_its_place_and_others_are_counted(database: Path, source: str | None) -> None:
    table, corpus = system(database, source=source), Corpus.from_folder(CORPUS)
    table.index(corpus)
    rows = lancedb.connect(str(database)).open_table("docs").count_rows()
    sentence = f"of {rows:,} rows of docs are left out: their text has no place in the documents"
    assert table.fallbacks == {sentence: 1}
    documents, query = corpus.by_id(), Query.from_text("When does the last ferry leave?")
    texts = [row["text"] for row in table._table.search(query.text, query_type="fts").limit(10).to_list()]
    assert any("no text of the corpus" in text for text in texts)
    (found,) = system_hits(table, query, query_type="fts")
    assert [documents[hit["doc_id"]].content[hit["start"] : hit["end"]] for hit in found] == [
        text for text in texts if "no text of the corpus" not in text
    ]


def system_hits(table: LanceDBTable, query: Query, query_type: str) -> list[list[Any]]:
    """What the same table finds by another query."""
    other = SYSTEM.make({"type": "lancedb", "uri": str(table.uri), "table": "docs", "query": query_type})
    other.index(Corpus.from_folder(CORPUS))
    found: list[list[Any]] = other.search_many([query], 10)
    return found


def test_a_benchmark_evaluates_the_table_and_writes_nothing_to_it(database: Path, tmp_path: Path) -> None:
    before = files(database)
    listed = [
        {"type": "lancedb", "uri": str(database), "table": "docs", "source": "metadata.source", "query": query}
        for query in ("hybrid", "vector", "fts")
    ]
    settings = {"corpus": CORPUS, "ground_truth": GROUND_TRUTH, "k": [5], "metrics": ["span_recall"], "system": listed}
    outcome = run_benchmark(Workspace(root=tmp_path), BenchmarkConfig.model_validate(settings))
    assert files(database) == before
    assert not outcome.failures
    names = ["lancedb hybrid/docs source=metadata.source", "lancedb vector/docs source=metadata.source"]
    assert [one.name for one in outcome.configurations][:2] == names
    assert all(one.metrics["span_recall@5"] > 0.3 for one in outcome.configurations)
    assert any("rows of docs are left out" in note for note in outcome.notes)


def test_the_identity_changes_with_the_table(tmp_path: Path) -> None:
    rows = [{"text": "a ferry", "vector": np.zeros(256, np.float32)}]
    table = lancedb.connect(str(tmp_path)).create_table("docs", rows)
    before = digest(system(tmp_path, query="vector"))
    assert digest(system(tmp_path, query="vector")) == before
    table.add(rows)
    assert digest(system(tmp_path, query="vector")) != before


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"uri": "nowhere"}, "there is no LanceDB database 'nowhere': check uri"),
        ({"table": "dogs"}, "has no table 'dogs': use one of docs"),
        ({"text": "body"}, "the table 'docs' has no column 'body': use one of vector, id, text, metadata"),
        ({"source": "metadata.path"}, "the table 'docs' has no column 'metadata.path': use one of source"),
        ({"vector": "embedding"}, "the table 'docs' has no column 'embedding'"),
        ({"text": "id", "query": "fts"}, "the table 'docs' has no full-text index of 'id': create one"),
    ],
)
def test_what_the_database_does_not_have_is_named(settings: dict[str, str], reason: str, database: Path) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        SYSTEM.make({"type": "lancedb", "uri": str(database), "table": "docs"} | settings)


def test_another_embedder_and_another_corpus_are_named(database: Path) -> None:
    class Short:
        def embed(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, 2.0] for _ in texts]

    table = LanceDBTable(str(database), "docs", query="vector", embedder=Short())  # type: ignore[arg-type]  # any object
    with pytest.raises(ConfigurationError, match=r"vectors of 2 dimensions, and 'vector' of the table 'docs' is fixed"):
        table.search_many([Query.from_text("When?")], 5)
    with pytest.raises(ConfigurationError, match=r"none of the .* rows of 'docs' is in the documents"):
        table.index(Corpus([Document(DocumentId("a.md"), "Another text.")]))


def test_settings_reach_lancedb(database: Path) -> None:
    corpus, query = Corpus.from_folder(CORPUS), Query.from_text("When does the last ferry leave?")
    table = system(database, query="fts", filter="text LIKE '%Storvåg%'", limit=3)
    table.index(corpus)
    ((*found,),) = table.search_many([query], 10)
    assert 0 < len(found) <= 3
    documents = corpus.by_id()
    assert all("Storvåg" in documents[hit["doc_id"]].content[hit["start"] : hit["end"]] for hit in found)  # type: ignore[index, misc]
    assert label(table) == "lancedb fts/docs limit=3 filter=\"text LIKE '%Storvåg%'\""
    broken = system(database, query="fts", filter="no SQL")
    broken.index(corpus)
    with pytest.raises(ConfigurationError, match="LanceDB could not search 'docs'"):
        broken.search_many([query], 10)
