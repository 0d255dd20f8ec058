"""Results in orq.ai, over HTTP to a double: sent once, kept here, and never with the key in them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rag_eval.cli.main import app
from rag_eval.errors import ServiceError
from rag_eval.experiments import service_outputs
from rag_eval.experiments.evaluators import ExactMatch
from rag_eval.experiments.file_outputs import JsonOutput, read_result
from rag_eval.experiments.running import evaluatorq
from rag_eval.experiments.service_outputs import OrqOutput, orq_payload
from rag_eval.experiments.terminal_output import TerminalOutput
from rag_eval.retry import BRIEF, RetryPolicy
from rag_eval.services.orq import CONNECT_SECONDS, OrqSettings
from tests.doubles.loopback import Request, refused_url
from tests.doubles.orq_server import KEY, RECEIVE, OrqServer

QUICK = RetryPolicy(max_retries=2, backoff=0.01, max_backoff=0.02, give_up_after=20)
DATA = [{"input": "a", "output": "A"}, {"input": "b", "output": "x"}, {"input": "", "output": ""}]


@pytest.fixture
def orq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OrqServer]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORQ_API_KEY", KEY)
    with OrqServer() as server:
        monkeypatch.setenv("ORQ_BASE_URL", server.url)
        yield server


def shout(row: Any) -> str:
    if not row["input"]:
        raise ValueError("nothing to shout")
    return str(row["input"]).upper()


def run(**options: Any) -> Any:
    return evaluatorq("shouting", data=DATA, tasks=[shout], evaluators=[ExactMatch], raise_errors=False, **options)


def test_results_go_there_and_stay_here(orq: OrqServer, capsys: pytest.CaptureFixture[str]) -> None:
    result = run()
    (sent,) = orq.experiments.values()
    assert sent["_name"] == "shouting"
    assert sent["_createdAt"] < sent["_endedAt"]
    assert [row["dataPoint"] for row in sent["results"]] == [
        {"inputs": {"input": row["input"]}, "expectedOutput": row["output"]} for row in DATA
    ]
    first, _, failed = (row["jobResults"][0] for row in sent["results"])
    assert first["jobName"] == "shout"
    assert first["output"] == "A"
    assert first["evaluatorScores"][0]["score"] == {"value": 1.0, "explanation": "", "pass": True}
    assert failed["output"] is None
    assert failed["error"] == "ValueError: nothing to shout"
    assert failed["evaluatorScores"] == []
    assert failed["trace"] == {"duration": failed["trace"]["duration"], "attempts": 1, "error": failed["error"]}
    assert first["evaluatorScores"][0]["trace"]["attempts"] == 1
    assert first["trace"]["duration"] > 0
    assert sent["metadata"] == {"run": result.run, "errors": {"shout": 1}, "resumedSamples": 0}
    assert result.path.is_file()
    assert result.saved["orq.ai"] == f"{orq.url}/experiments/s1"
    assert f"orq.ai: {orq.url}/experiments/s1" in capsys.readouterr().out


@pytest.mark.parametrize("status", [429, 500, 503, None])
def test_a_fault_that_passes_is_waited_for(orq: OrqServer, status: int | None) -> None:
    orq.fail("POST", RECEIVE, status=status, retry_after=0.01 if status == 429 else None, times=2)
    assert run(outputs=[OrqOutput(retries=QUICK)]).saved["orq.ai"].startswith(orq.url)
    assert len(orq.experiments) == 1
    assert len({request.headers["idempotency-key"] for request in orq.requests}) == 1


def test_a_service_that_is_silent_is_given_up(orq: OrqServer) -> None:
    orq.fail("POST", RECEIVE, hang=True, times=9)
    quick = RetryPolicy(max_retries=1, backoff=0.01, max_backoff=0.02, give_up_after=5)
    result = run(outputs=[JsonOutput(), OrqOutput(OrqSettings(timeout=0.2), retries=quick)])
    assert "after 2 attempts" in result.saved["orq.ai"]


@pytest.mark.parametrize("problem", ["wrong key", "refused", "invalid"])
def test_what_is_not_taken_is_kept_and_can_be_published(
    orq: OrqServer, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if problem == "wrong key":
        monkeypatch.setenv("ORQ_API_KEY", "another-secret-key")
    elif problem == "invalid":
        orq.fail("POST", RECEIVE, status=400)
    else:
        monkeypatch.setenv("ORQ_BASE_URL", refused_url())
    result = run(outputs=[JsonOutput(), OrqOutput(retries=QUICK), TerminalOutput()])
    assert result.saved["orq.ai"].startswith("not sent: orq.ai ")
    assert result.saved["orq.ai"].endswith(f"to send it later: rag-eval publish {result.path}")
    monkeypatch.setenv("ORQ_API_KEY", KEY)
    monkeypatch.setenv("ORQ_BASE_URL", orq.url)
    for target in (result.path, result.path.parent):
        published = CliRunner().invoke(app, ["publish", str(target), "--json"])
        assert json.loads(published.output) == [
            {"file": str(result.path), "url": f"{orq.url}/experiments/s1", "reason": None}
        ]
    (sent,) = orq.experiments.values()  # of two that have one id
    sent["_evaluationDuration"] = sent["_endedAt"] = None  # which are in milliseconds there
    expected = orq_payload(result) | {"_evaluationDuration": None, "_endedAt": None}
    assert sent == json.loads(json.dumps(expected))
    everything = capsys.readouterr().out + "".join(path.read_text() for path in Path().rglob("*") if path.is_file())
    assert "another-secret-key" not in everything
    assert KEY not in everything


def test_without_a_file_of_the_results_a_failure_raises_and_the_next_run_only_sends(orq: OrqServer) -> None:
    orq.fail("POST", RECEIVE, status=400)
    with pytest.raises(ServiceError, match=r"orq\.ai refuses these results"):
        run(outputs=[OrqOutput(retries=QUICK)])
    assert run(outputs=[OrqOutput(retries=QUICK)]).resumed == 2
    assert len(orq.experiments) == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"summary": {}}', '{"summary": 1, "results": 2}'])
def test_what_is_no_file_of_results_is_named(orq: OrqServer, content: str) -> None:
    Path("results.json").write_text(content)
    published = CliRunner().invoke(app, ["publish", "results.json"])
    assert (published.exit_code, orq.requests) == (1, [])
    assert "is not the JSON file of an experiment" in " ".join(published.output.split())
    Path("empty").mkdir()
    assert "'empty' has no JSON files" in str(CliRunner().invoke(app, ["publish", "empty"]).exception)


class ProxiedOrqServer(OrqServer):
    """Takes experiments and answers with a page."""

    def respond(self, request: Request) -> tuple[int, bytes, dict[str, str]] | None:
        super().respond(request)
        return 200, b"<html>welcome</html>", {}


def test_an_answer_that_is_not_json_is_not_asked_for_again(orq: OrqServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProxiedOrqServer() as server:
        monkeypatch.setenv("ORQ_BASE_URL", server.url)
        result = run(outputs=[OrqOutput(retries=QUICK)])
        assert result.saved["orq.ai"] == "sent, but the answer is not a JSON object: check the address"
        assert len(server.experiments) == len(server.requests) == 1


def test_half_a_character_of_a_model_is_sent(orq: OrqServer) -> None:
    result = evaluatorq("half", data=[{"input": "\ud83d"}], tasks=[lambda row: row["input"]])
    assert result.saved["orq.ai"].startswith(orq.url)
    (sent,) = orq.experiments.values()
    assert sent["results"][0]["jobResults"][0]["output"] == "?"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("ORQ_API_KEY", "schlüssel-für-tests", "ORQ_API_KEY has characters that are not valid"),
        ("ORQ_BASE_URL", "my.orq.ai", "its address is not valid): check ORQ_BASE_URL"),
    ],
)
def test_a_wrong_setting_is_said_at_once(
    orq: OrqServer, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    never = RetryPolicy(max_retries=9, backoff=600.0, max_backoff=600.0, give_up_after=9_999)
    told = run(outputs=[JsonOutput(), OrqOutput(retries=never)]).saved["orq.ai"]
    assert sentence in told
    assert value not in told
    assert orq.requests == []


def test_without_a_key_results_stay_here(orq: OrqServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORQ_API_KEY")
    assert "orq.ai" not in run().saved
    assert orq.requests == []


def test_an_unreachable_service_is_given_up_after_three_attempts(
    orq: OrqServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORQ_BASE_URL", refused_url())
    assert "after 3 attempts" in run(outputs=[JsonOutput(), OrqOutput()]).saved["orq.ai"]
    assert 3 * CONNECT_SECONDS + BRIEF.backoff * (1 + 2) <= BRIEF.give_up_after == 15


def test_the_other_columns_and_the_id_of_a_row_are_sent(orq: OrqServer) -> None:
    data = [
        {"id": 7, "input": "a", "output": "b", "topic": "ferries", "tags": ["x"]},
        {"id": "q2", "input": {"question": "c"}, "topic": None},
        {"question": "d"},
    ]
    result = evaluatorq("columns", data=data, tasks=[lambda row: "x"], outputs=[JsonOutput(), OrqOutput()])
    (sent,) = orq.experiments.values()
    assert [row["dataPoint"] for row in sent["results"]] == [
        {"inputs": {"input": "a", "topic": "ferries", "tags": ["x"], "id": "7"}, "expectedOutput": "b"},
        {"inputs": {"question": "c", "topic": None, "id": "q2"}},
        {"inputs": {"question": "d"}},
    ]
    assert [row["dataPoint"] for row in orq_payload(read_result(result.path))["results"]] == [
        row["dataPoint"] for row in sent["results"]
    ]


def test_results_beyond_one_request_are_not_sent(orq: OrqServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_outputs, "LARGEST_BYTES", 100)
    assert run(outputs=[OrqOutput()]).saved["orq.ai"] == "not sent: the results are larger than 100 bytes"
    assert orq.requests == []


SCRIPT = """
import signal
from rag_eval.experiments.running import evaluatorq

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has it ignored
evaluatorq("killed", data=[{"input": n, "output": n} for n in range(20)], tasks=[lambda row: row["input"]],
           evaluators=[lambda a, b: a == b])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_stopped_while_sending_then_run_again_sends_once(orq: OrqServer, tmp_path: Path, number: int) -> None:
    orq.fail("POST", RECEIVE, hang=True, times=1)
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "script.py"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not orq.requests and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(number)
        process.wait(25)  # and not as long as the service is waited for
    finally:
        process.kill()
        process.wait()
    assert subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL).returncode == 0
    (sent,) = orq.experiments.values()
    assert len(sent["results"]) == 20
    assert len(list((tmp_path / "evaluations").glob("*.json"))) == 1
