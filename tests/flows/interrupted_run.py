"""Run a benchmark in a process of its own, which kills itself with SIGKILL once a stage is done."""

import multiprocessing
import os
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)
from rag_eval.benchmark.running import StageEvent, listening

from flows.benchmark import benchmark
from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.pipeline.workspace import Workspace

# What is slow to import is imported once, by a process that every run is then a fork of.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def start(config: BenchmarkConfig, workspace: Path, log: Path, stage: str = "") -> ForkServerProcess:
    """A run on the server of the tests, up to the end of the stage; without one it is left alone.

    What became of each stage is written to ``log``, a line each.
    """
    # The process that is forked has the environment of the test that started it, not of this one.
    given = (dict(os.environ), str(PREFECT_API_URL.value()), config, workspace, log, stage)
    run = PROCESSES.Process(target=run_until, args=given)
    run.start()
    return run


def ended(run: ForkServerProcess, seconds: float = 120) -> int | None:
    """The run's exit code, once it has one."""
    run.join(seconds)
    return run.exitcode


def run_until(
    environment: dict[str, str], api: str, config: BenchmarkConfig, workspace: Path, log: Path, stage: str
) -> None:
    """Be such a run."""
    os.environ.clear()
    os.environ.update(environment)

    def listener(event: StageEvent) -> None:
        if event.status in ("started", "waiting"):
            return
        with log.open("a") as file:
            file.write(f"{event.stage} {event.status}\n")
        if event.stage == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    quick = {PREFECT_API_URL: api, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_LOGGING_TO_API_ENABLED: False}
    with listening(listener), temporary_settings(quick):
        benchmark(config, Workspace(root=workspace))
