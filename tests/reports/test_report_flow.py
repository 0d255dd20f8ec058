"""A benchmark on a real Prefect server leaves its report, and a link to it."""

import json
import logging
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_URL

from rag_eval.chunking.context import HeadingContext
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.write import page_of
from tasks.artifacts import report
from tests.chain import run_benchmark
from tests.flows.server_runs import run as run_flow
from tests.reports.test_report_files import SMALL

pytestmark = pytest.mark.usefixtures("prefect_server")


def comparison() -> dict[str, str]:
    with httpx.Client(timeout=30) as client:
        asked = {"sort": "CREATED_DESC", "artifacts": {"key": {"any_": ["comparison"]}}, "limit": 1}
        found: list[dict[str, str]] = client.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json=asked).json()
    return found[0]


def test_a_run_leaves_its_report_and_the_artifact_links_to_it(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    outcome = run_flow(SMALL.model_copy(update={"context": [HeadingContext()]}), workspace)
    steps = "chunk", "add context", "index words", "sum words", "prepare queries", "search bm25", "retrieve", "score"
    assert tuple(outcome.configurations[0].steps) == steps
    page = page_of(workspace, outcome)
    assert {path.name for path in page.parent.iterdir()} >= {"report.html", "report.md", "scores.parquet"}
    shown = comparison()
    assert f"[Open the report]({page.as_uri()})" in shown["description"]
    assert "was measured alone" in shown["description"]
    assert json.loads(shown["data"])[0]["configuration"] == "recursive-character 600/0, bm25, headings"


def test_a_report_that_cannot_be_written_is_said_and_the_run_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workspace = Workspace(root=tmp_path)
    outcome = run_benchmark(workspace, SMALL)
    (tmp_path / outcome.configurations[0].hits.uri).unlink()
    with caplog.at_level(logging.WARNING):
        report(SMALL.ground_truth, outcome, workspace=workspace)
    assert "the report of" in caplog.text
    assert (workspace.runs / outcome.run / "summary.json").is_file()
    assert not page_of(workspace, outcome).exists()
    assert comparison()["description"] == "Ranked by recall_within_tokens@2000"
