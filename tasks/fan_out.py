"""Running configurations side by side: what computes their stages, and what became of each."""

import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from logging.handlers import QueueHandler, QueueListener
from multiprocessing import get_context
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # Prefect needs it too
from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner

from rag_eval.benchmark.config import THREADS, Configuration, check_runner
from rag_eval.benchmark.outcome import ConfigurationFailure, ConfigurationOutcome
from rag_eval.benchmark.records import Inputs
from rag_eval.benchmark.running import Evaluations, cores, failure_of, working_by
from rag_eval.benchmark.stage import Stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import RagEvalError, as_sentence
from tasks.artifacts import as_each_completes


@contextmanager
def side_by_side(name: str) -> Iterator[ThreadPoolTaskRunner[Any]]:
    """Give what runs configurations side by side, with their stages computed by the runner of this name.

    That has as many workers as there are cores, and at least two. A Dask or a Ray cluster is the one that
    DASK_SCHEDULER_ADDRESS or RAY_ADDRESS names, else one on this machine that lasts as long as the run. Raises
    ``ConfigurationError`` as ``check_runner`` does.
    """
    check_runner(name)
    width = max(2, cores())
    with ExitStack() as stack:
        workers = stack.enter_context(RUNNERS[name](width)) if name != THREADS else None
        stack.enter_context(working_by(workers))
        most = width if workers is None else workers.width
        runner: ThreadPoolTaskRunner[Any] = stack.enter_context(ThreadPoolTaskRunner(max_workers=most))
        try:
            yield runner
        except BaseException:  # Ctrl-C too: threads that wait for a process would have to wait for its work
            getattr(workers, "stop", lambda: None)()
            raise


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Have processes and threads that are started in the block never told of Ctrl-C, which is for this process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


logger = logging.getLogger("rag_eval.benchmark")

LOST = "the process that worked on it ended before it was done: see whether it ran out of memory"
MOST_AT_ONCE = 64
"""How many pieces of work of a stage are given to a cluster at once, which decides what runs when."""


def _compute(stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
    """What a stage makes, in another process; an error that cannot go from there to here is told as a sentence."""
    try:
        return stage(workspace, *inputs)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  # of what was made here just now
        except Exception:  # noqa: BLE001  # whatever a class of somebody else's raises
            raise RagEvalError(as_sentence(error)) from None
        raise


@dataclass(frozen=True)
class _Cluster:
    """The workers of a Dask or a Ray cluster, which work on tasks of the configuration's own flow run."""

    runner: Any
    width: int = MOST_AT_ONCE

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        def work() -> Any:
            return _compute(stage, workspace, inputs)

        name = f"{stage.name} on a worker"
        future = self.runner.submit(Task(fn=work, name=name, cache_policy=NO_CACHE, persist_result=False), {})
        future.wait()
        if not future.state.is_final():
            raise RagEvalError(LOST)
        return future.state.result()


@contextmanager
def _cluster(runner: Any) -> Iterator[_Cluster]:
    with ExitStack() as stack:
        with deaf_to_interrupts():
            started = stack.enter_context(runner)
            getattr(started, "client", None)  # Dask begins at the first use, and would once in every thread
        yield _Cluster(started)


def _dask(workers: int) -> Any:
    runner = import_module("prefect_dask").DaskTaskRunner
    if address := os.environ.get("DASK_SCHEDULER_ADDRESS"):
        return _cluster(runner(address=address))
    return _cluster(
        runner(
            cluster_kwargs={
                "n_workers": workers,
                "threads_per_worker": 1,
                "dashboard_address": None,
                "host": "127.0.0.1",
            }
        )
    )


def _ray(workers: int) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
    runner = import_module("prefect_ray").RayTaskRunner
    if address := os.environ.get("RAY_ADDRESS"):
        return _cluster(runner(address=address))
    return _cluster(runner(init_kwargs={"num_cpus": workers, "include_dashboard": False}))


MOST_DEATHS = 3
"""How often work is begun again whose process has ended."""


class _Processes:
    """Processes of this machine; when one is killed, what it was at is done again in a process of its own."""

    def __init__(self, width: int, started: Callable[[int], ProcessPoolExecutor]) -> None:
        self.width, self._started = width, started
        self._pool, self._guard, self._stopped = started(width), threading.Lock(), False

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        work, pool = cloudpickle.dumps((stage, workspace, inputs)), self._pool
        with suppress(BrokenProcessPool):
            return self._done(pool, work)
        with self._guard:  # all that the others were at has ended with it
            if self._pool is pool and not self._stopped:
                logger.warning("a process was killed: what was under way is done again")
                self._pool = self._started(self.width)
        for _ in range(MOST_DEATHS if not self._stopped else 0):
            with self._started(1) as own, suppress(BrokenProcessPool):
                return self._done(own, work)
        raise RagEvalError(LOST)

    @staticmethod
    def _done(pool: ProcessPoolExecutor, work: bytes) -> Any:
        with deaf_to_interrupts():  # a pool starts its processes when it is given work
            future = pool.submit(_unpack, work)
        return future.result()

    def stop(self) -> None:
        """End the processes, whatever they are at."""
        self._stopped = True
        for process in [*(getattr(self._pool, "_processes", None) or {}).values()]:
            process.kill()

    def close(self) -> None:
        """Wait for the processes to end."""
        self._pool.shutdown()


def _unpack(work: bytes) -> Any:
    return _compute(*cloudpickle.loads(work))


@contextmanager
def _processes(workers: int) -> Iterator[_Processes]:
    context = get_context("spawn")
    said = context.Queue()
    listener = QueueListener(said, _Said())
    listener.start()
    try:
        with closing(_Processes(workers, lambda n: ProcessPoolExecutor(n, context, _say_to, (said,)))) as processes:
            yield processes
    finally:
        listener.stop()
        said.close()


def _say_to(queue: Any) -> None:
    logging.getLogger("rag_eval").addHandler(QueueHandler(queue))


class _Said(logging.Handler):
    """What a process wrote to its log, written to that of this one."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(record.name).handle(record)


RUNNERS = {"processes": _processes, "dask": _dask, "ray": _ray}


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
