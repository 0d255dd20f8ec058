"""What computes stages: this process, others of this machine, or those of a Dask or a Ray cluster."""

import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from logging.handlers import QueueHandler
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import cloudpickle  # type: ignore[import-untyped]

from rag_eval.benchmark.config import THREADS, check_runner
from rag_eval.benchmark.records import Inputs
from rag_eval.benchmark.stage import Stage
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import RagEvalError, ServiceError, as_sentence

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

logger = logging.getLogger("rag_eval.benchmark")

LOST = "the process that worked on it ended before it was done: see whether it ran out of memory"
MOST_DEATHS = 3
"""How often work is begun again whose process has ended."""
MOST_AT_ONCE = 64
"""How many pieces of work are given to a cluster at once, which decides what runs when."""


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers(Protocol):
    """What computes stages in other processes."""

    width: int
    """How many pieces of work they are given at once."""
    is_cluster: bool
    """Whether they may be other machines, so that each piece of work is worth showing."""

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        """Return what the stage makes; raises what it raises, and ``RagEvalError`` when the process ends before."""

    def stop(self) -> None:
        """End what they are at, so that nobody waits for it."""


_workers: ContextVar[Workers | None] = ContextVar("workers", default=None)


def current_workers() -> Workers | None:
    """What computes the stages here; None is this process."""
    return _workers.get()


def width() -> int:
    """How many configurations are evaluated side by side here."""
    workers = _workers.get()
    return max(2, cores()) if workers is None else workers.width


@contextmanager
def working_by(runner: str) -> Iterator[None]:
    """Have the stages of the block computed by the runner of this name.

    That has as many workers as there are cores, and at least two. A Dask or a Ray cluster is the one that
    DASK_SCHEDULER_ADDRESS or RAY_ADDRESS names, else one on this machine that lasts as long as the block. Raises
    ``ConfigurationError`` as ``check_runner`` does, ``ServiceError`` when a cluster that is named does not answer.
    """
    check_runner(runner)
    with RUNNERS[runner](max(2, cores())) as workers:
        token = _workers.set(workers)
        try:
            yield
        finally:
            _workers.reset(token)


@contextmanager
def ending_work() -> Iterator[None]:
    """Have the workers end when the block does not come to its end: threads that wait for them would go on waiting."""
    try:
        yield
    except BaseException:  # Ctrl-C too
        if (workers := _workers.get()) is not None:
            workers.stop()
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


def _packed(stage: Stage, workspace: Workspace, inputs: Inputs) -> bytes:
    return bytes(cloudpickle.dumps((stage, workspace, inputs)))


def _compute(work: bytes) -> Any:
    """What a stage makes, in another process; an error that cannot go from there to here is told as a sentence."""
    stage, workspace, inputs = cloudpickle.loads(work)
    try:
        return stage(workspace, *inputs)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301  # of what was made here just now
        except Exception:  # noqa: BLE001  # whatever a class of somebody else's raises
            raise RagEvalError(as_sentence(error)) from None
        raise


class _Pool(ProcessPoolExecutor):
    """Processes that say in the log of this one what they say in their own, and end when it was killed.

    They say it by a pipe of the pool's own: one that is killed while it writes there keeps the others from it, who end
    with it.
    """

    def __init__(self, width: int) -> None:
        context = get_context("spawn")
        heard, self._said = context.Pipe(duplex=False)
        super().__init__(width, context, _begin, (self._said, context.Lock()))
        self._hearing = threading.Thread(target=_hear, args=(heard,), daemon=True)
        self._hearing.start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        self._said.close()  # the pipe ends when all have left it
        self._hearing.join()


def _hear(heard: "Connection[Any, Any]") -> None:
    with heard, suppress(EOFError, OSError):
        while True:
            said = heard.recv_bytes()
            with suppress(Exception):  # a record that cannot be read or written here is not worth the run
                record = pickle.loads(said)  # noqa: S301  # of a process of ours
                logging.getLogger(record.name).handle(record)


class _Saying(QueueHandler):
    """Sends records to who hears, one process at a time."""

    def __init__(self, said: Any, turn: AbstractContextManager[Any]) -> None:
        super().__init__(said)
        self._said, self._turn = said, turn

    def enqueue(self, record: logging.LogRecord) -> None:
        with self._turn:
            self._said.send(record)


def _begin(said: Any, turn: AbstractContextManager[Any]) -> None:
    logging.getLogger("rag_eval").addHandler(_Saying(said, turn))

    def end_with(parent: BaseProcess | None) -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with, args=(parent_process(),), daemon=True).start()


class _Processes:
    """Processes of this machine; when one is killed, what it was at is done again in a process of its own."""

    is_cluster = False

    def __init__(self, width: int) -> None:
        self.width, self._pool = width, _Pool(width)
        self._guard, self._stopped = threading.Lock(), False
        self._at_work: WeakSet[_Pool] = WeakSet()

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        work, pool = _packed(stage, workspace, inputs), self._pool
        with suppress(BrokenProcessPool):
            return self._done(pool, work)
        with self._guard:  # all that the others were at has ended with it
            if self._pool is pool and not self._stopped:
                logger.warning("a process was killed: what was under way is done again")
                pool.shutdown()
                self._pool = _Pool(self.width)
        for _ in range(MOST_DEATHS):
            with _Pool(1) as own, suppress(BrokenProcessPool):
                return self._done(own, work)
        raise RagEvalError(LOST)

    def _done(self, pool: _Pool, work: bytes) -> Any:
        with self._guard, deaf_to_interrupts():  # a pool starts its processes when it is given work
            if self._stopped:
                raise RagEvalError(LOST)
            self._at_work.add(pool)
            future: Future[Any] = pool.submit(_compute, work)
        return future.result()

    def stop(self) -> None:
        with self._guard:
            self._stopped = True
            for pool in self._at_work:
                for process in [*(getattr(pool, "_processes", None) or {}).values()]:
                    process.kill()

    def close(self) -> None:
        """Wait for the processes to end."""
        self._pool.shutdown()


@dataclass
class _Cluster:
    """The workers of a Dask or a Ray cluster, which has others do again what a lost one was at."""

    done: Callable[[bytes], Any]
    stop: Callable[[], None]
    width: int = MOST_AT_ONCE
    is_cluster: bool = True

    def compute(self, stage: Stage, workspace: Workspace, inputs: Inputs) -> Any:
        return self.done(_packed(stage, workspace, inputs))


@contextmanager
def _reaching(variable: str) -> Iterator[str | None]:
    """Give the address of the cluster that a variable names, if it does; raises ``ServiceError`` without an answer."""
    address = os.environ.get(variable)
    try:
        yield address
    except OSError as error:
        if not address:
            raise
        raise ServiceError(
            f"the cluster at {address} does not answer: start it, or take its address out of {variable}"
        ) from error


@contextmanager
def _dask(workers: int) -> Iterator[_Cluster]:
    dask = import_module("distributed")
    local = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    local["silence_logs"] = logging.CRITICAL  # what goes wrong is raised here
    with deaf_to_interrupts(), _reaching("DASK_SCHEDULER_ADDRESS") as address:
        # Security: with certificates of its own, so that no other user of this machine can send it work.
        given = {"address": address} if address else {**local, "security": True}
        client = dask.Client(**given, set_as_default=False)

    def done(work: bytes) -> Any:
        try:
            return client.submit(_compute, work, pure=False).result()
        except (dask.KilledWorker, dask.CancelledError):
            raise RagEvalError(LOST) from None

    with client:
        yield _Cluster(done, client.close)


@contextmanager
def _ray(workers: int) -> Iterator[_Cluster]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
    ray = import_module("ray")
    with deaf_to_interrupts(), _reaching("RAY_ADDRESS") as address:
        ray.init(**({"address": address} if address else {"num_cpus": workers, "include_dashboard": False}))
    compute = ray.remote(max_retries=MOST_DEATHS)(_compute)

    def done(work: bytes) -> Any:
        try:
            return ray.get(compute.remote(work))
        except ray.exceptions.RayTaskError as error:  # what the stage raised is inside
            raise error.cause from None
        except ray.exceptions.RayError:
            raise RagEvalError(LOST) from None

    try:
        yield _Cluster(done, ray.shutdown)
    finally:
        ray.shutdown()


RUNNERS: dict[str, Callable[[int], AbstractContextManager[Workers | None]]] = {
    THREADS: lambda _: nullcontext(),
    "processes": lambda workers: closing(_Processes(workers)),
    "dask": _dask,
    "ray": _ray,
}
