"""The benchmark: load the corpus and the truth once, then evaluate every configuration in a subflow of its own."""

from prefect import flow, task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.futures import wait
from prefect.transactions import CommitMode, transaction

from rag_eval.config.benchmark import BenchmarkConfig, Configuration
from rag_eval.pipeline.outcome import (
    BenchmarkOutcome,
    ConfigurationOutcome,
    conclude,
    count_answerable,
    new_run_name,
    summarise,
)
from rag_eval.pipeline.references import CorpusSource, TableRef, TokenLevelTruthRef, TruthSource
from rag_eval.pipeline.workspace import Workspace
from tasks import stages
from tasks.fan_out import split_by_success
from tasks.runner import StageRunner


@flow(name="evaluate-configuration", flow_run_name="{configuration.name}")
def evaluate_configuration(
    workspace: Workspace, configuration: Configuration, documents: TableRef, truth: TokenLevelTruthRef
) -> ConfigurationOutcome:
    """Chunk, embed, index, retrieve and score with one configuration."""
    run, k = StageRunner(workspace), configuration.k
    chunks = run(stages.chunk, documents, configuration.chunker)
    embeddings = run(stages.embed, chunks, configuration.embedder)
    index = run(stages.index, chunks, embeddings)
    hits = run(stages.retrieve, index, truth.queries, configuration.embedder, k)
    scores = run(stages.score, hits, truth, configuration.metrics, k)
    return summarise(workspace, configuration, chunks, scores, run.work)


# The fan-out maps over a task because Prefect maps tasks, not flows; nothing of it is cached.
@task(name="evaluate", task_run_name="{configuration.name}", cache_policy=NO_CACHE)
def evaluate(
    workspace: Workspace, configuration: Configuration, documents: TableRef, truth: TokenLevelTruthRef
) -> ConfigurationOutcome:
    """Run the subflow of one configuration."""
    # Eager: what the subflow's tasks finish is kept at once, so that a killed run continues where it was.
    with transaction(commit_mode=CommitMode.EAGER):
        return evaluate_configuration(workspace, configuration, documents, truth)


@flow(name="benchmark")
def benchmark(config: BenchmarkConfig, workspace: Workspace) -> BenchmarkOutcome:
    """Compare the configurations on one corpus and one ground truth."""
    corpus, truth_file = CorpusSource.of(config.corpus, config.glob), TruthSource.of(config.ground_truth)
    run = StageRunner(workspace)
    documents = run(stages.load_corpus, corpus)
    truth = run(stages.load_ground_truth, truth_file, documents)
    configurations = config.configurations()
    evaluations = evaluate.map(unmapped(workspace), configurations, unmapped(documents), unmapped(truth))
    wait(evaluations)
    done, failed = split_by_success(configurations, evaluations)
    answerable, unanswerable = count_answerable(workspace, truth.queries)
    outcome = BenchmarkOutcome(
        run=new_run_name(),
        documents=documents.rows,
        answerable=answerable,
        unanswerable=unanswerable,
        configurations=done,
        failures=failed,
        stages=run.work,
    )
    return conclude(workspace, outcome)
