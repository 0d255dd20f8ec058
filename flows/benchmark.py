"""The benchmark: load the corpus and the truth once, then evaluate every configuration in a subflow of its own."""

from datetime import UTC, datetime
from typing import Any

from prefect import flow, task, unmapped
from prefect.cache_policies import NO_CACHE

from rag_eval.benchmark import engine, stages
from rag_eval.benchmark.config import THREADS, BenchmarkConfig, Configuration
from rag_eval.benchmark.grid_search import search_grid
from rag_eval.benchmark.housekeeping import in_use, notice_first_version
from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationOutcome, conclude, keep_outcome, summarise
from rag_eval.benchmark.references import BenchmarkInputs, CorpusSource
from rag_eval.benchmark.truth_stages import ground_truth
from rag_eval.benchmark.workspace import Workspace
from rag_eval.services.posting import traces_address
from tasks.artifacts import (
    benchmark_run_name,
    configuration_tags,
    publish,
    report_run,
    show_configuration,
    show_ground_truth,
    tag_run,
)
from tasks.fan_out import gather, side_by_side
from tasks.runner import RoundRunner, StageRunner


@flow(name="rag-eval-evaluate-configuration", flow_run_name="{configuration.name}")
def evaluate_configuration(
    workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs
) -> ConfigurationOutcome:
    """Chunk, retrieve, rerank and score with one configuration."""
    tag_run(*configuration_tags(configuration))
    with StageRunner(workspace, configuration.name).accounting() as run:

        def measure() -> ConfigurationOutcome:
            evaluated = engine.evaluate(run, configuration, inputs)
            return summarise(workspace, configuration, evaluated, run.work, inputs)

        outcome = run.mending(measure)
        show_configuration(workspace, outcome)
        return outcome


# The fan-out maps over a task because Prefect maps tasks, not flows; nothing of it is cached.
@task(name="evaluate", task_run_name="{configuration.name}", cache_policy=NO_CACHE)
def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> ConfigurationOutcome:
    """Run the subflow of one configuration."""
    return evaluate_configuration(workspace, configuration, inputs)


@flow(name="rag-eval-benchmark", flow_run_name=benchmark_run_name)
def benchmark(
    config: BenchmarkConfig, workspace: Workspace, reanchor: bool = False, runner: str = THREADS
) -> BenchmarkOutcome:
    """Compare the configurations on one corpus and one ground truth, whose spans are carried over to it if asked."""
    started = datetime.now(UTC)
    workspace = workspace.model_copy(update={"begun": started})
    with in_use(workspace):
        notice_first_version(workspace)
        tag_run("rag-eval", config.evaluation_type)
        corpus, run = CorpusSource.of(config.corpus, config.glob), StageRunner(workspace)
        documents = run(stages.load_corpus, corpus, config.shards)
        truth = ground_truth(run, config.ground_truth, documents, config.evaluation_type, reanchor, config.copies)
        inputs = BenchmarkInputs.of(config, documents, truth)
        with side_by_side(runner) as threads:

            def evaluate_all(some: list[Configuration]) -> Any:
                parts = {"workspace": unmapped(workspace), "configuration": some, "inputs": unmapped(inputs)}
                return gather(some, threads.map(evaluate, parts))

            rounds = RoundRunner(workspace)
            done, failed, search = StageRunner(workspace).mending(
                lambda: search_grid(rounds, workspace, config, inputs, evaluate_all, rounds)
            )
        outcome = keep_outcome(workspace, started, config, corpus, inputs, done, failed, run.work, search)
        show_ground_truth(workspace, config.ground_truth, outcome)
        report_run(workspace, outcome)
        if config.langsmith_dataset is not None or traces_address() is not None:
            publish(workspace, outcome, config.langsmith_dataset, return_state=True)  # a run is complete without it
    return conclude(workspace, outcome)
