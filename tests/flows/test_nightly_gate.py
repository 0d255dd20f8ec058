"""A deployed run held against the baseline, on a real Prefect server: the verdict, the trend, and a run that fails."""

from pathlib import Path

import httpx
import pytest
import yaml
from prefect import flow
from prefect.settings import PREFECT_API_URL

from flows.benchmark_from_file import benchmark_from_file
from rag_eval.errors import ConfigurationError, GateFailedError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.runs import choose_baseline
from tasks.artifacts import check_gate
from tests.results.made_runs import LARGE_NAME, SMALL_NAME, make_run, write_data

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow
def hold(
    workspace: Workspace,
    outcome: BenchmarkOutcome,
    metric: str = "",
    max_drop: float = 0.02,
    fail_on_warn: bool = False,
) -> None:
    check_gate(workspace, outcome, metric, max_drop, fail_on_warn=fail_on_warn)


def shown() -> str:
    """The latest verdict in the UI."""
    asked = {"artifacts": {"key": {"any_": ["gate"]}}, "sort": "CREATED_DESC", "limit": 1}
    found = httpx.post(f"{PREFECT_API_URL.value()}/artifacts/filter", json=asked, timeout=30).json()
    return str(found[0]["data"])


def test_a_sure_drop_fails_the_run_and_what_dropped_is_shown(tmp_path: Path) -> None:
    config, workspace = write_data(tmp_path), Workspace(root=tmp_path / ".rag-eval")
    good = make_run(workspace, config)
    choose_baseline(workspace, good.run)
    hold(workspace, make_run(workspace, config))
    assert "**PASS.**" in shown()
    assert "Every query scores as in the baseline in 2 configurations." in shown()

    worse = make_run(workspace, config, lost=0.3)
    with pytest.raises(GateFailedError, match=r"^FAIL: 2 configurations dropped by more than 0\.02\."):
        hold(workspace, worse)
    assert f"| {SMALL_NAME} | 0.983 | 0.690 | 0.293 |" in shown()
    assert "| FAIL |" in shown()
    # The trend: the latest first, with the change from the one before.
    rows = [line for line in shown().split("# Over time")[1].splitlines() if line.startswith("| 20")]
    assert [row.split(" | ")[-1] for row in rows] == ["-0.300 |", "±0.000 |", " |"]
    assert rows[-1].startswith(f"| {good.run[:19]} (the baseline) |")
    hold(workspace, worse, max_drop=0.3)
    hold(workspace, worse, max_drop=0.155)
    assert (
        "**WARN: 2 configurations probably dropped by more than 0.155, which is not certain; this does not" in shown()
    )
    with pytest.raises(GateFailedError, match=r"^WARN: 2 configurations probably dropped"):
        hold(workspace, worse, max_drop=0.155, fail_on_warn=True)
    with pytest.raises(ConfigurationError, match="span_recal@3"):
        hold(workspace, worse, metric="span_recal@3")

    with pytest.raises(GateFailedError, match="1 configuration without scores"):
        hold(workspace, make_run(workspace, config, failing=[LARGE_NAME]))
    assert f"- {LARGE_NAME} has no score in this run: it failed: no key" in shown()


def test_without_a_baseline_and_on_other_documents_there_is_no_verdict(tmp_path: Path) -> None:
    config = write_data(tmp_path)
    described = {
        "corpus": "docs",
        "ground_truth": "truth.jsonl",
        "chunkers": {"type": "recursive-token", "chunk_size": [30, 90]},
        "retrieval": "bm25",
        "k": [1, 3],
    }
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(described))
    file, place = str(tmp_path / "b.yaml"), str(tmp_path / ".rag-eval")
    first = benchmark_from_file(file, workspace=place, gate=True)
    assert f"There is no baseline: rag-eval gate {first.run} --accept makes" in shown()
    choose_baseline(Workspace(root=tmp_path / ".rag-eval"), first.run)

    (config.corpus / "one_more.md").write_text("One more.")
    benchmark_from_file(file, workspace=place, gate=True)
    assert "Not compared with the baseline: the corpus differs: 12 documents (" in shown()
    assert r"(new one\_more.md)" in shown()
    benchmark_from_file(file, workspace=place, gate=True, allow_different=True)
    assert "**PASS.**" in shown()
    assert "Warning: the corpus differs: 12 documents (" in shown()

    assert benchmark_from_file(file, workspace=place).work()[0] == 0
    assert benchmark_from_file(file, workspace=place, refresh=True).work()[1] == 0
