"""Run a benchmark in a process of its own, which may kill itself with SIGKILL once the result of a step is stored."""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)

from rag_eval.config.loading import load_config
from rag_eval.pipeline.workspace import Workspace
from tests.flows.server_runs import run

# What is slow to import is imported once, by a process that every run is then a fork of.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


def start(file: Path, workspace: Path, until: str = "") -> ForkServerProcess:
    """Run the benchmark of a file on the server of the tests.

    It is killed as soon as a result of the step ``until`` is stored; without one it is left alone.
    """
    # The process that is forked has the environment of the test that started it, not of this one.
    given = (dict(os.environ), str(PREFECT_API_URL.value()), file, workspace, until)
    process = PROCESSES.Process(target=run_until, args=given, daemon=True)
    process.start()
    return process


def ended(process: ForkServerProcess, seconds: float = 300) -> int | None:
    """The exit code of a run, once it has one."""
    process.join(seconds)
    return process.exitcode


def stored(workspace: Path, step: str = "*") -> set[str]:
    """The names of the stored results of a step, or of all."""
    return {path.name for path in (workspace / "results").glob(f"{step}-v*.json")}


def run_until(environment: dict[str, str], api: str, file: Path, workspace: Path, until: str) -> None:
    """Be such a run."""
    os.environ.clear()
    os.environ.update(environment)
    if until:
        threading.Thread(target=_kill_at, args=(workspace, until, stored(workspace, until)), daemon=True).start()
    quick = {PREFECT_API_URL: api, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_LOGGING_TO_API_ENABLED: False}
    with temporary_settings(quick):
        run(load_config(file), Workspace(root=workspace))


def _kill_at(workspace: Path, step: str, before: set[str]) -> None:
    while not stored(workspace, step) - before:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)
