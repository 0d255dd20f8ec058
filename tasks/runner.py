"""The work of a benchmark as tasks of Prefect.

Prefect keeps nothing of them: a task looks for the record that the library kept of its stage, and shows as Cached when
there is one. The message of its state is the key of the work.
"""

from collections.abc import Sequence
from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.futures import PrefectFuture
from prefect.states import Completed

from rag_eval.benchmark.config import Configuration
from rag_eval.benchmark.outcome import ConfigurationFailure, ConfigurationOutcome
from rag_eval.benchmark.records import Done
from rag_eval.benchmark.running import Evaluations, NamedWork, failure_of
from rag_eval.errors import RagEvalError
from tasks.artifacts import as_each_completes

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


def gather(configurations: Sequence[Configuration], futures: Sequence[PrefectFuture[Any]]) -> Evaluations:
    """Return the outcomes of the runs that completed, in the order given, and the failures by configuration name.

    A progress artifact is kept up to date meanwhile.
    """
    by_run = {future.task_run_id: one for future, one in zip(futures, configurations, strict=True)}
    done: dict[str, ConfigurationOutcome] = {}
    failed: dict[str, ConfigurationFailure] = {}
    for future in as_each_completes(futures, "progress", "Configurations evaluated"):
        configuration, state = by_run[future.task_run_id], future.state
        name = configuration.name
        if state.is_completed():
            done[name] = future.result()
        else:
            error = state.result(raise_on_failure=False)
            known = error if isinstance(error, BaseException) else RagEvalError(str(state.message))
            failed[name] = failure_of(configuration, known)
    names = [one.name for one in configurations]  # in the order given, whichever was done first
    return [done[name] for name in names if name in done], {name: failed[name] for name in names if name in failed}
