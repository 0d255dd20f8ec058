"""Running stages one after another, and remembering which of them had to work."""

import logging
import threading
import time
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakValueDictionary

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run

from rag_eval.errors import ServiceError
from rag_eval.pipeline.outcome import StageWork
from rag_eval.pipeline.references import Effort
from rag_eval.pipeline.workspace import Workspace
from tasks.caching import key_of
from tasks.progress import StageEvent, Status, tell

P = ParamSpec("P")
R = TypeVar("R")
RETRY_DELAYS = [5.0, 30.0]
"""After the embedders' and rerankers' own, quick attempts: for a service that is away for longer."""

logger = logging.getLogger("rag_eval.pipeline")

_keys_at_work: "WeakValueDictionary[tuple[str, str], Lock]" = WeakValueDictionary()
_refreshed: set[tuple[str, str]] = set()
_guard = threading.Lock()


class Lock:
    """A lock that is forgotten when nobody holds or awaits it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class StageRunner:
    """Runs stage tasks in one workspace; ``work`` says for each whether its body ran or a kept result served."""

    def __init__(self, workspace: Workspace, configuration: str | None = None) -> None:
        self._workspace = workspace
        self._configuration = configuration
        self.work: dict[str, StageWork] = {}

    def __call__(self, task: Task[Concatenate[Workspace, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The task's result; raises what the task raised.

        A stage with a part that uses the network is tried again when the service fails; no other is.
        """
        remote = any(getattr(argument, "remote", False) for argument in (*args, *kwargs.values()))
        key = key_of(task, self._workspace, *args, **kwargs)
        placed: Task[Any, R] = task.with_options(
            result_storage=self._workspace.results,
            retries=len(RETRY_DELAYS) if remote else 0,
            retry_delay_seconds=RETRY_DELAYS,
            retry_condition_fn=_is_service_failure,
        )
        self._tell(task.name, "started")
        started = time.perf_counter()
        # Two configurations of one run may need the same work: the second waits and finds it done.
        with _guard:
            at_work = _keys_at_work.setdefault((str(self._workspace.root), key), Lock())
        with at_work.lock:
            # What one configuration has made again in this run, the others use.
            once = str(flow_run.root_flow_run_id), key
            placed = placed.with_options(refresh_cache=self._workspace.refresh and once not in _refreshed)
            state = cast("State[R]", placed(self._workspace, *args, return_state=True, **kwargs))
            if self._workspace.refresh:
                _refreshed.add(once)
        try:
            result = state.result()
        except BaseException:
            self._tell(task.name, "failed")
            raise
        reused = state.name == "Cached"
        if not (self._workspace.results / key).is_file():
            logger.warning("the result of %s could not be kept: the next run computes it again", task.name)
        self.work[task.name] = StageWork(
            work="reused" if reused else "computed",
            effort=None if reused else effort_of(result),
            seconds=round(time.perf_counter() - started, 3),
        )
        self._tell(task.name, "reused" if reused else "computed")
        return result

    def _tell(self, stage: str, status: Status) -> None:
        tell(StageEvent(self._configuration, stage, status))


def effort_of(result: object) -> Effort | None:
    """How much of a stage had to be done, where its result says so."""
    found = getattr(result, "effort", None) or getattr(getattr(result, "queries", None), "effort", None)
    return found if isinstance(found, Effort) else None


def _is_service_failure(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.result(raise_on_failure=False), ServiceError)
