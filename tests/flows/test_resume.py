"""Killed runs continue, and runs side by side do no harm; on a real Prefect server."""

from pathlib import Path

import pytest

from flows.benchmark import benchmark
from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.runs import read_run
from rag_eval.pipeline.workspace import Workspace
from tests.flows.benchmarks import STAGES, every_stage
from tests.flows.interrupted_run import ended, start

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def config(tmp_path: Path) -> BenchmarkConfig:
    return every_stage(tmp_path)


def tables(workspace: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (workspace / "tables").rglob("*.arrow")}


def test_a_run_killed_after_each_stage_in_turn_continues_where_it_was(config: BenchmarkConfig, tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    whole = benchmark(config, Workspace(root=undisturbed))
    killed = tmp_path / "killed"
    for number, stage in enumerate(STAGES):
        log = tmp_path / f"{number}.log"
        assert ended(start(config, killed, log, stage)) == -9, f"the run was to be killed after {stage}"
        # What was finished before is used, and the one stage that was not is computed.
        done = [f"{before} reused" for before in STAGES[:number]]
        assert log.read_text().splitlines() == [*done, f"{stage} computed"]
    outcome = benchmark(config, Workspace(root=killed))
    assert outcome.work() == (0, len(STAGES))
    assert tables(killed) == tables(undisturbed)
    assert outcome.configurations[0].metrics == whole.configurations[0].metrics


def test_two_runs_at_once_on_one_workspace_agree(config: BenchmarkConfig, tmp_path: Path) -> None:
    both = [start(config, tmp_path / "shared", tmp_path / f"{number}.log") for number in range(2)]
    assert [ended(run) for run in both] == [0, 0]
    # Each stage is computed by one of them, whichever comes to it first.
    done = [line for number in range(2) for line in (tmp_path / f"{number}.log").read_text().splitlines()]
    assert sorted(done) == sorted(f"{stage} {work}" for stage in STAGES for work in ("computed", "reused"))
    benchmark(config, Workspace(root=tmp_path / "alone"))
    assert tables(tmp_path / "shared") == tables(tmp_path / "alone")
    workspace = Workspace(root=tmp_path / "shared")
    outcomes = [read_run(workspace, path.name) for path in sorted(workspace.runs.iterdir())]
    assert len(outcomes) == 2
    assert outcomes[0].configurations[0].metrics == outcomes[1].configurations[0].metrics
    assert benchmark(config, workspace).work() == (0, len(STAGES))
