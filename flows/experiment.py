"""General experiments as a flow, to be deployed and scheduled."""

from typing import Annotated

from prefect import flow
from pydantic import Field

from rag_eval.errors import ExperimentFailedError
from rag_eval.experiments.scores import MinimumAverage, below
from tasks.experiments import experiments_of, show_experiments


@flow(name="experiment", flow_run_name="{file}")
def experiment(
    file: str, concurrency: Annotated[int, Field(ge=0)] = 0, fail_under: tuple[str, ...] = ()
) -> dict[str, float]:
    """Run the experiments of a Python file; the run fails when a call fails or an average is below its minimum.

    Args:
        file: A Python file on the worker's machine, such as answers.py.
        concurrency: How many calls may be under way at once. 0: as the file says.
        fail_under: Averages to reach, each as metric=value, such as ExactMatch=0.8.
    """
    minimums = [MinimumAverage.parse(text) for text in fail_under]
    results = experiments_of(file, concurrency, minimums)
    show_experiments(results)
    failed = [result for result in results if result.failed]
    problems = [result.failure for result in failed] or below(results, minimums)
    if problems:
        raise ExperimentFailedError("; ".join(problems), (failed or results)[0])
    return {f"{one.name}: {key}": average.mean for one in results for key, average in one.averages.items()}
