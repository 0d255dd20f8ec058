"""Run the benchmark of the tests and kill this very process with SIGKILL once a stage is done.

``python interrupted_run.py WORKSPACE LOG STAGE``; without STAGE the run is left alone. What became of each stage is
written to LOG, a line each.
"""

import os
import signal
import sys
from pathlib import Path

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.benchmark import benchmark
from rag_eval.pipeline.workspace import Workspace
from tasks.progress import StageEvent, listening
from tests.flows.benchmarks import EVERY_STAGE


def run_until(workspace: Path, log: Path, stage: str) -> None:
    def listener(event: StageEvent) -> None:
        if event.status == "started":
            return
        with log.open("a") as file:
            file.write(f"{event.stage} {event.status}\n")
        if event.stage == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    with listening(listener), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        benchmark(EVERY_STAGE, Workspace(root=workspace))


run_until(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
