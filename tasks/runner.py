"""Running stages one after another, and remembering which of them had to work."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast
from weakref import WeakValueDictionary

from prefect import Task
from prefect.client.schemas.objects import State, TaskRun

from rag_eval.benchmark.outcome import StageWork, Work
from rag_eval.benchmark.references import Made
from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.locks import in_turn
from rag_eval.errors import ConfigurationFailedError, RequestRefusedError, ServiceError, as_sentence
from tasks.progress import StageEvent, Status, tell
from tasks.stages import key_of, room_to_compute

P = ParamSpec("P")
R = TypeVar("R")
RETRY_DELAYS = (5.0, 30.0)
"""Seconds, after the embedders' and rerankers' own, quick attempts: for a service that is away for longer."""

ELSEWHERE = "another process is at work on it"
TOLD_AFTER = 2.0
"""Seconds of waiting for another process that are nobody's concern."""

logger = logging.getLogger("rag_eval.benchmark")

_keys_at_work: "WeakValueDictionary[tuple[str, str], Lock]" = WeakValueDictionary()
_guard = threading.Lock()


class Lock:
    """A lock that is forgotten when nobody holds or awaits it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class StageRunner:
    """Runs stage tasks in one workspace; ``work`` says for each whether its body ran or a kept result served."""

    def __init__(
        self,
        workspace: Workspace,
        configuration: str | None = None,
        *,
        retry_delays: Sequence[float] = RETRY_DELAYS,
        told_after: float = TOLD_AFTER,
    ) -> None:
        self._workspace = workspace
        self._configuration = configuration
        self._retry_delays = list(retry_delays)
        self._told_after = told_after
        self.work: dict[str, StageWork] = {}

    def __call__(self, task: Task[Concatenate[Workspace, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The task's result; raises what the task raised.

        A stage with a part that uses the network is tried again when the service fails, unless it refuses what it is
        sent; no other is.
        """
        started = time.perf_counter()
        self._tell(task.name, "started")
        try:
            state = self._state_of(task, *args, **kwargs)
            result = state.result()
        except Exception as error:
            self._take_note(task.name, "failed", started, reason=as_sentence(error))
            raise
        self._take_note(task.name, "reused" if state.name == "Cached" else "computed", started, result)
        return result

    @contextmanager
    def accounting(self) -> Iterator[Self]:
        """Have whatever fails in the block raise ``ConfigurationFailedError`` with the work done until then."""
        try:
            yield self
        except Exception as error:
            raise ConfigurationFailedError(as_sentence(error), self.work) from error

    def _state_of(self, task: Task[Concatenate[Workspace, P], R], *args: P.args, **kwargs: P.kwargs) -> State[R]:
        remote = any(getattr(argument, "remote", False) for argument in (*args, *kwargs.values()))
        key = key_of(task, self._workspace, *args, **kwargs)
        placed: Task[Any, R] = task.with_options(
            result_storage=self._workspace.results,
            retries=len(self._retry_delays) if remote else 0,
            retry_delay_seconds=self._retry_delays,
            retry_condition_fn=self._retry_condition(task.name),
        )
        with self._alone(task.name, key), room_to_compute(remote=remote):
            state = cast("State[R]", placed(self._workspace, *args, return_state=True, **kwargs))
        if state.is_completed() and state.name != "Cached":
            self._share(task.name, self._workspace.results / key)
        return state

    @contextmanager
    def _alone(self, stage: str, key: str) -> Iterator[None]:
        """Let nobody else do the same work: another configuration, or another run on this machine, finds it done."""
        with _guard:
            at_work = _keys_at_work.setdefault((str(self._workspace.root), key), Lock())
        soon = threading.Timer(self._told_after, lambda: self._tell(stage, "waiting", ELSEWHERE))
        soon.daemon = True

        def wait() -> None:
            if soon.ident is None:
                soon.start()

        with at_work.lock, in_turn(self._workspace.lock(key), wait):
            if soon.ident is not None:
                soon.cancel()
                soon.join()
                self._tell(stage, "started")
            yield

    def _share(self, stage: str, record: Path) -> None:
        """Have the kept result where other machines find it."""
        if record.is_file():
            self._workspace.send(record)
        else:
            logger.warning("the result of %s could not be kept: the next run computes it again", stage)

    def _retry_condition(self, stage: str) -> Callable[[Task[Any, Any], TaskRun, State[Any]], bool]:
        """Whether to try again, which Prefect asks before every new attempt: the one moment to say so."""

        def is_service_failure(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
            error = state.result(raise_on_failure=False)
            if not isinstance(error, ServiceError) or isinstance(error, RequestRefusedError):
                return False
            self._tell(stage, "retrying", as_sentence(error))
            return True

        return is_service_failure

    def _take_note(
        self, stage: str, work: Work, started: float, result: object = None, reason: str | None = None
    ) -> None:
        effort = result.effort if isinstance(result, Made) else None
        self.work[stage] = StageWork(work=work, effort=effort, seconds=round(time.perf_counter() - started, 3))
        self._tell(stage, work, reason)

    def _tell(self, stage: str, status: Status, reason: str | None = None) -> None:
        tell(StageEvent(self._configuration, stage, status, reason))
