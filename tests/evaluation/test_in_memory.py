"""The steps give the same tables in memory and in a workspace, there from several shards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.models import BenchmarkConfig, Configuration
from rag_eval.errors import ConfigurationError
from rag_eval.evaluation.in_memory import InMemoryInputs, evaluate
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.ground_truth.truth_files import write_chunk_level
from rag_eval.parts import located
from rag_eval.pipeline.document_steps import CorpusSource, chunk, load_corpus
from rag_eval.pipeline.ground_truth_steps import Observation, load_ground_truth
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.references import HitsRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.tables import HITS, check_schema, documents_to_table
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query
from rag_eval.types.ids import DocumentId, EvaluationType, generate_chunk_id
from tasks.retrieve import ask_system
from tests import chain

CHUNKER = RecursiveTokenChunker(100)
SHARDS = 4
METRICS = {"token-level": ["span_recall", "span_ndcg"], "chunk-level": ["chunk_recall", "chunk_mrr"]}


class Overlap:
    """A user's retriever."""

    name = "overlap"

    def index(self, chunks: Sequence[Any]) -> None:
        self.chunks = chunks

    def search(self, query: str, k: int) -> list[Any]:
        words = set(query.lower().split())
        scored = [(chunk, float(len(words & set(chunk.content.lower().split())))) for chunk in self.chunks]
        return sorted(scored, key=lambda pair: -pair[1])[:k]


class Plain:
    """A user's store."""

    name = "plain"

    def add(self, chunks: Any, vectors: Any) -> None:
        self.chunks, self.vectors = chunks, np.asarray(vectors)

    def search(self, vector: Any, k: int) -> list[Any]:
        scores = self.vectors @ vector
        return [(self.chunks[n], float(scores[n])) for n in np.argsort(-scores, kind="stable")[:k].tolist()]

    def clear(self) -> None:
        self.chunks = []


class Backwards:
    """A user's reranker."""

    name = "backwards"

    def rerank(self, query: str, chunks: Sequence[Any], top_k: int) -> list[Any]:
        return list(reversed(chunks))[:top_k]


class Silent:
    """A whole system, which finds nothing."""

    name = "silent"
    asked = 0

    def index(self, corpus: Corpus) -> None:
        assert len(corpus) == 14

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Any]]:
        self.asked += 1
        return [[] for _ in queries]


def paragraphs(text: str) -> list[str]:
    return [one for one in text.split("\n\n") if one.strip()]


VECTOR = {"chunker": CHUNKER, "retrieval": "vector", "embedder": "local", "store": "memory"}
WORDS = {"chunker": CHUNKER, "retrieval": "bm25"}
LANCEDB = {"chunker": CHUNKER, "embedder": "local"}
HYBRID = VECTOR | {"retrieval": "hybrid"}
FILTERED = {"where": {"folder": ["guests", "engineering", "operations"]}, "near_duplicates": 0.5, "fetch_k": 30}


def fused(fusion: object) -> dict[str, Any]:
    return HYBRID | {"retrieval": {"type": "hybrid", "fusion": fusion}}


EVERYWHERE: dict[str, dict[str, Any]] = {
    "vectors in memory": VECTOR,
    "vectors in LanceDB": VECTOR | {"store": "lancedb"},
    "vectors in a user's store": VECTOR | {"store": Plain()},
    "words": WORDS,
    "stemmed words": WORDS | {"retrieval": {"type": "bm25", "k1": 0.9, "tokenizer": "stemmed"}},
    "a user's retriever": WORDS | {"retrieval": Overlap()},
    "LanceDB's hybrid search": LANCEDB | {"retrieval": {"type": "lancedb", "limit": 20}},
    "LanceDB's vector search of some documents": LANCEDB
    | {"retrieval": {"type": "lancedb", "query": "vector", "scalar_index": "bitmap"}, "selection": FILTERED},
    "LanceDB's full-text search": WORDS | {"retrieval": {"type": "lancedb", "query": "fts"}, "context": "headings"},
    "LanceDB's full text fused with vectors": VECTOR
    | {"retrieval": {"type": "hybrid", "retrievers": ["vector", {"type": "lancedb", "query": "fts"}]}},
    "z-scores": fused("z-score"),
    "weighted z-scores in LanceDB": fused({"type": "z-score", "weights": [2.0, 1.0]}) | {"store": "lancedb"},
    "reciprocal ranks": fused("rrf"),
    "a lexical reranker": HYBRID | {"reranker": "lexical"},
    "a user's reranker": WORDS | {"reranker": Backwards()},
    "MaxSim": VECTOR | {"reranker": "maxsim"},
    "headings as context": HYBRID | {"context": "headings"},
    "neighbours as context": WORDS | {"context": "neighbours"},
    "a threshold": VECTOR | {"selection": {"score_threshold": 0.2}},
    "filters and near duplicates": HYBRID | {"selection": FILTERED},
    "filters in LanceDB": VECTOR | {"store": "lancedb", "selection": {"where": {"folder": {"like": "*e*"}}}},
    "several searches a question": HYBRID | {"queries": lambda text: [text, text.upper(), text[:30]]},
}
AT_TOKEN_LEVEL: dict[str, dict[str, Any]] = {
    "sections": VECTOR | {"returns": "section"},
    "windows": WORDS | {"returns": "window"},
    "documents": WORDS | {"returns": "document"},
    "half a chunk": WORDS | {"returns": lambda chunk: (chunk.start, (chunk.start + chunk.end) // 2)},
    "a user's chunker": VECTOR | {"chunker": paragraphs},
    "sentences": HYBRID | {"chunker": "sentence"},
    "everything": HYBRID
    | {"context": "headings", "selection": FILTERED, "reranker": "lexical", "returns": "section", "store": "lancedb"},
}


def write_truth(folder: Path, level: EvaluationType) -> Path:
    """A third of the questions about the sample, or questions with the ids of its chunks."""
    path = folder / f"{level}.jsonl"
    if level == "token-level":
        head, *lines = GROUND_TRUTH.read_text("utf-8").splitlines(keepends=True)
        path.write_text(head + "".join(lines[::3]), "utf-8")
        return path
    texts = [text for document in Corpus.from_folder(CORPUS) for text in CHUNKER.chunk(document.content)][::40]
    asked = [Query.from_text(" ".join(text.split()[:6]), {"chunker": CHUNKER.name}) for text in texts]
    pairs = zip(asked, texts, strict=True)
    write_chunk_level(path, [ChunkLevelGroundTruth(query, [generate_chunk_id(text)]) for query, text in pairs])
    return path


class Both:
    """The same documents and ground truth in a workspace and in memory."""

    def __init__(self, folder: Path, level: EvaluationType) -> None:
        self.workspace = Workspace(root=folder / "work")
        settings = {"evaluation_type": level, "metrics": METRICS[level], "k": [1, 5], "shards": SHARDS}
        config = BenchmarkConfig(
            corpus=CORPUS,
            ground_truth=write_truth(folder, level),
            chunkers=[CHUNKER],
            **settings,  # type: ignore[arg-type]
        )
        self.inputs: BenchmarkInputs = chain.load_inputs(self.workspace, config)
        (whole,) = CorpusSource.of(CORPUS, "**/*.md").shards(1)
        self.documents, _ = load_corpus(whole)
        truth, inputs = self.workspace.read_truth(self.inputs.truth), self.inputs
        self.given = InMemoryInputs(level, self.documents, truth, inputs.metrics, inputs.ks, inputs.depth)

    def check_equal(self, parts: dict[str, Any]) -> HitsRef:
        configuration = Configuration.model_validate(parts)
        stored = chain.evaluate(self.workspace, configuration, self.inputs)
        # LanceDB has a place in a workspace; a notebook gives it one.
        placed = located(configuration.store, self.workspace.root / "notebook")
        made = evaluate(configuration.model_copy(update={"store": placed}), self.given)
        assert list(made.hits) == list(stored.hits.stages)
        for name, hits in made.hits.items():
            table = check_schema(hits, HITS, "hits")
            assert table.equals(self.workspace.read_table(stored.hits.stages[name])), name
            assert table.num_rows > 0
            # A user's retriever is a stage by its label.
            assert set(table.column("stage").to_pylist()) == {name}
        passages = stored.hits.passages and self.workspace.read_table(stored.hits.passages)
        assert made.passages == passages
        assert made.scores.equals(self.workspace.read_table(stored.scores.table))
        return stored.hits


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("spans"), "token-level")


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Both:
    return Both(tmp_path_factory.mktemp("ids"), "chunk-level")


@pytest.mark.parametrize("kind", [*EVERYWHERE, *AT_TOKEN_LEVEL])
def test_a_notebook_and_shards_in_a_workspace_give_the_same_hits_and_scores(kind: str, spans: Both) -> None:
    assert len(spans.inputs.documents) == SHARDS
    spans.check_equal((EVERYWHERE | AT_TOKEN_LEVEL)[kind])


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_notebook_and_a_workspace_give_the_same_by_the_ids_of_chunks(kind: str, ids: Both) -> None:
    assert len(ids.inputs.documents) == 1  # ids are checked against all chunks
    ids.check_equal(EVERYWHERE[kind])


def test_a_reranker_reorders_what_was_found_and_a_fusion_leaves_what_each_search_found_beside_it(spans: Both) -> None:
    stages = spans.check_equal(HYBRID | {"reranker": "lexical"}).stages
    assert list(stages) == ["vector", "words", "fused", "reranked"]
    tables = {name: spans.workspace.read_table(one) for name, one in stages.items()}
    before, after = (tables[name].drop_columns(["rank", "score", "stage"]) for name in ("fused", "reranked"))
    assert before.to_pylist() != after.to_pylist()
    assert sorted(map(str, before.to_pylist())) == sorted(map(str, after.to_pylist()))
    for alone, name in ((VECTOR, "vector"), (WORDS, "words")):
        assert evaluate(Configuration.model_validate(alone), spans.given).hits[name].equals(tables[name])


def test_a_store_with_a_place_of_its_own_is_one_for_all_shards(spans: Both, tmp_path: Path) -> None:
    store = LanceDBVectorStore(tmp_path / "store")
    parts = [Configuration.model_validate(VECTOR | one) for one in ({}, {"store": store})]
    exact, own = (chain.evaluate(spans.workspace, one, spans.inputs) for one in parts)
    assert own.hits.last.digest == exact.hits.last.digest
    assert (len(own.steps["search"]), len(exact.steps["search"])) == (1, SHARDS)


def test_a_corpus_without_chunks_is_refused_before_anything_is_embedded(spans: Both) -> None:
    def nothing(text: str) -> list[str]:
        return []

    def embed(texts: list[str]) -> list[list[float]]:
        return pytest.fail("nothing is to be embedded")

    parts = Configuration.model_validate(VECTOR | {"chunker": nothing, "embedder": embed})
    with pytest.raises(ConfigurationError, match=r"nothing.* made no chunks of 14 documents \(0 were left out"):
        evaluate(parts, spans.given)


def test_the_files_of_a_benchmark_are_read_without_a_workspace_too(spans: Both) -> None:
    stored = spans.workspace.read_tables(spans.inputs.documents)
    assert spans.documents.equals(
        pa.Table.from_pylist(sorted(stored.to_pylist(), key=lambda row: row["doc_id"]), stored.schema)
    )
    path = spans.workspace.root.parent / "token-level.jsonl"
    source = Observation.of(FileTruth(path), "token-level")
    read, _ = load_ground_truth(source, [spans.documents], "token-level", True)
    assert read.queries.equals(spans.given.truth.queries)
    assert set(read.answers.column("text").to_pylist()) == set(spans.given.truth.answers.column("text").to_pylist())


def test_a_shard_may_have_no_chunks() -> None:
    shards = [
        documents_to_table(Corpus([Document(DocumentId(name), text)]))
        for name, text in (("a", "one\n\ntwo"), ("b", "\n"))
    ]
    assert [chunk(shard, paragraphs)[0].num_rows for shard in shards] == [2, 0]


def test_a_whole_system_is_asked_once_in_a_workspace_too(spans: Both) -> None:
    system, queries = Silent(), spans.inputs.truth.queries
    found = ask_system.fn(system, spans.inputs.documents, queries, "token-level", 5, workspace=spans.workspace)
    assert (system.asked, found.last.rows, found.effort and found.effort.total) == (1, 0, queries.rows)
    assert set(evaluate(system, spans.given).scores.column("value").to_pylist()) == {0.0}
