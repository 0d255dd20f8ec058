"""Killed runs continue, and runs side by side do no harm; on a real Prefect server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from flows.benchmark import benchmark
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import read_run
from tests.flows.benchmarks import EVERY_STAGE, STAGES

pytestmark = pytest.mark.usefixtures("prefect_server")
ROOT = Path(__file__).parents[2]


def start(workspace: Path, log: Path, *stage: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.flows.interrupted_run", str(workspace), str(log), *stage]
    environment = os.environ | {"PREFECT_API_URL": str(PREFECT_API_URL.value()), "PREFECT_LOGGING_LEVEL": "CRITICAL"}
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def tables(workspace: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (workspace / "tables").rglob("*.arrow")}


def test_a_run_killed_after_each_stage_in_turn_continues_where_it_was(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    whole = benchmark(EVERY_STAGE, Workspace(root=undisturbed))
    killed = tmp_path / "killed"
    for number, stage in enumerate(STAGES):
        log = tmp_path / f"{number}.log"
        assert start(killed, log, stage).wait(120) == -9, f"the run was to be killed after {stage}"
        # What was finished before is used, and the one stage that was not is computed.
        done = [f"{before} reused" for before in STAGES[:number]]
        assert log.read_text().splitlines() == [*done, f"{stage} computed"]
    outcome = benchmark(EVERY_STAGE, Workspace(root=killed))
    assert outcome.work() == (0, 10)
    assert tables(killed) == tables(undisturbed)
    assert outcome.configurations[0].metrics == whole.configurations[0].metrics


def test_two_runs_at_once_on_one_workspace_agree(tmp_path: Path) -> None:
    both = [start(tmp_path / "shared", tmp_path / f"{number}.log") for number in range(2)]
    assert [run.wait(180) for run in both] == [0, 0]
    benchmark(EVERY_STAGE, Workspace(root=tmp_path / "alone"))
    assert tables(tmp_path / "shared") == tables(tmp_path / "alone")
    workspace = Workspace(root=tmp_path / "shared")
    outcomes = [read_run(workspace, path.name) for path in sorted(workspace.runs.iterdir())]
    assert len(outcomes) == 2
    assert outcomes[0].configurations[0].metrics == outcomes[1].configurations[0].metrics
    assert benchmark(EVERY_STAGE, workspace).work() == (0, 10)
