"""The benchmark pipeline: load the corpus and the ground truth, then evaluate every chunking in a subflow of its own.

Each step is a task of ``tasks`` that Prefect caches. The configurations of one chunking share its chunks, vectors,
indexes and searches.
"""

from datetime import UTC, datetime
from typing import Any

from prefect import flow, task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import TaskRunner
from prefect.transactions import CommitMode, transaction

from flows.sweep import choose_configurations
from rag_eval.config.models import THREADS, BenchmarkConfig
from rag_eval.pipeline.inputs import BenchmarkInputs
from rag_eval.pipeline.plan import Chunking, chunkings
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.housekeeping import in_use
from rag_eval.results.outcome import BenchmarkOutcome, ConfigurationOutcome, StepRecorder, checked
from tasks.artifacts import benchmark_run_name, publish, report, show_chunking
from tasks.chunk import add_context, chunk, hits_to_fetch
from tasks.conclude import ConfigurationRuns, conclude, gather, outcomes_of
from tasks.corpus import find_documents, load_corpus
from tasks.embed import embed
from tasks.ground_truth import ground_truth
from tasks.index import build_index
from tasks.retrieve import ask_system, prepare_queries, retrieve, search_index
from tasks.runners import task_runner, threads
from tasks.score import score


@flow(name="rag-eval-benchmark", flow_run_name=benchmark_run_name, task_runner=threads(), persist_result=False)
def benchmark(
    config: BenchmarkConfig, workspace: Workspace, reanchor: bool = False, runner: str = THREADS
) -> BenchmarkOutcome:
    """Compare the configurations of a benchmark on one corpus and one ground truth.

    Args:
        config: What is compared, and on what.
        workspace: Where tables, cached results and the run are kept.
        reanchor: Move spans to where their text is in changed documents.
        runner: What runs the tasks of a chunking: threads, dask or ray.

    Raises:
        BenchmarkFailedError: Configurations failed; the outcome of the others is in the workspace.
    """
    work, workspace = StepRecorder(begun=datetime.now(UTC)), workspace.start_run()
    with in_use(workspace), task_runner(runner) as chunkings_runner:
        files = find_documents(config.corpus, config.glob, config.loaders, config.corpus_shards)
        documents = load_corpus.map(files, unmapped(workspace)).result()
        truth = ground_truth(config.ground_truth, documents, config.evaluation_type, workspace, reanchor, config.copies)
        inputs = BenchmarkInputs.of(config, documents, truth)
        shared = [unmapped(value) for value in (inputs, workspace, work, chunkings_runner)]
        choice = choose_configurations(config, inputs, workspace, lambda some: evaluate.map(some, *shared))
        chosen = chunkings(choice.configurations)
        evaluated = gather(chosen, evaluate.map(chosen, *shared))
        outcome = conclude(workspace, config, work, files, inputs, choice, evaluated, reanchor)
        report(workspace, config.ground_truth, outcome)
        publish(workspace, outcome, config.langsmith_dataset)
    return checked(workspace, outcome)


# Prefect maps tasks, not flows.
@task(task_run_name="{chunking.name}", cache_policy=NO_CACHE, persist_result=False)
def evaluate(
    chunking: Chunking, inputs: BenchmarkInputs, workspace: Workspace, work: StepRecorder, runner: TaskRunner[Any]
) -> list[ConfigurationOutcome]:
    """Run the subflow of one chunking, or of one whole system."""
    subflow = evaluate_chunking if chunking.system is None else evaluate_system
    # Eager: else Prefect would store the results of the subflow's tasks only when this task ends.
    with transaction(commit_mode=CommitMode.EAGER):
        return subflow.with_options(task_runner=runner)(chunking, inputs, workspace, work)


@flow(name="rag-eval-evaluate-chunking", flow_run_name="{chunking.name}", persist_result=False)
def evaluate_chunking(
    chunking: Chunking, inputs: BenchmarkInputs, workspace: Workspace, work: StepRecorder
) -> list[ConfigurationOutcome]:
    """Chunk, embed and index once, then retrieve and score with every configuration of the chunking."""
    documents, truth, here = inputs.documents, inputs.truth, unmapped(workspace)
    cut = chunks = chunk.map(documents, unmapped(chunking.chunker), here, unmapped(inputs.chunk_truth))
    if chunking.context is not None:
        chunks = add_context.map(cut, documents, unmapped(chunking.context), here)
    vectors = {embedder: embed.map(chunks, unmapped(embedder), here) for embedder in chunking.embedders}
    plan = chunking.plan(hits_to_fetch(cut, chunking.chunker, inputs.depth))
    indexes = {index: build_index(index, chunks, vectors.get(index.embedder), workspace) for index in plan.indexes}
    queries = {
        query: prepare_queries.submit(truth.queries, query.rewriter, query.selection, documents, workspace)
        for query in plan.queries
    }
    rankings = {
        search: search_index(search, indexes[search.index], queries[search.queries], workspace)
        for search in plan.searches
    }
    runs = []
    for configuration, searches in plan.configurations:
        found, embedded = [rankings[search] for search in searches], vectors.get(configuration.embedder, ())
        hits = retrieve.submit(configuration, found, truth.queries, documents, inputs.candidates, workspace)
        scores = score.submit(hits, truth, documents, chunks, inputs.metrics, inputs.ks, workspace, configuration.name)
        runs.append(ConfigurationRuns(configuration, hits, scores, cut, chunks, embedded, found))
    outcomes = outcomes_of(runs, work, truth.queries.rows)
    show_chunking(chunking.name, outcomes)
    return outcomes


@flow(name="rag-eval-evaluate-system", flow_run_name="{chunking.name}", persist_result=False)
def evaluate_system(
    chunking: Chunking, inputs: BenchmarkInputs, workspace: Workspace, work: StepRecorder
) -> list[ConfigurationOutcome]:
    """Ask a whole retrieval system, and score what it found."""
    documents, truth = inputs.documents, inputs.truth
    hits = ask_system.submit(
        chunking.system, documents, truth.queries, inputs.evaluation_type, inputs.candidates, workspace
    )
    scores = score.submit(hits, truth, documents, [], inputs.metrics, inputs.ks, workspace, chunking.name)
    runs = ConfigurationRuns(chunking.configurations[0], hits, scores)
    return outcomes_of([runs], work, truth.queries.rows)
