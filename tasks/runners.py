"""Task runners for the subflows: threads of this process, one Dask cluster for the whole run, or Ray."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from prefect.client.schemas.objects import State
from prefect.futures import PrefectConcurrentFuture
from prefect.states import Pending
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from rag_eval.config.models import THREADS, check_runner
from rag_eval.errors import ServiceError
from tasks.current_folder import ignore_settings_here

DASK_ADDRESS, RAY_ADDRESS = "DASK_SCHEDULER_ADDRESS", "RAY_ADDRESS"


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class InputFuture(PrefectConcurrentFuture[Any]):
    """The future of a task run that is never Running.

    Prefect treats an input that is Running as the parent of a task, and hides the task in it in the graph.
    """

    @property
    def state(self) -> State[Any]:
        """Return the final state, or Pending."""
        if not self.wrapped_future.done():
            return Pending()
        self.wait()
        return super().state


class ThreadTaskRunner(ThreadPoolTaskRunner[Any]):
    """Runs tasks in threads, with an edge in the graph for every input."""

    def submit(self, *args: Any, **kwargs: Any) -> InputFuture:
        """Submit a task, as Prefect does."""
        future = super().submit(*args, **kwargs)
        return InputFuture(future.task_run_id, future.wrapped_future)


def threads() -> TaskRunner[Any]:
    """Return a runner with a thread for each core, and at least two."""
    return ThreadTaskRunner(max_workers=max(2, cores()))


@contextmanager
def task_runner(name: str) -> Iterator[TaskRunner[Any]]:
    """Start the task runner of a whole run.

    Args:
        name: ``threads``, ``dask`` or ``ray``. A Dask or Ray cluster is the one that ``DASK_SCHEDULER_ADDRESS`` or
            ``RAY_ADDRESS`` names, else one on this machine that lasts as long as the block.

    Raises:
        ConfigurationError: There is no such runner, or it is not installed.
        ServiceError: The cluster does not answer.
    """
    check_runner(name)
    if name == THREADS:
        yield threads()
    elif name == "dask":
        with _dask() as runner:
            yield runner
    else:
        yield _ray()


@contextmanager
def _dask() -> Iterator[TaskRunner[Any]]:
    runner = import_module("prefect_dask").DaskTaskRunner
    if address := os.environ.get(DASK_ADDRESS):
        _check_cluster(address)
        yield runner(address=address)
        return
    distributed = import_module("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are raised here
    cluster = distributed.LocalCluster(
        n_workers=max(2, cores()),
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={
            "dashboard_address": "127.0.0.1:0"
        },  # port for metrics, because the default port may be taken
        silence_logs=logging.CRITICAL,
        security=True,  # uses its own certificates, so that no other user of this machine can send it tasks
    )
    with cluster:
        address, security = cluster.scheduler_address, {"security": cluster.security}
        with distributed.Client(address, set_as_default=False, **security) as client:
            client.run(ignore_settings_here)  # workers import Prefect in the current folder
        yield runner(address=address, client_kwargs=security)


def _check_cluster(address: str) -> None:
    try:
        import_module("distributed").Client(address, timeout=10, set_as_default=False).close()
    except OSError as error:
        raise ServiceError(f"the cluster at {address} does not answer: start it, or unset {DASK_ADDRESS}") from error


def _ray() -> TaskRunner[Any]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics
    runner: TaskRunner[Any] = import_module("prefect_ray").RayTaskRunner(address=os.environ.get(RAY_ADDRESS))
    return runner
