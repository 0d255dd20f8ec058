"""General experiments as a flow, to deploy and schedule them."""

from pathlib import Path
from typing import Annotated

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from pydantic import Field

from rag_eval.errors import ExperimentFailedError
from rag_eval.experiments.experiment_file import Session, run_file
from rag_eval.experiments.file_outputs import experiment_markdown
from rag_eval.experiments.results import ExperimentResult, below, parse_minimums
from tasks.artifacts import best_effort
from tasks.current_folder import enter_project_folder


# The experiment stores finished samples itself, so a retry continues it.
@task(cache_policy=NO_CACHE, task_run_name="experiment")
def run_experiments(file: str, concurrency: int) -> list[ExperimentResult]:
    """Run the experiments of a file with at most this many concurrent calls; 0: as in the file."""
    return run_file(Path(file), Session(concurrency=concurrency or None, raises=False))


@flow(name="rag-eval-experiment", flow_run_name="{file}")
def experiment(
    file: str, concurrency: Annotated[int, Field(ge=0)] = 0, fail_under: tuple[str, ...] = ()
) -> dict[str, float]:
    """Run the experiments of a Python file; fail if a call fails or an average is below its minimum.

    Args:
        file: A Python file on the worker's machine, such as answers.py.
        concurrency: Maximum number of concurrent calls. 0: as in the file.
        fail_under: Minimum averages as metric=value, such as ExactMatch=0.8.
    """
    enter_project_folder()
    minimums = parse_minimums(fail_under)
    results = run_experiments(file, concurrency)
    with best_effort():
        create_markdown_artifact(markdown="\n\n".join(map(experiment_markdown, results)), key="experiment")
    failed = [result for result in results if result.failed]
    problems = [result.failure for result in failed] or below(results, minimums)
    if problems:
        raise ExperimentFailedError("; ".join(problems), (failed or results)[0])
    return {f"{result.name}: {key}": average.mean for result in results for key, average in result.averages.items()}
