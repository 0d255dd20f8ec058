"""A service that goes on: services that fail for a while, workers that die, and somebody who is told."""

import json
import socketserver
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rag_eval.cli.prefect_home import prefect_home
from rag_eval.cli.processes import ChildProcess, descendants
from rag_eval.cli.service_commands import WORKER_SETTINGS
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import read_run
from tests.cli.commands import in_process, rag_eval, wait_for
from tests.cli.daily import BENCHMARK, ENDED, Daily, come_up
from tests.doubles.loopback import LoopbackServer, Request
from tests.doubles.openai_server import OpenAIServer, Status
from tests.flows.benchmarks import folder_of
from tests.results.made_runs import write_data

KEY, HOOK = "sk-test-of-the-service-0123", "hook-0123456789abcdef"
SYSTEM = """
from pathlib import Path

TEXTS = [path.read_text() for path in sorted((Path(__file__).parent / "docs").glob("*.md"))]


def search(query, k):
    words = set(query.lower().replace("?", "").split())
    lines = [line for text in TEXTS for line in text.splitlines() if line]
    return sorted(lines, key=lambda line: -len(words & set(line.lower().split())))[:k]
"""
SLOW = "import time\n" + SYSTEM.replace("    words =", "    time.sleep(600)\n    words =")


class Receiver(LoopbackServer):
    """Takes messages."""

    def answer(self, request: Request) -> tuple[int, Any]:
        return 200, {}

    def texts(self, project: str, path: str = HOOK) -> list[str]:
        """The messages about a project that were sent to a path."""
        found = [json.loads(request.body)["text"] for request in self.requests if request.path == f"/{path}"]
        # Prefect gives an event to an automation at least once.
        return [text for text in dict.fromkeys(found) if text.startswith(f"{project}: ")]


class Mailbox(socketserver.ThreadingTCPServer):
    """Takes mail by SMTP, until the context ends."""

    def __init__(self) -> None:
        self.mails: list[str] = []
        super().__init__(("127.0.0.1", 0), MailHandler)

    def __enter__(self) -> "Mailbox":
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def address(self) -> str:
        return f"mailto://127.0.0.1:{self.server_address[1]}?from=nightly@example.org&to=team@example.org"


class MailHandler(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            command = line.split()[0].upper()
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.mails.append(b"".join(lines).decode())
            self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 well\r\n")


@dataclass(frozen=True)
class Service:
    """Two projects that are up, the service that one of them pays, and who is told."""

    daily: Daily
    openai: OpenAIServer
    receiver: Receiver
    settings: dict[str, str]

    def run(self, deployment: str, project: str, **parameters: Any) -> dict[str, Any]:
        """A run of a deployment, at its end."""
        return self.ended(self.begin(deployment, project, **parameters))

    def begin(self, deployment: str, project: str, **parameters: Any) -> str:
        """The id of a new run of a deployment."""
        number = self.daily.deployment(deployment, project)["id"]
        return str(self.daily.ask(f"/deployments/{number}/create_flow_run", parameters=parameters)["id"])

    def states(self, kind: str) -> dict[str, str]:
        """The runs that are in a state of this kind, by id, with the name of the state."""
        found = self.daily.ask("/flow_runs/filter", flow_runs={"state": {"type": {"any_": [kind]}}})
        return {run["id"]: run["state"]["name"] for run in found}

    def deploy(self, file: str, *options: str) -> None:
        """``rag-eval deploy``, as one would on another machine."""
        named = {"PREFECT_API_URL": f"{self.daily.ui}/api", **self.settings}
        workspace = str(Path(file).with_name(".rag-eval"))
        done = rag_eval("deploy", file, "--workspace", workspace, *options, cwd=self.daily.folder, **named)
        assert done.returncode == 0, done.stderr

    def make_block(self, kind: str, name: str, **data: str) -> None:
        """A block, as one makes it in the UI."""
        address, auth = f"{self.daily.ui}/api/block_types/slug/{kind}", self.daily.auth
        number = httpx.get(address, auth=auth, timeout=30).json()["id"]
        (schema, *_) = self.daily.ask("/block_schemas/filter", block_schemas={"block_type_id": {"any_": [number]}})
        self.daily.ask("/block_documents/", name=name, data=data, block_type_id=number, block_schema_id=schema["id"])

    def ended(self, run: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            answer = httpx.get(f"{self.daily.ui}/api/flow_runs/{run}", auth=self.daily.auth, timeout=30).json()
            return dict(answer) if answer["state"]["type"] in (*ENDED, "CANCELLED") else None

        return self.daily.until(look) or {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    notify = "notify: NIGHTLY_WEBHOOK\n"
    with OpenAIServer(api_key=KEY) as openai, Receiver() as receiver:
        (folder / "paid").mkdir()
        folder_of(folder / "paid", 3)
        embedder = f"embedders: {{type: openai, model: tiny, base_url: {openai.base_url}, max_retries: 0}}\n"
        (folder / "paid" / "benchmark.yaml").write_text(BENCHMARK + embedder + notify)
        write_data(folder / "gated")
        (folder / "gated" / "ships.py").write_text(SYSTEM)
        gated = "corpus: docs\nground_truth: truth.jsonl\nsystem: ships:search\nk: 5\n" + notify
        (folder / "gated" / "benchmark.yaml").write_text(gated)
        # A run that waits for another looks every three seconds whether that has ended, not every thirty.
        settings = {
            "NIGHTLY_WEBHOOK": f"{receiver.url}/{HOOK}",
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "3",
        }
        files = ["paid/benchmark.yaml", "gated/benchmark.yaml"]
        daily = come_up(folder, None, "--no-watch", files=files, settings=settings)
        yield Service(daily, openai, receiver, settings)
        daily.process.terminate()
        daily.process.communicate(timeout=60)


def test_a_key_comes_from_a_secret_block(service: Service) -> None:
    daily = service.daily
    named = {"PREFECT_API_URL": f"{daily.ui}/api", **service.settings}
    refused = rag_eval("deploy", "paid/benchmark.yaml", "--secret", "OPENAI_API_KEY", cwd=daily.folder, **named)
    assert "OPENAI_API_KEY needs the block secret/openai-api-key, which is not on the server" in refused.stderr
    service.make_block("secret", "openai-api-key", value=KEY)
    service.deploy("paid/benchmark.yaml", "--secret", "OPENAI_API_KEY")
    template = {"OPENAI_API_KEY": "{{ prefect.blocks.secret.openai-api-key }}"}
    assert daily.deployment("adhoc", "paid")["job_variables"]["env"] == template


def test_a_service_that_is_down_is_tried_later_and_the_run_resumes(service: Service) -> None:
    service.openai.faults = deque([Status(503)] * 1000)
    failed = service.run("nightly", "paid", retry_minutes=0.1)
    assert failed["state"]["type"] == "FAILED"
    assert "; it is tried again at " in failed["state"]["message"]
    service.openai.faults.clear()
    later = service.daily.finished("nightly", 2, "paid")[-1]
    assert later["state"]["type"] == "COMPLETED", later["state"]["message"]
    assert "attempt:2" in later["tags"]
    (one,) = read_run(Workspace(root=service.daily.folder / "paid" / ".rag-eval")).configurations
    assert {name: stage.state for name, stage in one.steps.items()}["chunk"] == "cached"
    texts = wait_for(lambda: len(found := service.receiver.texts("paid")) >= 2 and found)
    assert [text.splitlines()[0].rpartition(" ")[2] for text in texts] == ["Failed", "recovered"]
    assert "it is tried again at" in texts[0]
    assert "There is no baseline" in texts[1]
    for text, run in zip(texts, (failed, later), strict=True):
        assert text.splitlines()[-1] == f"{service.daily.ui}/runs/flow-run/{run['id']}"


def test_a_failed_gate_and_its_recovery_are_told(service: Service) -> None:
    folder = service.daily.folder / "gated"
    for words in (["run", "benchmark.yaml"], ["gate", "latest", "--accept"]):
        done = rag_eval(*words, cwd=folder, PREFECT_API_URL=f"{service.daily.ui}/api")
        assert done.returncode == 0, done.stderr
    (folder / "ships.py").write_text(SYSTEM.replace("-len(words", "len(words"))
    bad = service.run("nightly", "gated")
    assert bad["state"]["type"] == "FAILED"
    (folder / "ships.py").write_text(SYSTEM)
    assert service.run("nightly", "gated")["state"]["type"] == "COMPLETED"
    texts = wait_for(lambda: len(found := service.receiver.texts("gated")) >= 2 and found)
    assert "FAIL: 1 configuration dropped by more than 0.02." in texts[0]
    assert "PASS." in texts[1]
    assert texts[1].splitlines()[0].endswith(" recovered")
    # A gate that fails is no service that is down.
    assert len(service.daily.runs("nightly", *ENDED, "SCHEDULED", project="gated")) >= 2
    assert not [run for run in service.daily.ask("/flow_runs/filter") if "attempt:2" in run["tags"]][1:]


def test_everyone_is_told_and_who_does_not_answer_harms_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily, receiver = service.daily, service.receiver
    (daily.folder / "told").mkdir()
    folder_of(daily.folder / "told", 1)
    service.make_block("slack-webhook", "retrieval", url=f"{receiver.url.replace('http', 'json')}/slack")
    hooks = {
        f"HOOK_{name.upper()}": f"{receiver.url}/{name}?token=a%26b" for name in ("second", "error", "gone", "slow")
    }
    receiver.fail("POST", "/error", status=500)
    receiver.fail("POST", "/gone", status=404)
    receiver.fail("POST", "/slow", hang=True)
    with Mailbox() as mailbox:
        for name, address in (hooks | {"NIGHTLY_MAIL": mailbox.address}).items():
            monkeypatch.setitem(service.settings, name, address)
        targets = ["NIGHTLY_WEBHOOK", *hooks, "NIGHTLY_MAIL", "slack-webhook/retrieval"]
        (daily.folder / "told" / "benchmark.yaml").write_text(f"{BENCHMARK}notify: {targets}\n")
        service.deploy("told/benchmark.yaml")
        (daily.folder / "told" / "truth.jsonl").write_text("no truth\n")
        run = service.run("adhoc", "told")
        assert run["state"]["type"] == "FAILED"
        wait_for(lambda: mailbox.mails)
        (text,) = wait_for(lambda: receiver.texts("told"))
        wait_for(lambda: receiver.texts("told", "second") == [text])
        wait_for(lambda: receiver.texts("told", "slow") == [text])
        # Slack and mail have a title of their own.
        subject, _, body = text.partition("\n")
        assert f"\r\nSubject: {subject}\r\n" in mailbox.mails[0].replace("\r\n ", " ")
        page = f"{daily.ui}/runs/flow-run/{run['id']}"
        assert body.endswith(f"\n{page}")
        assert page in mailbox.mails[0].replace("=\r\n", "")
        (slack,) = wait_for(lambda: [one.json() for one in receiver.requests if one.path == "/slack"])
        assert (slack["title"], slack["message"]) == (subject, body)
        assert {one.one("token") for one in receiver.requests if one.path == "/second"} == {"a&b"}

    # Of who was not reached the server tells why, and not the address.
    def failures() -> str:
        asked = {"event": {"name": ["prefect.automation.action.failed"]}}
        return str([event["payload"] for event in daily.ask("/events/filter", filter=asked)["events"]])

    reasons = ("error=404.", "error=500.", "A Connection error occurred sending JSON notification to 127.0.0.1.")
    found = daily.until(lambda: all(reason in failures() for reason in reasons) and failures())
    assert "token" not in found


def test_a_dead_worker_s_run_is_crashed_and_the_one_that_waits_goes_on(service: Service) -> None:
    daily, system = service.daily, service.daily.folder / "gated" / "ships.py"
    service.deploy("gated/benchmark.yaml", "--pool", "elsewhere")
    # Prefect's runs tell every 30 seconds, or seldomer, that they live: those here live no longer than half of that.
    (dead,) = daily.ask("/automations/filter", automations={"name": {"any_": ["rag-eval-dead-runs"]}})
    shorter = {name: dead[name] for name in ("name", "trigger", "actions", "tags")}
    shorter["trigger"]["within"] = 16.0
    put = partial(httpx.put, f"{daily.ui}/api/automations/{dead['id']}", auth=daily.auth, timeout=30)
    put(json=shorter).raise_for_status()
    system.write_text(SLOW)
    here = {"PREFECT_API_URL": f"{daily.ui}/api", "PREFECT_API_AUTH_STRING": ":".join(daily.auth)}
    worker = partial(ChildProcess, "worker", ["elsewhere"], daily.folder / "elsewhere.log", WORKER_SETTINGS | here)
    first = worker()
    both = {service.begin("nightly", "gated") for _ in range(2)}
    # One of them, the benchmark below it, and the configuration below that; the other waits.
    runs = daily.until(lambda: len(found := service.states("RUNNING")) == 3 and found)
    (waiting,) = both - runs.keys()
    daily.until(lambda: service.states("SCHEDULED").get(waiting) == "AwaitingConcurrencySlot")
    assert service.states("RUNNING").keys() == runs.keys()
    for process in (psutil.Process(first.pid), *descendants(first.pid)):
        process.kill()
    first.wait()
    system.write_text(SYSTEM)
    second = worker()
    try:
        daily.until(lambda: service.states("CRASHED").keys() >= runs.keys())
        assert service.ended(waiting)["state"]["type"] == "COMPLETED"
    finally:
        second.terminate()
        second.wait()


def test_a_run_that_takes_too_long_is_cancelled_and_that_is_told(service: Service) -> None:
    service.deploy("gated/benchmark.yaml", "--time-limit", "0.003")
    (service.daily.folder / "gated" / "ships.py").write_text(SLOW)
    run = service.run("adhoc", "gated")
    assert run["state"]["type"] == "CANCELLED", run["state"]
    wait_for(lambda: "took too long and was cancelled" in service.receiver.texts("gated")[-1])


def test_secrets_are_in_no_file_message_or_log(service: Service) -> None:
    daily = service.daily
    folders = [prefect_home(Workspace(root=daily.folder / ".rag-eval")), daily.folder]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"prefect.db", "server.log", "worker.log", "said"} <= {path.name for path in files}
    secrets = [secret.encode() for secret in (KEY, HOOK)]
    assert [path for path in files if any(secret in path.read_bytes() for secret in secrets)] == []
    gone = rag_eval("deploy", "--remove", "gated", cwd=daily.folder, PREFECT_API_URL=f"{daily.ui}/api")
    assert "removed block rag-eval--gated--nightly-webhook" in gone.stderr
    left = {one["name"] for one in daily.ask("/block_documents/filter")}
    assert "rag-eval--paid--nightly-webhook" in left
    assert not any(name.startswith("rag-eval--gated--") for name in left)


def test_a_target_that_is_none_is_said(tmp_path: Path) -> None:
    folder_of(tmp_path, 1)
    (tmp_path / "b.yaml").write_text(f"{BENCHMARK}notify: http://127.0.0.1/{HOOK}\n")
    done = in_process("validate", "b.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "expected the name of an environment variable" in done.stderr
    assert HOOK not in done.stderr
