"""The benchmark: load the corpus and the truth once, then evaluate every configuration in a subflow of its own."""

from typing import Any

from prefect import flow, task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

from rag_eval.benchmark.config import THREADS, BenchmarkConfig, Configuration
from rag_eval.benchmark.housekeeping import in_use
from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationOutcome, conclude
from rag_eval.benchmark.references import BenchmarkInputs
from rag_eval.benchmark.running import Evaluations, compare, evaluate_one
from rag_eval.benchmark.workers import ending_work, width
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
from tasks.runner import as_task, gather


@flow(name="rag-eval-evaluate-configuration", flow_run_name="{configuration.name}")
def evaluate_configuration(
    workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs
) -> ConfigurationOutcome:
    """Chunk, retrieve, rerank and score with one configuration."""
    tag_run(*configuration_tags(configuration))
    outcome = evaluate_one(workspace, configuration, inputs, as_task)
    show_configuration(workspace, outcome)
    return outcome


# The fan-out maps over a task because Prefect maps tasks, not flows; nothing of it is cached.
@task(name="evaluate", task_run_name="{configuration.name}", cache_policy=NO_CACHE)
def evaluate(workspace: Workspace, configuration: Configuration, inputs: BenchmarkInputs) -> ConfigurationOutcome:
    """Run the subflow of one configuration."""
    return evaluate_configuration(workspace, configuration, inputs)


def evaluate_all(workspace: Workspace, some: list[Configuration], inputs: BenchmarkInputs) -> Evaluations:
    """Map the subflow over configurations."""
    parts = {"workspace": unmapped(workspace), "configuration": some, "inputs": unmapped(inputs)}
    runner: ThreadPoolTaskRunner[Any] = ThreadPoolTaskRunner(max_workers=width())
    with runner as threads, ending_work():
        return gather(some, threads.map(evaluate, parts))


@flow(name="rag-eval-benchmark", flow_run_name=benchmark_run_name)
def benchmark(
    config: BenchmarkConfig, workspace: Workspace, reanchor: bool = False, runner: str = THREADS
) -> BenchmarkOutcome:
    """Compare the configurations on one corpus and one ground truth, whose spans are carried over to it if asked."""
    workspace = workspace.in_a_run_now()
    with in_use(workspace):
        tag_run("rag-eval", config.evaluation_type)
        outcome = compare(workspace, config, reanchor, runner, evaluate_all, as_task)
        show_ground_truth(workspace, config.ground_truth, outcome)
        report_run(workspace, outcome)
        if config.langsmith_dataset is not None or traces_address() is not None:
            publish(workspace, outcome, config.langsmith_dataset, return_state=True)  # a run is complete without it
    return conclude(workspace, outcome)
