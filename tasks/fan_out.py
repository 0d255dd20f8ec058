"""Configurations side by side: what became of each."""

from collections.abc import Sequence
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture, as_completed

from rag_eval.config.benchmark import Configuration
from rag_eval.errors import ConfigurationFailedError, as_sentence
from rag_eval.pipeline.outcome import ConfigurationOutcome, Failure
from tasks.artifacts import as_a_convenience
from tasks.progress import StageEvent, tell


def gather(
    configurations: Sequence[Configuration], futures: Sequence[PrefectFuture[ConfigurationOutcome]], *, elsewhere: bool
) -> tuple[list[ConfigurationOutcome], dict[str, Failure]]:
    """The results of the runs that completed, and what became of those that did not, by configuration name.

    A progress artifact is kept up to date meanwhile, whichever run is done first. Runs that were ``elsewhere``, in
    other processes, have told nothing here: their stages are told as each is done.
    """
    by_run = {future.task_run_id: one for future, one in zip(futures, configurations, strict=True)}
    done: dict[str, ConfigurationOutcome] = {}
    failed: dict[str, Failure] = {}
    progress: UUID | None = None
    with as_a_convenience():
        progress = cast("UUID", create_progress_artifact(0.0, key="progress", description="Configurations evaluated"))
    for number, future in enumerate(as_completed(list(futures)), start=1):
        future.wait()
        configuration = by_run[future.task_run_id]
        ended = _ended(configuration, future)
        if isinstance(ended, Failure):
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


def _ended(configuration: Configuration, future: PrefectFuture[ConfigurationOutcome]) -> ConfigurationOutcome | Failure:
    state = future.state
    if state.is_completed():
        return future.result()
    if not state.is_final():
        reason = "the process that evaluated it ended before it was done: see whether it ran out of memory"
        return Failure(configuration=configuration, reason=reason, stages={})
    error = state.result(raise_on_failure=False)
    reason = as_sentence(error) if isinstance(error, BaseException) else str(state.message)
    stages = dict(error.stages) if isinstance(error, ConfigurationFailedError) else {}
    return Failure(configuration=configuration, reason=reason, stages=stages)


def _retell(configuration: Configuration, ended: ConfigurationOutcome | Failure) -> None:
    reason = ended.reason if isinstance(ended, Failure) else None
    for stage, done in ended.stages.items():
        tell(StageEvent(configuration.name, stage, done.work, reason if done.work == "failed" else None))
