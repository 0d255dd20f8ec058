"""The work of a benchmark as tasks of Prefect.

Prefect keeps nothing of them: a task looks for the record that the library kept of its stage, and shows as Cached when
there is one. The message of its state is the key of the work.
"""

from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from rag_eval.benchmark.records import Done
from rag_eval.benchmark.running import NamedWork

CACHED = "Cached"
"""The name of the state of a stage whose result was kept, as Prefect itself calls it."""


def as_task(named: NamedWork) -> Done:
    """Do work as a task run, which is tried again when a service does not answer."""

    def work() -> Any:
        done = named.work()
        state: dict[str, Any] = {"name": CACHED} if done.was_kept else {}
        return Completed(data=done, message=done.key or None, **state)

    def is_tried_again(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
        # Prefect asks before every new attempt: the one moment to say so.
        return named.is_tried_again(state.result(raise_on_failure=False))

    task = Task(
        fn=work,
        name=named.name,
        description=named.description,
        version=named.version,
        task_run_name=None if named.title is None else lambda: str(named.title),  # which a text would be filled in
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(named.delays),
        retry_delay_seconds=list(named.delays),
        retry_condition_fn=is_tried_again,
    )
    done: Done = task(return_state=True).result()
    return done
