"""Run the benchmark of the tests and kill this very process with SIGKILL once a stage is done.

``python interrupted_run.py WORKSPACE STAGE``; without STAGE the run is left alone.
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


def kill_after(stage: str) -> None:
    def listener(event: StageEvent) -> None:
        if event.stage == stage and event.status == "computed":
            os.kill(os.getpid(), signal.SIGKILL)

    with listening(listener), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        benchmark(EVERY_STAGE, Workspace(root=Path(sys.argv[1])))


kill_after(sys.argv[2] if len(sys.argv) > 2 else "")
