"""Running the library's stages as Prefect tasks, one after another, and telling listeners which of them had to work.

Prefect keeps nothing of them: a task looks for the record that the library kept of its stage, and shows as Cached,
with the key of the work as its message, when there is one.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, cast

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from rag_eval.benchmark.outcome import StageWork, Work
from rag_eval.benchmark.records import alone, find_record, keep_record
from rag_eval.benchmark.references import effort_of
from rag_eval.benchmark.stage import Stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ConfigurationFailedError, RequestRefusedError, ServiceError, as_sentence
from rag_eval.parts import is_part, is_remote
from rag_eval.retry import STAGE_DELAYS

P = ParamSpec("P")
R = TypeVar("R")
Status = Literal["started", "waiting", "retrying", "computed", "reused", "failed"]

CACHED = "Cached"
"""The name of the state of a stage whose result was kept, as Prefect itself calls it."""

ELSEWHERE = "another process is at work on it"
TOLD_AFTER = 2.0
"""Seconds of waiting for another process that are nobody's concern."""


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A stage of a configuration (None: of the whole benchmark) has changed its status.

    ``reason`` says in one sentence why a stage waits, is retried or has failed; None otherwise.
    """

    configuration: str | None
    stage: str
    status: Status
    reason: str | None = None


Listener = Callable[[StageEvent], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with every event of this process, from the threads that do the work."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(event: StageEvent) -> None:
    """Tell every listener."""
    for listener in list(_listeners):
        listener(event)


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Tokenizers, numpy and LanceDB use several cores each, and Python code one at a time: as many stages as cores would
# take a third more CPU time and no less real time.
_computing = threading.BoundedSemaphore(max(1, cores() // 2))


@contextmanager
def room_to_compute(*, remote: bool) -> Iterator[None]:
    """Wait until a stage may compute; one that mostly waits for a service need not wait for others too."""
    if remote:
        yield
        return
    with _computing:
        yield


def stage_task(stage: Stage[Concatenate[Workspace, P], R], key: str, **options: Any) -> Task[..., R]:
    """The Prefect task that gives the kept result of the work with this key, else does the work and keeps it.

    ``options`` are those of a Prefect task.
    """

    @functools.wraps(stage.run)
    def look_up_or_compute(workspace: Workspace, *args: P.args, **kwargs: P.kwargs) -> R | State[R]:
        found = find_record(workspace, stage, key)
        if found is not None:
            return cast("State[R]", Completed(name=CACHED, data=found, message=key))
        with room_to_compute(remote=_asks_a_service(*args, **kwargs)):
            made = stage(workspace, *args, **kwargs)
        keep_record(workspace, stage, key, made)
        return made

    return cast(
        "Task[..., R]",
        Task(
            fn=look_up_or_compute,
            name=stage.name,
            version=str(stage.version),
            cache_policy=NO_CACHE,
            persist_result=False,
            **options,
        ),
    )


def _asks_a_service(*args: object, **kwargs: object) -> bool:
    """Whether a part among the arguments of a stage uses the network."""
    given = (*args, *kwargs.values())
    return any(is_remote(one) if is_part(one) else getattr(one, "remote", False) for one in given)


class StageRunner:
    """Runs stages in one workspace; ``work`` says for each whether it computed or a kept result served."""

    def __init__(
        self,
        workspace: Workspace,
        configuration: str | None = None,
        *,
        retry_delays: Sequence[float] = STAGE_DELAYS,
        told_after: float = TOLD_AFTER,
    ) -> None:
        self._workspace = workspace
        self._configuration = configuration
        self._retry_delays = list(retry_delays)
        self._told_after = told_after
        self.work: dict[str, StageWork] = {}

    def __call__(self, stage: Stage[Concatenate[Workspace, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The stage's result; raises what the stage raised.

        A stage with a part that uses the network is tried again when the service fails, unless it refuses what it is
        sent; no other is.
        """
        started = time.perf_counter()
        self._tell(stage.name, "started")
        try:
            state = self._state_of(stage, *args, **kwargs)
            result = state.result()
        except Exception as error:
            self._take_note(stage.name, "failed", started, reason=as_sentence(error))
            raise
        self._take_note(stage.name, "reused" if state.name == CACHED else "computed", started, result)
        return result

    @contextmanager
    def accounting(self) -> Iterator[Self]:
        """Have whatever fails in the block raise ``ConfigurationFailedError`` with the work done until then."""
        try:
            yield self
        except Exception as error:
            raise ConfigurationFailedError(as_sentence(error), self.work) from error

    def _state_of(self, stage: Stage[Concatenate[Workspace, P], R], *args: P.args, **kwargs: P.kwargs) -> State[R]:
        key = stage.key(self._workspace, *args, **kwargs)
        task = stage_task(
            stage,
            key,
            retries=len(self._retry_delays) if _asks_a_service(*args, **kwargs) else 0,
            retry_delay_seconds=self._retry_delays,
            retry_condition_fn=self._retry_condition(stage.name),
        )
        with self._alone(stage.name, key):
            return cast("State[R]", task(self._workspace, *args, return_state=True, **kwargs))

    @contextmanager
    def _alone(self, stage: str, key: str) -> Iterator[None]:
        """Wait for another process that does the same work, and say so if that takes a while."""
        soon = threading.Timer(self._told_after, lambda: self._tell(stage, "waiting", ELSEWHERE))
        soon.daemon = True

        def wait() -> None:
            if soon.ident is None:
                soon.start()

        with alone(self._workspace, key, wait):
            if soon.ident is not None:
                soon.cancel()
                soon.join()
                self._tell(stage, "started")
            yield

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
        seconds = round(time.perf_counter() - started, 3)
        self.work[stage] = StageWork(work=work, effort=effort_of(result), seconds=seconds)
        self._tell(stage, work, reason)

    def _tell(self, stage: str, status: Status, reason: str | None = None) -> None:
        tell(StageEvent(self._configuration, stage, status, reason))
