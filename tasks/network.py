"""Options of tasks that may call a service: retries after an outage, and run names."""

from collections.abc import Callable
from typing import Any, TypedDict

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import task_run

from rag_eval.errors import is_outage
from rag_eval.parts import label
from rag_eval.retry import STAGE_DELAYS


def is_retried(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether to retry: after an outage of a service, but not after a refused request or a bug."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, Exception) and is_outage(error)


class Retries(TypedDict):
    """Options of ``@task``."""

    retries: int
    retry_delay_seconds: list[float]
    retry_condition_fn: Callable[[Task[..., Any], TaskRun, State[Any]], bool]


RETRIES: Retries = {
    "retries": len(STAGE_DELAYS),
    "retry_delay_seconds": list(STAGE_DELAYS),
    "retry_condition_fn": is_retried,
}
"""Options of ``@task`` for a task that may call a service."""


def named_by(parameter: str) -> Callable[[], str]:
    """Return a ``task_run_name`` from the name of the task and the label of the part in this parameter."""

    def run_name() -> str:
        return f"{str(task_run.task_name).replace('_', ' ')} {label(task_run.parameters[parameter])}"

    return run_name
