"""``rag-eval up`` for real: a server, a worker, three deployments, a watcher, and a browser in front of it."""

import base64
import os
import signal
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from flows.cli.prefect_home import key_file
from flows.deployments import corpus_resource
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.runs import read_run
from rag_eval.benchmark.workspace import Workspace
from tests.flows.cli.commands import is_running, rag_eval, wait_for
from tests.flows.cli.daily import DEPLOYMENTS, ENDED, PROJECT, Daily, come_up, enter

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daily]:
    up = come_up(tmp_path_factory.mktemp("daily"))
    yield up
    if up.process.poll() is None:
        up.process.terminate()
        up.process.communicate(timeout=60)


def latest(daily: Daily) -> BenchmarkOutcome:
    return read_run(Workspace(root=daily.folder / ".rag-eval"))


def field(name: str) -> str:
    """The text field below a parameter's name, as a person would find it."""
    return f"xpath=//*[normalize-space(text())='{name} (Optional)']/following::textarea[1]"


def test_what_is_up_is_said_and_is_there(daily: Daily) -> None:
    daily.until(lambda: f"watching {daily.folder / 'docs'}" in daily.said)  # the last of its lines
    assert f"UI           {daily.ui}" in daily.said
    # It goes to a file here, which may be a log: the key does not.
    assert f"sign in      with the address in {key_file(daily.port)}" in daily.said
    assert "nightly      0 3 * * * UTC" in daily.said
    assert f"watching {daily.folder / 'docs'}" in daily.said
    found = daily.ask("/deployments/filter", sort="NAME_ASC")
    assert [each["name"] for each in found] == [f"{name}-{PROJECT}" for name in sorted(DEPLOYMENTS)]
    for each in found:
        assert {"rag-eval", f"project:{PROJECT}"} <= set(each["tags"])
        assert each["work_queue_name"] == PROJECT
        if not each["name"].startswith("experiment"):
            assert each["parameters"]["benchmark_file"] == "b.yaml"
            flow = (
                "generate.generate"
                if each["name"].startswith("generate")
                else "benchmark_from_file.benchmark_from_file"
            )
            assert each["entrypoint"] == f"flows.{flow}"
        (step,) = each["pull_steps"]
        assert next(iter(step.values()))["directory"] == str(daily.folder)


def test_the_nightly_schedule_creates_runs(daily: Daily) -> None:
    scheduled = daily.until(lambda: daily.runs("nightly", "SCHEDULED"))
    times = [datetime.fromisoformat(run["expected_start_time"]).astimezone(UTC) for run in scheduled]
    assert {(time.hour, time.minute) for time in times} == {(3, 0)}
    assert times[0] > datetime.now(UTC)


def test_a_person_runs_it_from_the_form_and_reads_the_report(daily: Daily, chromium: "Browser") -> None:
    from playwright.sync_api import expect

    adhoc = daily.deployment("adhoc")["id"]
    page = chromium.new_page(viewport={"width": 1300, "height": 1000})
    enter(page, daily.sign_in)
    page.goto(f"{daily.ui}/deployments/deployment/{adhoc}/run")
    # Every parameter is a field of its own, with its meaning; none is JSON to write.
    expect(page.get_by_text("A folder of documents, in place of the benchmark file's.")).to_be_visible()
    expect(page.locator(field("benchmark_file"))).to_have_value("b.yaml")
    page.locator(field("note")).fill("tried by <b>hand</b>")
    page.locator(field("corpus")).fill("docs")
    page.get_by_role("button", name="Submit").click()
    (run,) = daily.finished("adhoc", 1)
    assert (run["state"]["type"], run["parameters"]["corpus"]) == ("COMPLETED", "docs"), run["state"]["message"]
    assert run["name"].startswith(f"adhoc-{PROJECT} docs 20")

    page.goto(f"{daily.ui}/runs/flow-run/{run['id']}")
    page.get_by_text("Artifacts", exact=True).last.click()
    page.get_by_text("report", exact=True).last.click()
    expect(page.get_by_text("tried by <b>hand</b>")).to_be_visible()
    page.get_by_role("link", name="Every question and its text").click()
    page.wait_for_timeout(1000)
    report = page.context.pages[-1]  # in a tab of its own, or here
    report.wait_for_url("**/rag-eval/runs/**")
    expect(report.get_by_text("When does ship number 0 leave?").first).to_be_attached()
    assert latest(daily).work() == (8, 0)


def test_ten_edits_in_a_second_start_one_run_that_embeds_what_changed(daily: Daily) -> None:
    if not daily.runs("adhoc", *ENDED):  # nobody could use the form: there is no browser
        daily.ask(f"/deployments/{daily.deployment('adhoc')['id']}/create_flow_run")
        daily.finished("adhoc", 1)
    before = len(daily.runs("on-corpus-change", *ENDED))
    for number in range(10):
        (daily.folder / "docs" / "004.md").write_text(f"# Ship 4\n\nShip number 4 was sold {number} times.\n")
    (daily.folder / "docs" / "notes.txt").write_text("no document")
    runs = daily.finished("on-corpus-change", before + 1)
    assert len(runs) == before + 1
    run = runs[-1]
    assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
    assert run["parameters"]["corpus"] == str(daily.folder / "docs")
    assert run["parameters"]["note"] == "docs: 1 changed"
    assert "docs: 1 changed" in daily.said
    (one,) = latest(daily).configurations
    efforts = {stage: (done.effort.fresh, done.effort.total) for stage, done in one.stages.items() if done.effort}
    assert efforts["chunk"] == (1, 10)
    assert efforts["embed"] == (1, 10)
    # Nothing waits: the ten edits were one event, and one event is one run.
    assert daily.runs("on-corpus-change", "SCHEDULED", "PENDING", "RUNNING") == []


def test_events_in_a_burst_start_one_run(daily: Daily) -> None:
    before = len(daily.runs("on-corpus-change", *ENDED))
    event = {
        "event": "corpus.changed",
        "resource": corpus_resource(daily.folder / "docs"),
        "payload": {"corpus": str(daily.folder / "docs"), "summary": "told from elsewhere"},
    }
    for _ in range(5):
        told = [event | {"id": str(uuid.uuid4()), "occurred": datetime.now(UTC).isoformat()}]
        httpx.post(f"{daily.ui}/api/events", json=told, auth=daily.auth, timeout=30).raise_for_status()
    runs = daily.finished("on-corpus-change", before + 1)
    assert [run["parameters"]["note"] for run in runs[before:]] == ["told from elsewhere"]
    assert daily.runs("on-corpus-change", "SCHEDULED", "PENDING", "RUNNING") == []
    assert latest(daily).work() == (0, 8)


def test_runs_that_wait_while_another_begins_are_called_off(daily: Daily) -> None:
    before = len(daily.runs("on-corpus-change", *ENDED))
    headers = {"prefect-automation-id": str(uuid.uuid4()), "prefect-automation-name": base64.b64encode(b"x").decode()}
    corpus = str(daily.folder / "docs")
    path = f"{daily.ui}/api/deployments/{daily.deployment('on-corpus-change')['id']}/create_flow_run"
    for number in range(3):
        body = {"parameters": {"corpus": corpus, "note": str(number)}, "state": {"type": "SCHEDULED"}}
        httpx.post(path, json=body, headers=headers, auth=daily.auth, timeout=30).raise_for_status()
    other = {"parameters": {"corpus": corpus, "glob": ["**/00*.md"]}, "state": {"type": "SCHEDULED"}}
    httpx.post(path, json=other, headers=headers, auth=daily.auth, timeout=30).raise_for_status()
    ended = daily.until(lambda: len(found := daily.runs("on-corpus-change", "CANCELLED")) == 2 and found)
    assert all(
        run["state"]["message"].startswith(f"its changes are in on-corpus-change-{PROJECT} docs") for run in ended
    )
    # Of the three that ask for the same one has run; the one that asks for something else has too.
    assert len(daily.finished("on-corpus-change", before + 2)) == before + 2


def test_it_stops_as_one_and_leaves_nothing_behind(daily: Daily) -> None:
    again = rag_eval("up", "b.yaml", cwd=daily.folder)
    assert again.returncode == 2
    assert "rag-eval up goes on already" in again.stderr
    family = [daily.process.pid, *(child.pid for child in psutil.Process(daily.process.pid).children(recursive=True))]
    daily.process.send_signal(signal.SIGTERM)
    daily.process.communicate(timeout=60)
    assert daily.process.returncode == 143
    assert daily.said.endswith("rag-eval: stopped; server, worker and watcher have ended; what was finished is kept\n")
    assert len(family) >= 3
    assert not any(map(is_running, family))


def test_what_dies_is_named_and_what_is_killed_leaves_nothing(tmp_path: Path) -> None:
    first = come_up(tmp_path)
    family = {child.pid: child.cmdline() for child in psutil.Process(first.process.pid).children()}
    (worker,) = [pid for pid, command in family.items() if "worker" in command]
    os.kill(worker, signal.SIGKILL)
    first.process.communicate(timeout=60)
    assert first.process.returncode == 2
    assert "rag-eval: the worker was ended by signal 9, and everything else was stopped" in first.said
    assert not any(map(is_running, family))

    # It comes up again where it was; a run that was going on is over, and holds up no other.
    second = come_up(tmp_path, first.port, "--no-watch")
    adhoc = second.deployment("adhoc")["id"]
    answer = httpx.post(f"{second.ui}/api/deployments/{adhoc}/create_flow_run", json={}, auth=second.auth, timeout=30)
    second.until(lambda: second.runs("adhoc", "RUNNING"))
    family = {child.pid: child for child in psutil.Process(second.process.pid).children(recursive=True)}
    os.kill(second.process.pid, signal.SIGKILL)
    second.process.communicate()
    wait_for(lambda: not any(map(is_running, family)), 60)
    third = come_up(tmp_path, first.port, "--no-watch")
    found = httpx.get(f"{third.ui}/api/flow_runs/{answer.json()['id']}", auth=third.auth, timeout=30)
    state = found.json()["state"]
    third.process.send_signal(signal.SIGINT)
    third.process.communicate(timeout=60)
    assert third.process.returncode == 130
    assert state["type"] == "CRASHED"
