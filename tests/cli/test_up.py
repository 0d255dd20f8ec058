"""``rag-eval up`` for real: a server, a worker, deployments, watchers, and a browser in front of it.

Two benchmarks are up, are stopped, come up again, are killed and come up once more: each test goes on from there.
"""

import base64
import json
import os
import re
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from flows.deployments import corpus_resource
from rag_eval.cli.prefect_home import USER, key_file, prefect_home
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.runs import read_run, run_names
from tests.cli.commands import in_process, is_running, rag_eval, wait_for
from tests.cli.daily import BENCHMARK, DEPLOYMENTS, ENDED, PROJECT, Daily, come_up, enter
from tests.doubles.planted_folder import obeyed, plant
from tests.flows.benchmarks import folder_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


FILES = {PROJECT: "b.yaml", "other": "other/benchmark.yaml"}


def make_other(folder: Path) -> None:
    """A second benchmark, with documents of its own."""
    (folder / "other").mkdir()
    folder_of(folder / "other", 3)
    (folder / FILES["other"]).write_text(BENCHMARK)


@pytest.fixture(scope="module")
def daily(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daily]:
    folder = tmp_path_factory.mktemp("daily")
    make_other(folder)
    canaries = tmp_path_factory.mktemp("daily-canaries") / "made"
    plant(folder, canaries)  # none of it is obeyed, by the server, the worker or a run
    up = come_up(folder, files=[*FILES.values()])
    yield up
    if up.process.poll() is None:
        up.process.terminate()
        up.process.communicate(timeout=60)
    assert obeyed(canaries) == set()


@pytest.fixture(scope="module")
def page(chromium: "Browser") -> "Page":
    page = chromium.new_page(viewport={"width": 1300, "height": 1000})
    page.set_default_timeout(60_000)
    return page


def latest(daily: Daily) -> BenchmarkOutcome:
    return read_run(Workspace(root=daily.folder / ".rag-eval"))


def key_forms(daily: Daily) -> list[str]:
    """The key of a server, as it is and as it is sent."""
    key = daily.auth[1]
    return [key, base64.b64encode(f"{USER}:{key}".encode()).decode()]


def field(name: str) -> str:
    """The text field below a parameter's name, as a person would find it."""
    return f"xpath=//*[normalize-space(text())='{name} (Optional)']/following::textarea[1]"


def test_what_is_up_is_said_and_is_there(daily: Daily) -> None:
    watched = [daily.folder / "docs", daily.folder / "other" / "docs"]
    daily.until(lambda: all(f"watching {folder}" in daily.said for folder in watched))  # the last of its lines
    assert f"UI           {daily.ui}" in daily.said
    # It goes to a file here, which may be a log: the key does not.
    assert f"sign in      with the address in {key_file(daily.port)}" in daily.said
    assert daily.said.count("nightly      0 3 * * * UTC") == len(FILES)
    found = daily.ask("/deployments/filter", sort="NAME_ASC")
    assert {each["name"] for each in found} == {f"{name}-{project}" for name in DEPLOYMENTS for project in FILES}
    for each in found:
        name, _, project = each["name"].rpartition("-")
        assert {"rag-eval", f"project:{project}"} <= set(each["tags"])
        assert each["work_queue_name"] == project
        if name != "experiment":
            assert each["parameters"]["benchmark_file"] == FILES[project]
            flow = "generate.generate" if name == "generate" else "benchmark_from_file.benchmark_from_file"
            assert each["entrypoint"] == f"flows.{flow}"
        (step,) = each["pull_steps"]
        assert next(iter(step.values()))["directory"] == str(daily.folder)
    # What test_server_gate.py tries in every way: nobody else gets in.
    address = f"{daily.ui}/api/admin/version"
    asked = ({"auth": daily.auth}, {}, {"auth": daily.auth, "headers": {"Host": "evil.test"}})
    assert [httpx.get(address, timeout=60, **one).status_code for one in asked] == [200, 401, 403]


def test_the_nightly_schedule_creates_runs(daily: Daily) -> None:
    scheduled = daily.until(lambda: daily.runs("nightly", "SCHEDULED"))
    times = [datetime.fromisoformat(run["expected_start_time"]).astimezone(UTC) for run in scheduled]
    assert {(time.hour, time.minute) for time in times} == {(3, 0)}
    assert times[0] > datetime.now(UTC)


def test_a_person_gets_in_with_one_click(daily: Daily, page: "Page") -> None:
    from playwright.sync_api import expect

    # Without the key there is nothing but a form that asks for it.
    page.goto(f"{daily.ui}/deployments")
    page.wait_for_url("**/login**")
    # An address from an earlier start says so and is useless.
    page.goto(daily.sign_in.partition("#")[0] + "#of-yesterday")
    expect(page.get_by_text("This address is out of date")).to_be_visible()
    assert page.evaluate("localStorage.getItem('prefect-password')") is None
    page.goto("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    enter(page, daily.sign_in)
    key = daily.auth[1]
    assert key not in page.url
    page.goto(f"{daily.ui}/deployments")
    for name in DEPLOYMENTS:
        expect(page.get_by_text(f"{name}-{PROJECT}", exact=True).first).to_be_visible(timeout=30_000)
    # The API is asked where the page came from, and the key is in no address.
    assert {url.split("/")[2] for url in asked if "/api/" in url} == {f"127.0.0.1:{daily.port}"}
    assert not any(key in url.partition("#")[0] for url in asked)


def test_a_person_runs_it_from_the_form_and_reads_the_report(daily: Daily, page: "Page") -> None:
    from playwright.sync_api import expect

    adhoc = daily.deployment("adhoc")["id"]
    page.goto(f"{daily.ui}/deployments/deployment/{adhoc}/run")
    # Every parameter is a field of its own, with its meaning; none is JSON to write.
    expect(page.get_by_text("A folder of documents, instead of that in the benchmark file.")).to_be_visible()
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
    page.context.close()  # an open dashboard keeps asking
    assert latest(daily).work() == (9, 0)


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
    efforts = {stage: (done.effort.fresh, done.effort.total) for stage, done in one.steps.items() if done.effort}
    assert efforts["chunk"] == (1, 10)
    assert efforts["embed"] == (1, 10)
    # Nothing waits: the ten edits were one event, and one event is one run.
    assert daily.runs("on-corpus-change", "SCHEDULED", "PENDING", "RUNNING") == []

    # It is the run of this benchmark alone, kept and served beside it.
    assert run["work_queue_name"] == PROJECT
    assert daily.runs("on-corpus-change", *ENDED, "SCHEDULED", "PENDING", "RUNNING", project="other") == []
    name = latest(daily).run
    assert run_names(Workspace(root=daily.folder / "other" / ".rag-eval")) == []
    token = (prefect_home(Workspace(root=daily.folder / ".rag-eval")) / "runs.token").read_text()
    served = f"{daily.ui}/rag-eval/runs/{token}"
    assert httpx.get(f"{served}/{PROJECT}/{name}/report.html").status_code == 200
    assert httpx.get(f"{served}/other/{name}/report.html").status_code == 404
    artifacts = daily.ask("/artifacts/filter", artifacts={"key": {"any_": ["report"]}})
    assert any(f"{served}/{PROJECT}/{name}/report.html" in one["data"] for one in artifacts)


AS_ANOTHER = """
import encodings.idna, http.client, json, os, socket, sys, urllib.error, urllib.request
os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = {}
for address in sys.argv[2:]:
    try:
        found[address] = urllib.request.urlopen(address, timeout=60).status
    except urllib.error.HTTPError as error:
        found[address] = error.code
for path in json.loads(sys.argv[1]):
    try:
        found[path] = open(path, "rb").read(1).decode()
    except OSError as error:
        found[path] = type(error).__name__
print(json.dumps(found))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_gets_neither_in_nor_at_the_key(daily: Daily) -> None:
    home = prefect_home(Workspace(root=daily.folder / ".rag-eval"))
    token = (home / "runs.token").read_text()
    report = f"{daily.ui}/rag-eval/runs/{token}/{PROJECT}/{latest(daily).run}/report.html"
    shown = httpx.get(report)
    assert shown.status_code == 200
    assert "sandbox" in shown.headers["Content-Security-Policy"]
    assert httpx.get(report, headers={"Host": "evil.test"}).status_code == 403
    family = [daily.process.pid, *(child.pid for child in psutil.Process(daily.process.pid).children())]
    secrets = [key_file(daily.port), home / "runs.token", home / "prefect.db", home / "server.log"]
    paths = [*map(str, secrets), *(f"/proc/{pid}/environ" for pid in family)]
    addresses = [f"{daily.ui}/api/admin/version", report.replace(token, "x" * 43), report.replace(f"{token}/", "")]
    # It drops its rights by itself: the interpreter may be where another user cannot start it.
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, json.dumps(paths), *addresses],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop(addresses[0]) == 401
    assert found.pop(addresses[1]) == 404
    assert found.pop(addresses[2]) == 404
    assert found == dict.fromkeys(paths, "PermissionError")
    for secret in secrets[:2]:
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_project_is_replaced_and_removed_by_name(daily: Daily) -> None:
    named = {"PREFECT_API_URL": f"{daily.ui}/api"}
    said = rag_eval("deploy", FILES["other"], "--cron", "5 4 * * *", cwd=daily.folder, **named).stderr
    (schedule,) = daily.deployment("nightly", "other")["schedules"]
    assert schedule["schedule"]["cron"] == "5 4 * * *"
    assert "/deployments/deployment/" in said
    assert "A run starts on the event corpus.changed of corpus." in said
    (daily.folder / "gamma").mkdir()
    (daily.folder / "gamma" / "other.yaml").write_text(BENCHMARK)
    refused = rag_eval("deploy", "gamma/other.yaml", cwd=daily.folder, **named)
    assert refused.returncode == 2
    assert "the server already has a project 'other'" in refused.stderr
    gone = rag_eval("deploy", "--remove", "other", cwd=daily.folder, **named)
    assert gone.returncode == 0, gone.stderr
    assert "removed deployment nightly-other" in gone.stderr
    left = {one["name"] for one in daily.ask("/deployments/filter")}
    assert left == {f"{what}-{PROJECT}" for what in DEPLOYMENTS}
    keyless = rag_eval("deploy", "b.yaml", cwd=daily.folder, XDG_STATE_HOME=str(daily.folder / "state"), **named)
    assert keyless.returncode != 0
    told = said + "".join(each.stdout + each.stderr for each in (refused, gone, keyless))
    assert not any(form in told for form in key_forms(daily))
    # Its documents are watched still, and start nothing: the last test of this server looks.
    (daily.folder / "other" / "docs" / "new.md").write_text("# Ship 7\n\nShip number 7 is new.\n")
    daily.until(lambda: "docs: 1 added" in daily.said)


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
    assert latest(daily).work() == (0, 9)


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


def test_the_key_is_in_no_file_and_no_argument(daily: Daily) -> None:
    forms = key_forms(daily)
    folders = [prefect_home(Workspace(root=daily.folder / ".rag-eval")), daily.folder]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"prefect.db", "server.log", "worker.log", "said"} <= {path.name for path in files}
    assert [path for path in files if any(form.encode() in path.read_bytes() for form in forms)] == []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            assert not any(form in argument for form in forms for argument in process.cmdline())


def test_it_stops_as_one_and_leaves_nothing_behind(daily: Daily) -> None:
    assert {run["work_queue_name"] for run in daily.ask("/flow_runs/filter")} <= {PROJECT, None}
    again = rag_eval("up", "b.yaml", cwd=daily.folder)
    assert again.returncode == 2
    assert "rag-eval up already runs in" in again.stderr
    family = [daily.process.pid, *(child.pid for child in psutil.Process(daily.process.pid).children(recursive=True))]
    assert key_file(daily.port).exists()
    daily.process.send_signal(signal.SIGTERM)
    daily.process.communicate(timeout=60)
    assert daily.process.returncode == 143
    assert not key_file(daily.port).exists()
    assert daily.said.endswith("rag-eval: stopped; server, worker and watcher have ended; finished work is saved\n")
    assert len(family) >= 3
    assert not any(map(is_running, family))


def test_edits_while_it_was_down_start_a_run_and_stop_nothing(daily: Daily) -> None:
    # The span is elsewhere now, and one document is gone.
    changed = daily.folder / "docs" / "000.md"
    changed.write_text(f"In the beginning there was a harbour.\n\n{changed.read_text()}")
    (daily.folder / "docs" / "009.md").unlink()
    workspace = Workspace(root=daily.folder / ".rag-eval")
    before = len(run_names(workspace))
    wide = {"COLUMNS": "500", "TERM": "dumb"}  # in one line, without colours
    second = come_up(daily.folder, daily.port, settings=wide, in_terminal=True)
    try:
        assert "spans re-anchored for this run: " in second.said
        run = second.finished("on-corpus-change", len(second.runs("on-corpus-change", *ENDED)) + 1)[-1]
        assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
        assert run["parameters"]["note"] == "docs: 1 changed, 1 removed"
        assert len(run_names(workspace)) == before + 1
        # Here it is in a terminal, and not in a log.
        assert re.findall(r"sign in +(http://\S+#[\w-]+)", second.said) == [second.sign_in]
        # From the form the truth is carried over alike.
        adhoc = second.deployment("adhoc")
        assert adhoc["parameters"]["reanchor"]
        begun = second.ask(f"/deployments/{adhoc['id']}/create_flow_run")["id"]
        second.until(lambda: second.runs("adhoc", "RUNNING"))
        family = [child.pid for child in psutil.Process(second.process.pid).children(recursive=True)]
    finally:
        second.process.kill()
        second.process.communicate()
    wait_for(lambda: not any(map(is_running, family)), 60)  # what is killed leaves nothing

    # What is broken meanwhile is said, and does not keep the service from coming up; nothing has changed since the run.
    (daily.folder / "truth.jsonl").write_text("no truth\n")
    third = come_up(daily.folder, daily.port)
    try:
        assert "its runs fail until this is corrected" in third.said
        assert third.runs("on-corpus-change", "SCHEDULED", "PENDING", "RUNNING") == []
        # A run that was going on is over, and holds up no other.
        found = httpx.get(f"{third.ui}/api/flow_runs/{begun}", auth=third.auth, timeout=30)
        assert found.json()["state"]["type"] == "CRASHED"
        commands = {child.pid: child.cmdline() for child in psutil.Process(third.process.pid).children()}
        (worker,) = [pid for pid, command in commands.items() if "worker" in command]
        os.kill(worker, signal.SIGKILL)
        third.process.communicate(timeout=60)
    finally:
        third.process.kill()
        third.process.communicate()
    assert third.process.returncode == 2
    assert "rag-eval: the worker was killed by signal 9" in third.said
    assert not any(map(is_running, commands))


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["other/benchmark.yaml"] * 2, "are both named 'other'"),
        (["other/benchmark.yaml", "other/more.yaml"], "share a workspace: give --workspace"),
        (["other/benchmark.yaml", "other"], "'other' is a folder: give a benchmark file"),
    ],
)
def test_benchmarks_that_cannot_be_up_together_are_refused(tmp_path: Path, files: list[str], sentence: str) -> None:
    make_other(tmp_path)
    for name in ("b.yaml", "other/more.yaml"):
        (tmp_path / name).write_text(BENCHMARK)
    done = in_process("up", *files, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
