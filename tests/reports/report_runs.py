"""Whole benchmark runs for the tests of the reports, stage by stage, without Prefect."""

from datetime import UTC, datetime

from rag_eval.benchmark import stages
from rag_eval.benchmark.config import BenchmarkConfig, Configuration
from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationFailure, ConfigurationOutcome, keep, summarise
from rag_eval.benchmark.references import BenchmarkInputs, CorpusSource, IndexRef, TableRef, TruthSource
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import RagEvalError


def run(config: BenchmarkConfig, workspace: Workspace) -> BenchmarkOutcome:
    """Run a benchmark and keep its outcome; a configuration that fails is among the failures."""
    started = datetime.now(UTC)
    corpus, truth_file = CorpusSource.of(config.corpus, config.glob), TruthSource.of(config.ground_truth)
    documents = stages.load_corpus(workspace, corpus)
    truth = stages.load_ground_truth(workspace, truth_file, documents, config.evaluation_type)
    inputs = BenchmarkInputs.of(config, documents, truth)
    done, failed = [], {}
    for configuration in config.configurations():
        try:
            done.append(evaluate(workspace, configuration, inputs))
        except RagEvalError as error:
            failed[configuration.name] = ConfigurationFailure(configuration=configuration, reason=str(error), stages={})
    outcome = BenchmarkOutcome.of(workspace, started, config, corpus, truth_file, inputs, done, failed, {})
    keep(workspace, outcome)
    return outcome


def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> ConfigurationOutcome:
    chunks = stages.chunk(workspace, inputs.documents, configuration.chunker, inputs.chunk_truth)
    index, hits = retrieve(workspace, configuration, chunks, inputs)
    if configuration.reranker.type != "none":
        hits = stages.rerank(workspace, hits, chunks, inputs.queries, configuration.reranker)
    scores = stages.score(workspace, hits, inputs.truth, inputs.documents, chunks, inputs.metrics, inputs.ks)
    return summarise(workspace, configuration, chunks, index, hits, scores, {})


def retrieve(
    workspace: Workspace, configuration: Configuration, chunks: TableRef, inputs: BenchmarkInputs
) -> tuple[IndexRef | None, TableRef]:
    index, rankings = None, []
    embedder, store = configuration.embedder, configuration.store
    if embedder is not None and store is not None:
        embeddings = stages.embed(workspace, chunks, embedder)
        index = stages.index(workspace, chunks, embeddings, store)
        rankings.append(
            stages.retrieve_by_vector(workspace, chunks, index, inputs.queries, embedder, store, inputs.depth)
        )
    if configuration.retrieval in ("bm25", "hybrid"):
        rankings.append(stages.retrieve_by_words(workspace, chunks, inputs.queries, inputs.depth))
    if len(rankings) == 1:
        return index, rankings[0]
    return index, stages.fuse(workspace, rankings, inputs.queries, inputs.depth)
