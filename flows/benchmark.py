"""The benchmark pipeline: load the corpus and the ground truth, then evaluate every chunking in its own subflow.

Each step is a task of ``tasks`` that Prefect caches. The configurations of one chunking share its chunks, vectors,
indexes and searches.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from prefect import flow, task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import TaskRunner
from prefect.transactions import CommitMode, transaction

from flows.sweep import choose_configurations, guide_configurations
from rag_eval.config.models import THREADS, BenchmarkConfig, Configuration
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import Chunking, chunkings, summed_embedder
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.housekeeping import in_use
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome, StepRecorder, checked
from tasks.artifacts import benchmark_run_name, publish_run, report
from tasks.chunk import add_context, chunk, hits_to_fetch
from tasks.conclude import ConfigurationRuns, Gathered, conclude, gather, outcomes_of
from tasks.corpus import find_documents, load_corpus
from tasks.embed import embed
from tasks.ground_truth import ground_truth
from tasks.index import build_index, build_sums
from tasks.retrieve import ask_system, prepare_queries, rankings_of, retrieve, search_index
from tasks.runners import task_runner, threads
from tasks.score import score


@flow(name="rag-eval-benchmark", flow_run_name=benchmark_run_name, task_runner=threads(), persist_result=False)
def benchmark(
    config: BenchmarkConfig, workspace: Workspace, reanchor: bool = False, runner: str = THREADS
) -> BenchmarkOutcome:
    """Compare the configurations of a benchmark on one corpus and one ground truth.

    Args:
        config: The benchmark: its configurations, corpus, ground truth and metrics.
        workspace: Where tables, cached results and the run are stored.
        reanchor: Move spans of the ground truth to where their text is in changed documents.
        runner: What runs the tasks of a chunking: threads, dask or ray.

    Raises:
        BenchmarkFailedError: Configurations failed; the outcome of the others is in the workspace.
    """
    workspace, recorder = workspace.start_run(), StepRecorder(begun=datetime.now(UTC))
    with in_use(workspace), task_runner(runner) as subflow_runner:
        sources = find_documents(config.corpus, config.glob, config.loaders, config.corpus_shards)
        documents = load_corpus.map(sources, workspace=unmapped(workspace)).result()
        given = config.ground_truth, documents, config.evaluation_type, reanchor, config.copies
        truth = ground_truth(*given, workspace=workspace)
        inputs = BenchmarkInputs.of(config, documents, truth)
        guides = evaluate_all(guide_configurations(config), inputs, recorder, subflow_runner, workspace)
        choice = choose_configurations(config, inputs, workspace, guides)
        results = evaluate_all(choice.configurations, inputs, recorder, subflow_runner, workspace)
        outcome = conclude(config, recorder, sources, inputs, choice, results, reanchor, workspace=workspace)
        report(config.ground_truth, outcome, workspace=workspace)
        if config.langsmith_dataset is not None:  # a publishing failure does not fail the run
            publish_run(outcome, config.langsmith_dataset, workspace=workspace, return_state=True)
    return checked(workspace, outcome)


def evaluate_all(
    configurations: Sequence[Configuration],
    inputs: BenchmarkInputs,
    recorder: StepRecorder,
    runner: TaskRunner[Any],
    workspace: Workspace,
) -> Gathered:
    """Evaluate configurations in a subflow for each of their chunkings, and gather outcomes and failures."""
    groups = chunkings(configurations)
    shared = unmapped(inputs), unmapped(recorder), unmapped(runner)
    runs = evaluate.map(groups, *shared, workspace=unmapped(workspace))
    return gather(groups, runs)


# Prefect maps tasks, not flows.
@task(task_run_name="{chunking.name}", cache_policy=NO_CACHE)
def evaluate(
    chunking: Chunking,
    inputs: BenchmarkInputs,
    recorder: StepRecorder,
    runner: TaskRunner[Any],
    *,
    workspace: Workspace,
) -> list[ConfigurationOutcome]:
    """Run the subflow of one chunking, or of one whole system."""
    subflow = evaluate_chunking if chunking.system is None else evaluate_system
    # Wait here: otherwise Prefect stores the results of the subflow's tasks only when this task ends.
    with transaction(commit_mode=CommitMode.EAGER):
        return subflow.with_options(task_runner=runner)(chunking, inputs, recorder, workspace)


@flow(name="rag-eval-evaluate-chunking", flow_run_name="{chunking.name}", persist_result=False)
def evaluate_chunking(
    chunking: Chunking, inputs: BenchmarkInputs, recorder: StepRecorder, workspace: Workspace
) -> list[ConfigurationOutcome]:
    """Chunk, embed and index once, then retrieve and score with every configuration of the chunking."""
    documents, truth, queries, shared = inputs.documents, inputs.truth, inputs.truth.queries, unmapped(workspace)
    cut = chunks = chunk.map(documents, unmapped(chunking.chunker), unmapped(inputs.chunk_truth), workspace=shared)
    if chunking.context is not None:
        chunks = add_context.map(cut, documents, unmapped(chunking.context), workspace=shared)
    vectors = {embedder: embed.map(chunks, unmapped(embedder), workspace=shared) for embedder in chunking.embedders}
    sums = build_sums(chunking.summed, chunks, vectors, workspace)
    plan = chunking.plan(hits_to_fetch(cut, chunking.chunker, inputs.depth))
    indexes = {index: build_index(index, chunks, vectors.get(index.embedder), workspace) for index in plan.indexes}
    prepared = {
        settings: prepare_queries.submit(queries, documents, settings.rewriter, settings.selection, workspace=workspace)
        for settings in plan.queries
    }
    searched = {
        search: search_index(search, indexes[search.index], prepared[search.queries], workspace)
        for search in plan.searches
    }
    runs = []
    for configuration, searches in plan.configurations:
        found, summed = [searched[search] for search in searches], sums.get(summed_embedder(configuration))
        rankings, candidates = rankings_of(found), inputs.depth.candidates
        hits = retrieve.submit(configuration, rankings, queries, documents, candidates, summed, workspace=workspace)
        scores = score.submit(
            hits, truth, documents, inputs.metrics, inputs.ks, configuration.name, workspace=workspace
        )
        embedded = vectors.get(configuration.embedder, ())
        runs.append(ConfigurationRuns(configuration, hits, scores, cut, chunks, embedded, summed, found))
    return outcomes_of(runs, recorder, queries.rows)


@flow(name="rag-eval-evaluate-system", flow_run_name="{chunking.name}", persist_result=False)
def evaluate_system(
    chunking: Chunking, inputs: BenchmarkInputs, recorder: StepRecorder, workspace: Workspace
) -> list[ConfigurationOutcome]:
    """Query a whole retrieval system, and score what it returns."""
    documents, truth, system = inputs.documents, inputs.truth, chunking.system
    hits = ask_system.submit(
        system, documents, truth.queries, inputs.evaluation_type, inputs.depth.candidates, workspace=workspace
    )
    scores = score.submit(hits, truth, documents, inputs.metrics, inputs.ks, chunking.name, workspace=workspace)
    runs = ConfigurationRuns(chunking.configurations[0], hits, scores)
    return outcomes_of([runs], recorder, truth.queries.rows)
