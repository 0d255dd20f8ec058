"""Several benchmarks on one server: ``rag-eval up`` with two files, whose changes, runs and reports are their own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.cli.prefect_home import prefect_home
from rag_eval.benchmark.runs import run_names
from rag_eval.benchmark.workspace import Workspace
from tests.flows.benchmarks import folder_of
from tests.flows.cli.commands import rag_eval
from tests.flows.cli.daily import BENCHMARK, DEPLOYMENTS, Daily, come_up

PROJECTS = ("alpha", "beta")


def two_projects(folder: Path) -> list[str]:
    """Two folders, each with documents and a benchmark file; the files, from the folder that both are in."""
    for name in PROJECTS:
        (folder / name).mkdir()
        folder_of(folder / name, 3)
        (folder / name / "benchmark.yaml").write_text(BENCHMARK)
    return [f"{name}/benchmark.yaml" for name in PROJECTS]


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daily]:
    folder = tmp_path_factory.mktemp("projects")
    up = come_up(folder, None, files=two_projects(folder))
    yield up
    up.process.terminate()
    up.process.communicate(timeout=60)


def test_each_has_its_own_deployments(daily: Daily) -> None:
    found = daily.ask("/deployments/filter", sort="NAME_ASC")
    assert sorted(one["name"] for one in found) == sorted(f"{what}-{name}" for what in DEPLOYMENTS for name in PROJECTS)
    for name in PROJECTS:
        assert f"watching {daily.folder / name / 'docs'}" in daily.said
        assert {one["work_queue_name"] for one in found if f"project:{name}" in one["tags"]} == {name}


def test_a_change_in_one_starts_its_run_alone_and_the_report_is_served(daily: Daily) -> None:
    (daily.folder / "alpha" / "docs" / "001.md").write_text("# Ship 1\n\nShip number 1 was sold.\n")
    (run,) = daily.finished("on-corpus-change", 1, "alpha")
    assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
    assert run["work_queue_name"] == "alpha"
    assert daily.runs("on-corpus-change", "SCHEDULED", "PENDING", "RUNNING", "COMPLETED", project="beta") == []
    # Without --workspace the work of each is kept beside its file, where its other commands look for it.
    (name,) = run_names(Workspace(root=daily.folder / "alpha" / ".rag-eval"))
    assert run_names(Workspace(root=daily.folder / "beta" / ".rag-eval")) == []
    token = (prefect_home(Workspace(root=daily.folder / ".rag-eval")) / "runs.token").read_text()
    served = f"{daily.ui}/rag-eval/runs/{token}"
    assert httpx.get(f"{served}/alpha/{name}/report.html").status_code == 200
    assert httpx.get(f"{served}/beta/{name}/report.html").status_code == 404
    artifacts = daily.ask("/artifacts/filter", artifacts={"key": {"any_": ["report"]}})
    assert f"{served}/alpha/{name}/report.html" in artifacts[0]["data"]


def test_a_project_is_replaced_and_removed_by_name(daily: Daily) -> None:
    named = {"PREFECT_API_URL": f"{daily.ui}/api"}
    said = rag_eval("deploy", "beta/benchmark.yaml", "--cron", "5 4 * * *", cwd=daily.folder, **named).stderr
    assert "schedule '0 3 * * *' → '5 4 * * *'" in said
    assert "workspace '" in said
    assert "A run starts on the event corpus.changed of corpus." in said
    (daily.folder / "gamma").mkdir()
    (daily.folder / "gamma" / "beta.yaml").write_text(BENCHMARK)
    refused = rag_eval("deploy", "gamma/beta.yaml", cwd=daily.folder, **named)
    assert refused.returncode == 2
    assert "the server has a project 'beta' already" in refused.stderr
    gone = rag_eval("deploy", "--remove", "beta", cwd=daily.folder, **named)
    assert gone.returncode == 0, gone.stderr
    assert "removed deployment nightly-beta" in gone.stderr
    left = {one["name"] for one in daily.ask("/deployments/filter")}
    assert left == {f"{what}-alpha" for what in DEPLOYMENTS}
    (daily.folder / "beta" / "docs" / "001.md").write_text("# Ship 1\n\nNobody is told.\n")
    (daily.folder / "alpha" / "docs" / "002.md").write_text("# Ship 2\n\nShip number 2 was sold.\n")
    assert len(daily.finished("on-corpus-change", 2, "alpha")) == 2
    assert {run["work_queue_name"] for run in daily.ask("/flow_runs/filter")} <= {"alpha", None}


@pytest.mark.parametrize(
    ("files", "options", "sentence"),
    [
        (
            ["alpha/benchmark.yaml", "alpha/benchmark.yaml"],
            [],
            "would both be called 'alpha': give one of them another",
        ),
        (["alpha/benchmark.yaml", "alpha/other.yaml"], [], "have one workspace: give --workspace, in which each has"),
        (["alpha/benchmark.yaml", "beta/benchmark.yaml"], ["--corpus", "docs"], "are for one benchmark file"),
        (["alpha/benchmark.yaml", "beta"], [], "'beta' is a folder: give a benchmark file"),
    ],
)
def test_what_does_not_go_together_is_said(tmp_path: Path, files: list[str], options: list[str], sentence: str) -> None:
    two_projects(tmp_path)
    (tmp_path / "alpha" / "other.yaml").write_text(BENCHMARK)
    done = rag_eval("up", *files, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
