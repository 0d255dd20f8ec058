"""General experiments as a flow, to be deployed and scheduled."""

from prefect import flow

from rag_eval.errors import ExperimentFailedError
from rag_eval.experiments.gates import Gate, below
from rag_eval.experiments.running import failure_of
from tasks.experiments import experiments_of, show_experiments


@flow(name="experiment", flow_run_name="{file}")
def experiment(file: str, concurrency: int | None = None, fail_under: list[str] | None = None) -> dict[str, float]:
    """Run the experiments of a Python file; the run fails when a call fails or an average is below its gate.

    Args:
        file: The Python file, as the worker sees it.
        concurrency: How many calls may be under way at once; empty: as the file says.
        fail_under: Averages to reach, each as metric=value.
    """
    gates = [Gate.parse(text) for text in fail_under or []]
    results = experiments_of(file, concurrency)
    show_experiments(results)
    problems = [failure_of(result) for result in results if result.failed] + below(results, gates)
    if problems:
        raise ExperimentFailedError("; ".join(problems), results[0])
    return {f"{one.name}: {key}": average.mean for one in results for key, average in one.averages.items()}
