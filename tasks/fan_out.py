"""Configurations side by side: how many at once, and what became of each."""

import os
from collections.abc import Sequence
from typing import Any, TypeVar, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.futures import PrefectFuture
from prefect.task_runners import ThreadPoolTaskRunner

from rag_eval.config.benchmark import Configuration
from rag_eval.errors import RagEvalError

R = TypeVar("R")


def side_by_side() -> Any:
    """A task runner that evaluates as many configurations at once as there are cores."""
    return ThreadPoolTaskRunner(max_workers=max(2, os.cpu_count() or 2))


def gather(
    configurations: Sequence[Configuration], futures: Sequence[PrefectFuture[R]]
) -> tuple[list[R], dict[str, str]]:
    """The results of the runs that completed, and the reasons of those that did not by configuration name.

    A progress artifact is kept up to date meanwhile.
    """
    progress = cast("UUID", create_progress_artifact(0.0, key="progress", description="Configurations evaluated"))
    for number, future in enumerate(futures, start=1):
        future.wait()
        update_progress_artifact(progress, 100 * number / len(futures))
    done, failed = [], {}
    for configuration, future in zip(configurations, futures, strict=True):
        if future.state.is_completed():
            done.append(future.result())
        else:
            failed[configuration.name] = _reason(future)
    return done, failed


def _reason(future: PrefectFuture[R]) -> str:
    error = future.state.result(raise_on_failure=False)
    if isinstance(error, RagEvalError):
        return str(error)
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(future.state.message)
