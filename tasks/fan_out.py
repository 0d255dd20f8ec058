"""Running configurations side by side: what runs them, and what became of each."""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from prefect.futures import PrefectFuture
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from rag_eval.benchmark.config import Configuration, check_runner
from rag_eval.benchmark.outcome import ConfigurationFailure, ConfigurationOutcome, StageWork
from rag_eval.errors import ConfigurationFailedError, as_sentence
from tasks.artifacts import as_each_completes
from tasks.runner import cores, tell


def task_runner(name: str) -> Any:
    """Return the task runner of this name, for as many configurations at once as there are cores, and at least two.

    A Dask or a Ray cluster is the one that DASK_SCHEDULER_ADDRESS or RAY_ADDRESS names, else one on this machine that
    lasts as long as the run. Raises ``ConfigurationError`` as ``check_runner`` does.
    """
    check_runner(name)
    return RUNNERS[name](max(2, cores()))


def _dask(workers: int) -> Any:
    runner = import_module("prefect_dask").DaskTaskRunner
    if address := os.environ.get("DASK_SCHEDULER_ADDRESS"):
        return runner(address=address)
    return runner(
        cluster_kwargs={"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    )


def _ray(workers: int) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports to its makers
    runner = import_module("prefect_ray").RayTaskRunner
    if address := os.environ.get("RAY_ADDRESS"):
        return runner(address=address)
    return runner(init_kwargs={"num_cpus": workers, "include_dashboard": False})


RUNNERS = {
    "threads": lambda workers: ThreadPoolTaskRunner(max_workers=workers),
    "processes": lambda workers: ProcessPoolTaskRunner(max_workers=workers),
    "dask": _dask,
    "ray": _ray,
}


def gather(
    configurations: Sequence[Configuration], futures: Sequence[PrefectFuture[ConfigurationOutcome]], *, elsewhere: bool
) -> tuple[list[ConfigurationOutcome], dict[str, ConfigurationFailure]]:
    """Return the outcomes of the runs that completed, in the order given, and the failures by configuration name.

    A progress artifact is kept up to date meanwhile. Runs that were ``elsewhere``, in other processes, have reported
    nothing to the listeners of this one: their stages are reported when each is done.
    """
    by_run = {future.task_run_id: one for future, one in zip(futures, configurations, strict=True)}
    done: dict[str, ConfigurationOutcome] = {}
    failed: dict[str, ConfigurationFailure] = {}
    for future in as_each_completes(futures, "progress", "Configurations evaluated"):
        configuration, state = by_run[future.task_run_id], future.state
        name, reason = configuration.name, None
        stages: dict[str, StageWork] = {}
        error: object = None
        if state.is_completed():
            done[name] = future.result()
            stages = done[name].stages
        else:
            reason = "the process that evaluated it ended before it was done: see whether it ran out of memory"
            if state.is_final():
                error = state.result(raise_on_failure=False)
                reason = as_sentence(error) if isinstance(error, BaseException) else str(state.message)
                stages = dict(error.stages) if isinstance(error, ConfigurationFailedError) else {}
            failed[name] = ConfigurationFailure(
                configuration=configuration.record(),
                reason=reason,
                stages=stages,
                is_outage=isinstance(error, ConfigurationFailedError) and error.is_outage,
            )
        for stage, one in stages.items() if elsewhere else ():
            tell(name, stage, one.work, reason if one.work == "failed" else None)
    names = [one.name for one in configurations]  # in the order given, whichever was done first
    return [done[name] for name in names if name in done], {name: failed[name] for name in names if name in failed}
