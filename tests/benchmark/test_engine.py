"""The same stages give the same tables in memory and in a workspace, from one shard and from several."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rag_eval.benchmark.engine import Evaluated, InMemoryInputs, evaluate, run_in_memory
from rag_eval.benchmark.stage import Stage

from rag_eval.benchmark import stages
from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.config_files import load_config
from rag_eval.benchmark.inputs import BenchmarkInputs
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.files import write_chunk_level
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.ground_truth_steps import Observation, load_ground_truth
from rag_eval.pipeline.workspace import Workspace
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.stores.memory import InMemoryVectorStore
from rag_eval.tables import HITS as HITS_SCHEMA
from rag_eval.tables import TruthTables, check_schema, documents_to_table
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query
from rag_eval.types.ids import DocumentId, generate_chunk_id

CHUNKER = RecursiveTokenChunker(100)
METRICS = {"token-level": ["span_recall", "span_ndcg"], "chunk-level": ["chunk_recall", "chunk_mrr"]}


def benchmark(folder: Path, level: str) -> BenchmarkConfig:
    """Every mode with and without a reranker, on the sample or on chunk ids of its documents."""
    truth = GROUND_TRUTH
    if level == "chunk-level":
        texts = [text for document in Corpus.from_folder(CORPUS) for text in CHUNKER.chunk(document.content)]
        truth = folder / "chunks.jsonl"
        asked = [Query.from_text(" ".join(text.split()[:6]), {"chunker": CHUNKER.name}) for text in texts[::40]]
        ids = [[generate_chunk_id(text)] for text in texts[::40]]
        write_chunk_level(truth, [ChunkLevelGroundTruth(*pair) for pair in zip(asked, ids, strict=True)])
    file = folder / "benchmark.yaml"
    file.write_text(
        f"corpus: {CORPUS}\nground_truth: {truth}\nevaluation_type: {level}\nmetrics: {METRICS[level]}\n"
        "chunkers: [{type: recursive-token, chunk_size: 100}]\nretrieval: [vector, bm25, hybrid]\n"
        "rerankers: [none, lexical]\nk: [1, 5]\n"
    )
    return load_config(file)


def in_memory(configuration: Configuration, inputs: BenchmarkInputs, workspace: Workspace, shards: int) -> Evaluated:
    documents = workspace.read_tables(inputs.documents)
    size = -(-documents.num_rows // shards)
    truth = TruthTables(workspace.read_table(inputs.truth.queries), workspace.read_table(inputs.truth.answers))
    given = InMemoryInputs(
        inputs.truth.evaluation_type,
        [documents.slice(begin, size) for begin in range(0, documents.num_rows, size)],
        truth,
        inputs.metrics,
        inputs.ks,
        inputs.depth,
    )
    parts = configuration.model_copy(update={"chunker": CHUNKER, "store": InMemoryVectorStore()})
    return evaluate(run_in_memory, parts, given)


@pytest.mark.parametrize("level", ["token-level", "chunk-level"])
def test_a_notebook_a_benchmark_and_shards_give_the_same_hits_and_scores(tmp_path: Path, level: str) -> None:
    config, workspace = benchmark(tmp_path, level), Workspace(root=tmp_path / "work")
    documents = stages.load_corpus(workspace, CorpusSource.of(config.corpus, config.glob))
    truth = load_ground_truth(workspace, config.ground_truth[0], documents, config.evaluation_type)
    inputs = BenchmarkInputs.of(config, documents, truth)

    def run(stage: Stage, *given: Any) -> Any:
        return stage(workspace, *given)

    for configuration in config.configurations():
        kept = evaluate(run, configuration, inputs)
        names = [name for name in ("vector", "words", "fused", "reranked") if name in kept.hits]
        assert list(kept.hits) == names
        for shards in (1, 3):
            made = in_memory(configuration, inputs, workspace, shards)
            assert list(made.hits) == names
            for name in names:
                table: pa.Table = check_schema(made.hits[name], HITS_SCHEMA, "hits")
                assert table.equals(workspace.read_table(kept.hits[name])), (configuration.name, name, shards)
                assert set(table.column("stage").to_pylist()) == {name}
            assert made.scores.equals(workspace.read_table(kept.scores))
        if "reranked" in names:
            before, after = ([*map(workspace.read_table, kept.hits.values())][place] for place in (-2, -1))
            places = [
                sorted(map(str, one.drop_columns(["rank", "score", "stage"]).to_pylist())) for one in (before, after)
            ]
            assert places[0] == places[1]


def test_the_files_of_a_benchmark_are_read_without_a_workspace_too(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    corpus, truth = CorpusSource.of(CORPUS, "**/*.md"), Observation.of(FileTruth(GROUND_TRUTH), "token-level")
    (documents,) = run_in_memory(stages.load_corpus, corpus)
    read = run_in_memory(load_ground_truth, truth, [documents], "token-level", True)
    kept = stages.load_corpus(workspace, corpus)
    assert documents.equals(workspace.read_tables(kept))
    ref = load_ground_truth(workspace, truth, kept, "token-level", True)
    assert read.queries.equals(workspace.read_table(ref.queries))
    assert read.answers.equals(workspace.read_table(ref.answers))


def test_a_corpus_without_chunks_is_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    class Empty:
        name = "empty"

        def chunk(self, text: str) -> list[str]:
            return []

    config, documents = benchmark(tmp_path, "token-level"), [documents_to_table(Corpus.from_folder(CORPUS))]
    truth = run_in_memory(
        load_ground_truth, Observation.of(FileTruth(GROUND_TRUTH), "token-level"), documents, "token-level"
    )
    given = InMemoryInputs("token-level", documents, truth, config.metrics, config.k, 10)
    parts = config.configurations()[0].model_copy(update={"chunker": Empty()})
    with pytest.raises(ConfigurationError, match=r"empty.* made no chunk of 14 documents \(0 were left out"):
        evaluate(run_in_memory, parts, given)


def test_a_shard_may_have_no_chunks() -> None:
    class Lines:
        name = "lines"

        def chunk(self, text: str) -> list[str]:
            return [line for line in text.splitlines() if line]

    shards = [
        documents_to_table(Corpus([Document(DocumentId(name), text)]))
        for name, text in (("a", "one\ntwo"), ("b", "\n"))
    ]
    assert [table.num_rows for table in run_in_memory(stages.chunk, shards, Lines(), None)] == [2, 0]


def test_a_whole_system_is_asked_once_in_a_workspace_too(tmp_path: Path) -> None:
    class Silent:
        name = "silent"
        asked = 0

        def index(self, corpus: Corpus) -> None:
            assert len(corpus) == 14

        def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Any]]:
            self.asked += 1
            return [[] for _ in queries]

    workspace, system = Workspace(root=tmp_path), Silent()
    documents = stages.load_corpus(workspace, CorpusSource.of(CORPUS, "**/*.md"))
    truth = load_ground_truth(workspace, FileTruth(GROUND_TRUTH), documents, "token-level")
    found = stages.ask_system(workspace, documents, truth.queries, system, "token-level", 5)
    assert (system.asked, found.rows, found.effort.total) == (1, 0, truth.queries.rows)


def test_a_fusion_that_ranks_all_chunks_leaves_what_each_search_found_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "benchmark.yaml"
    fusion = "{type: frozen-z-score, reference: {type: recursive-token, chunk_size: 200}}"
    file.write_text(
        f"corpus: {CORPUS}\nground_truth: {GROUND_TRUTH}\nchunkers: [{{type: recursive-token, chunk_size: 100}}]\n"
        f"retrieval: [vector, bm25, {{type: hybrid, fusion: {fusion}}}]\nk: [5]\n"
    )
    config, workspace = load_config(file), Workspace(root=tmp_path / "work")
    documents = stages.load_corpus(workspace, CorpusSource.of(config.corpus, config.glob))
    truth = load_ground_truth(workspace, config.ground_truth[0], documents, config.evaluation_type)
    inputs = BenchmarkInputs.of(config, documents, truth)
    vector, words, hybrid = (in_memory(one, inputs, workspace, 2).hits for one in config.configurations())
    assert list(hybrid) == ["vector", "words", "fused"]
    assert hybrid["vector"].equals(vector["vector"])
    assert hybrid["words"].equals(words["words"])
