"""Prefect's task runners by name: threads of this process, processes of this machine, or a cluster.

Runners other than threads do their work in other processes, which share nothing in memory: what two of them need is
made once on one machine, may be made twice on two, with the same result, and is told when a configuration is done.
"""

import os
from importlib import import_module
from typing import Any

from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from rag_eval.config.runners import check_runner
from tasks.capacity import cores


def task_runner(name: str) -> Any:
    """The runner of this name, for as many configurations at once as there are cores, and at least two.

    A Dask or a Ray cluster is the one that DASK_SCHEDULER_ADDRESS or RAY_ADDRESS names, else one on this machine that
    lasts as long as the run. Raises ``ConfigurationError`` as ``check_runner`` does.
    """
    check_runner(name)
    return RUNNERS[name](max(2, cores()))


def _dask(workers: int) -> Any:
    runner = import_module("prefect_dask").DaskTaskRunner
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    if address:
        return runner(address=address)
    return runner(
        cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    )


def _ray(workers: int) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
    runner = import_module("prefect_ray").RayTaskRunner
    address = os.environ.get("RAY_ADDRESS")
    if address:
        return runner(address=address)
    return runner(init_kwargs={"num_cpus": workers, "include_dashboard": False})


RUNNERS = {
    "threads": lambda workers: ThreadPoolTaskRunner(max_workers=workers),
    "processes": lambda workers: ProcessPoolTaskRunner(max_workers=workers),
    "dask": _dask,
    "ray": _ray,
}
