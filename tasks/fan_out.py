"""Configurations side by side: what became of each."""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, as_completed
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from rag_eval.benchmark.config import Configuration, check_runner
from rag_eval.benchmark.outcome import ConfigurationFailure, ConfigurationOutcome
from rag_eval.errors import ConfigurationFailedError, as_sentence
from tasks.artifacts import as_a_convenience
from tasks.progress import StageEvent, tell
from tasks.runner import cores


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


def gather(
    configurations: Sequence[Configuration], futures: Sequence[PrefectFuture[ConfigurationOutcome]], *, elsewhere: bool
) -> tuple[list[ConfigurationOutcome], dict[str, ConfigurationFailure]]:
    """The results of the runs that completed, and what became of those that did not, by configuration name.

    A progress artifact is kept up to date meanwhile, whichever run is done first. Runs that were ``elsewhere``, in
    other processes, have told nothing here: their stages are told as each is done.
    """
    by_run = {future.task_run_id: one for future, one in zip(futures, configurations, strict=True)}
    done: dict[str, ConfigurationOutcome] = {}
    failed: dict[str, ConfigurationFailure] = {}
    progress: UUID | None = None
    with as_a_convenience():
        progress = cast("UUID", create_progress_artifact(0.0, key="progress", description="Configurations evaluated"))
    for number, future in enumerate(as_completed(list(futures)), start=1):
        future.wait()
        configuration = by_run[future.task_run_id]
        ended = _ended(configuration, future)
        if isinstance(ended, ConfigurationFailure):
            failed[configuration.name] = ended
        else:
            done[configuration.name] = ended
        if elsewhere:
            _retell(configuration, ended)
        with as_a_convenience():
            if progress is not None:
                update_progress_artifact(progress, 100 * number / len(futures))
    names = [one.name for one in configurations]  # in the order given, whichever was done first
    return [done[name] for name in names if name in done], {name: failed[name] for name in names if name in failed}


def _ended(
    configuration: Configuration, future: PrefectFuture[ConfigurationOutcome]
) -> ConfigurationOutcome | ConfigurationFailure:
    state = future.state
    if state.is_completed():
        return future.result()
    if not state.is_final():
        reason = "the process that evaluated it ended before it was done: see whether it ran out of memory"
        return ConfigurationFailure(configuration=configuration, reason=reason, stages={})
    error = state.result(raise_on_failure=False)
    reason = as_sentence(error) if isinstance(error, BaseException) else str(state.message)
    stages = dict(error.stages) if isinstance(error, ConfigurationFailedError) else {}
    return ConfigurationFailure(configuration=configuration, reason=reason, stages=stages)


def _retell(configuration: Configuration, ended: ConfigurationOutcome | ConfigurationFailure) -> None:
    reason = ended.reason if isinstance(ended, ConfigurationFailure) else None
    for stage, done in ended.stages.items():
        tell(StageEvent(configuration.name, stage, done.work, reason if done.work == "failed" else None))
