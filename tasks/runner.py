"""Running the library's stages as Prefect tasks, one after another, and telling listeners which of them had to work.

Prefect keeps nothing of them: a task looks for the record that the library kept of its stage, and shows as Cached when
there is one. The message of its state is the key of the work.
"""

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

from rag_eval.benchmark.grid_search import Rounds, Settled
from rag_eval.benchmark.outcome import StageWork, Work
from rag_eval.benchmark.records import Doing, Done, Inputs, alone, do_once
from rag_eval.benchmark.references import Effort, effort_of
from rag_eval.benchmark.stage import Stage, unused_name
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ConfigurationFailedError, DamagedError, as_sentence, is_outage
from rag_eval.parts import is_part, is_remote
from rag_eval.progress import followed, listening_to
from rag_eval.retry import STAGE_DELAYS

R = TypeVar("R")
logger = logging.getLogger("rag_eval.benchmark")

Status = Literal["started", "waiting", "retrying", "computed", "reused", "failed", "told"] | Settled
SEARCH = "search"
"""The stage of what a search tells: of a configuration that it need not be evaluated, of all what is spent."""

CACHED = "Cached"
"""The name of the state of a stage whose result was kept, as Prefect itself calls it."""

ELSEWHERE = "another process is at work on it"
MOST_MENDED = 8
"""As many stages as a configuration has; each may be damaged."""
TOLD_AFTER = 2.0
"""Seconds of waiting for another process that are nobody's concern."""


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A stage of a configuration (None: of the whole benchmark) has changed its status.

    ``reason`` says why a stage waits, is retried or has failed, or what is told; None otherwise. A stage that has
    started tells again how much is ``done`` of how much, where it knows.
    """

    configuration: str | None
    stage: str
    status: Status
    reason: str | None = None
    done: tuple[int, int] | None = None


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


def tell(*event: Any, **more: Any) -> None:
    """Tell every listener of a ``StageEvent``, which is given by its fields."""
    for listener in list(_listeners):
        listener(StageEvent(*event, **more))


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Tokenizers, numpy and LanceDB use several cores each, and Python code one at a time: as many stages as cores would
# take a third more CPU time and no less real time.
_computing = threading.BoundedSemaphore(max(1, cores() // 2))


def room_to_compute(*, remote: bool) -> AbstractContextManager[object]:
    """Wait until a stage may compute; one that mostly waits for a service need not wait for others too."""
    return nullcontext() if remote else _computing


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
        self._tell = functools.partial(tell, configuration)
        self._retry_delays = list(retry_delays)
        self._told_after = told_after
        self.work: dict[str, StageWork] = {}
        self._before: dict[str, StageWork] = {}  # what was computed before work was begun again

    def __call__(self, stage: Stage, *inputs: Any) -> Any:
        """The stage's result; raises what the stage raised."""
        started, name = time.perf_counter(), unused_name(stage.name, self.work)

        def note(work: Work, effort: Effort | None = None, key: str | None = None, reason: str | None = None) -> None:
            done = StageWork(work=work, effort=effort, seconds=round(time.perf_counter() - started, 3), key=key)
            self.work[name] = self._before.get(name, done) if work == "reused" else done
            self._tell(name, work, reason)

        self._tell(name, "started")
        try:
            state = self._state_of(stage, name, *inputs)
            result = state.result()
        except Exception as error:
            note("failed", reason=as_sentence(error))
            raise
        note("reused" if state.name == CACHED else "computed", effort_of(result), state.message)
        return result

    def mending(self, work: Callable[[], R]) -> R:
        """Return what work with these stages gives; where a kept table turns out to be damaged, begin again.

        It is no longer found by then, so that the stage that made it makes it anew. Raises ``DamagedError`` when that
        is of no use: it is none of these stages' own, or as many as there are were damaged.
        """
        for _ in range(MOST_MENDED):
            try:
                return work()
            except DamagedError as error:
                logger.warning("%s", error)
                self._before |= {name: done for name, done in self.work.items() if done.work == "computed"}
                self.work = {}
        return work()

    def _state_of(self, stage: Stage, name: str, *inputs: Any) -> State[Any]:
        """The state of the task that gives the kept result of the stage, else does the work and keeps it.

        A stage with a part that uses the network is tried again when the service fails, unless it refuses what it is
        sent; no other is.
        """
        remote = any(is_remote(one) if is_part(one) else getattr(one, "remote", False) for one in inputs)
        workspace, tells = self._workspace, functools.partial(self._tell, name)
        doing = _Computing(tells, self._told_after, remote=remote)

        def look_up_or_compute() -> Any:
            result, key, was_kept = do_once(workspace, stage, inputs, doing)
            named: dict[str, Any] = {"name": CACHED} if was_kept else {}
            return Completed(data=result, message=key, **named)

        delays = self._retry_delays if remote else []
        task = _task(look_up_or_compute, stage.name, tells, delays, stage.compute.__doc__, str(stage.version))
        return task(return_state=True)

    @contextmanager
    def accounting(self) -> Iterator[Self]:
        """Have whatever fails in the block raise ``ConfigurationFailedError`` with the work done until then."""
        try:
            yield self
        except Exception as error:
            raise ConfigurationFailedError(as_sentence(error), self.work, is_outage(error)) from error


class RoundRunner(Rounds):
    """Runs the stages of a search within its rounds: a round is a task run, and shows as Cached where all was kept."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._computed = workspace, 0

    def __call__(self, stage: Stage, *inputs: Any) -> Any:
        """Return what a stage makes, kept or made now."""
        doing = _Computing(lambda *_, **__: None, TOLD_AFTER, remote=False)
        result, _, was_kept = do_once(self._workspace, stage, inputs, doing)
        self._computed += not was_kept
        return result

    def do(self, name: str, work: Callable[[], R]) -> R:
        """Do a round, again where a service did not answer; listeners are told. The task has its name's first word."""
        tells, before = functools.partial(tell, None, name), self._computed

        def measure() -> Any:
            result = work()
            named: dict[str, Any] = {"name": CACHED} if self._computed == before else {}
            return Completed(data=result, **named)

        tells("started")
        task = _task(measure, name.split()[0], tells, STAGE_DELAYS).with_options(task_run_name=lambda: name)
        state = task(return_state=True)
        result: R = state.result()
        tells("reused" if state.name == CACHED else "computed")
        return result

    def tell_spent(self, told: str) -> None:
        tell(None, SEARCH, "told", told)

    def settle(self, name: str, status: Settled) -> None:
        tell(name, SEARCH, status)


def _task(
    work: Callable[[], Any],
    name: str,
    tells: Callable[..., None],
    delays: Sequence[float],
    description: str | None = None,
    version: str | None = None,
) -> Task[[], Any]:
    """A task of which Prefect keeps nothing, tried again after these delays when a service does not answer."""

    def is_tried_again(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
        # Prefect asks before every new attempt: the one moment to say so.
        error = state.result(raise_on_failure=False)
        if not isinstance(error, Exception) or not is_outage(error):
            return False
        tells("retrying", as_sentence(error))
        return True

    return Task(
        fn=work,
        name=name,
        description=description,
        version=version,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=len(delays),
        retry_delay_seconds=list(delays),
        retry_condition_fn=is_tried_again,
    )


class _Computing(Doing):
    """Computes by the workers that are set, pieces at once, and tells when another process is waited for."""

    def __init__(self, tells: Callable[..., None], told_after: float, *, remote: bool) -> None:
        self._tells, self._told_after, self._remote, self._is_divided = tells, told_after, remote, False

    def each(self, work: Callable[[Inputs], Done], pieces: list[Inputs]) -> list[Done]:
        contexts, workers = [copy_context() for _ in pieces], _workers.get()
        self._is_divided = True
        with ThreadPoolExecutor(max_workers=cores() if workers is None else workers.width) as threads:
            done = threads.map(lambda context, piece: context.run(work, piece), contexts, pieces)
            with listening_to(self._tell_progress):
                return [one for one, _ in zip(done, followed(pieces), strict=True)]

    @contextmanager
    def turn(self, workspace: Workspace, key: str) -> Iterator[None]:
        soon = threading.Timer(self._told_after, self._tells, ("waiting", ELSEWHERE))
        soon.daemon = True

        def wait() -> None:
            if soon.ident is None:
                soon.start()

        with alone(workspace, key, wait):
            if soon.ident is not None:
                soon.cancel()
                soon.join()
                self._tells("started")
            yield

    def _tell_progress(self, done: int, total: int) -> None:
        if done < total:
            self._tells("started", done=(done, total))

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        workers = _workers.get()
        if workers is not None:
            return workers.compute(stage, workspace, inputs)
        # Of work that is divided the pieces are counted.
        told = nullcontext() if self._is_divided else listening_to(self._tell_progress)
        with room_to_compute(remote=self._remote), told:
            return super().compute(stage, workspace, inputs)


class Workers(Protocol):
    """What computes stages in other processes."""

    width: int
    """How many pieces of work they are given at once."""

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        """Return what the stage makes; raises what it raises, and ``RagEvalError`` when the process ends before."""


_workers: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def working_by(workers: Workers | None) -> Iterator[None]:
    """Have the stages of the block computed by these workers; None is this process."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)
