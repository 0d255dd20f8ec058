"""Stages as Prefect sees them: cached tasks of which Prefect itself keeps nothing."""

import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from prefect import flow
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings
from rag_eval.benchmark.running import StageRunner
from rag_eval.benchmark.stage import Stage, stage
from tasks.runner import as_task

from rag_eval.benchmark import stages as library
from rag_eval.pipeline.references import Effort, TableRef
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace


@stage("numbers", version=3)
def count(upto: int, *, context: Context) -> tuple[pa.Table, Effort]:
    return pa.table({"n": list(range(upto))}), Effort(fresh=upto, total=upto, unit="texts")


def shown(name: str, runs: int) -> list[tuple[str, str]]:
    """The name and the message of the state that the server shows for each run of a task, once it has so many."""
    deadline = time.monotonic() + 60
    while True:
        asked = {"sort": "EXPECTED_START_TIME_ASC", "task_runs": {"name": {"like_": f"{name}-"}}}
        found = httpx.post(f"{PREFECT_API_URL.value()}/task_runs/filter", json=asked, timeout=30).json()
        states = [run["state"] for run in found if run["state"] and run["state"]["type"] == "COMPLETED"]
        if len(states) >= runs or time.monotonic() > deadline:
            return [(state["name"], state["message"]) for state in states]
        time.sleep(0.1)


@pytest.mark.usefixtures("prefect_server")
def test_a_stage_shows_its_key_and_as_cached_where_it_is_reused(tmp_path: Path) -> None:
    @stage("numbers", version=1)
    def shown_in_the_ui(*, context: Context) -> tuple[pa.Table, Effort]:
        return pa.table({"n": [1]}), Effort(fresh=1, total=1, unit="texts")

    @flow
    def twice(workspace: Workspace) -> list[TableRef]:
        return [StageRunner(workspace, do=as_task)(shown_in_the_ui) for _ in range(2)]

    workspace = Workspace(root=tmp_path)
    results = twice(workspace)
    assert results[0] == results[1]
    assert shown("shown-in-the-ui", 2) == [(name, shown_in_the_ui.key()) for name in ("Completed", "Cached")]


@pytest.mark.usefixtures("prefect_server")
def test_prefect_keeps_no_result(tmp_path: Path) -> None:
    @flow
    def counting(workspace: Workspace) -> None:
        StageRunner(workspace, do=as_task)(count, 3)

    storage = tmp_path / "storage"
    with temporary_settings({PREFECT_LOCAL_STORAGE_PATH: storage}):
        counting(Workspace(root=tmp_path / "work"))
    assert not storage.exists()
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"records", "tables", "locks"}


def test_no_two_stages_can_share_a_key() -> None:
    """A key starts with the stage's name and version, and no name is the start of another one's key."""
    prefixes = [f"{value.name}-v" for value in vars(library).values() if isinstance(value, Stage)]
    assert len(prefixes) >= 7
    for place, one in enumerate(prefixes):
        assert not any(other.startswith(one) for other in prefixes[:place] + prefixes[place + 1 :])
