"""Reading the end states of mapped task runs."""

from collections.abc import Sequence
from typing import TypeVar

from prefect.futures import PrefectFuture

from rag_eval.config.benchmark import Configuration

R = TypeVar("R")


def split_by_success(
    configurations: Sequence[Configuration], futures: Sequence[PrefectFuture[R]]
) -> tuple[list[R], dict[str, str]]:
    """The results of the runs that completed, and the reasons of those that did not by configuration name."""
    done, failed = [], {}
    for configuration, future in zip(configurations, futures, strict=True):
        if future.state.is_completed():
            done.append(future.result())
        else:
            failed[configuration.name] = future.state.message or str(future.state.name)
    return done, failed
