"""Rows from a LangSmith dataset, and results as its experiments, over HTTP to a double."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langsmith import Client
from typer.testing import CliRunner

from rag_eval.cli.main import app
from rag_eval.errors import ConfigurationError, ExperimentError, GroundTruthError, ServiceError
from rag_eval.experiments.data import LangSmithDataset
from rag_eval.experiments.evaluators import ExactMatch
from rag_eval.experiments.file_outputs import JsonOutput
from rag_eval.experiments.results import OutputHandler, Score
from rag_eval.experiments.running import evaluatorq
from rag_eval.experiments.service_outputs import LangSmithOutput
from rag_eval.retry import RetryPolicy
from tests.doubles.langsmith_server import KEY, LangSmithServer

QUICK = RetryPolicy(max_retries=2, backoff=0.001, give_up_after=5.0)
EXAMPLES = 150


@pytest.fixture(autouse=True)
def dataset(server: LangSmithServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORQ_API_KEY", raising=False)
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)
    made = client.create_dataset("questions")
    answers: list[dict[str, str]] = [{"answer": f"QUESTION {number}"} for number in range(EXAMPLES)]
    answers[3]["source"] = "🛳️"
    examples = [
        {"inputs": {"question": f"question {number}"}, "reference_outputs": answer}
        for number, answer in enumerate(answers)
    ]
    client.create_examples(dataset_id=made.id, examples=examples)
    server.requests.clear()


def shout(row: Any) -> Any:
    if row["input"] == "question 7":
        raise ValueError(f"seven, says {KEY}")
    return {"text": row["input"].upper()}


def whisper(row: Any) -> str:
    return str(row["input"]).lower()


def fussy(result: Any, expected: Any) -> Score:
    if result == "question 9":
        raise ValueError("nine")
    return Score(0.123456, "because", passed=False)


def run(name: str = "voices", outputs: Sequence[OutputHandler] = ()) -> Any:
    return evaluatorq(
        name,
        data=LangSmithDataset("questions"),
        tasks=[shout, whisper],
        evaluators=[ExactMatch, fussy],
        outputs=outputs or [LangSmithOutput("questions", retries=QUICK)],
        raise_errors=False,
    )


def test_rows_are_the_examples_page_by_page(server: LangSmithServer) -> None:
    rows = list(LangSmithDataset("questions").rows())
    assert {row["input"] for row in rows} == {f"question {n}" for n in range(EXAMPLES)}
    assert {row["id"] for row in rows} == set(server.api.examples)
    assert next(row for row in rows if row["input"] == "question 3")["output"] == {
        "answer": "QUESTION 3",
        "source": "🛳️",
    }
    assert server.calls().count("GET /examples") == 2


def test_a_dataset_that_cannot_be_read_is_said(server: LangSmithServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExperimentError, match="there is no LangSmith dataset 'gone'"):
        list(LangSmithDataset("gone").rows())
    server.fail("GET", "/examples", status=403)
    with pytest.raises(ServiceError, match=r"'questions' cannot be read \(it refused the key, 403\)"):
        list(LangSmithDataset("questions").rows())
    monkeypatch.delenv("LANGSMITH_API_KEY")
    with pytest.raises(ConfigurationError, match="set LANGSMITH_API_KEY"):
        list(LangSmithDataset("questions").rows())


def check_complete(server: LangSmithServer) -> None:
    """Both experiments are there, whole, and once."""
    sessions = [one for one in server.api.sessions.values() if one["name"] != "default"]
    assert sorted(one["name"].split()[1] for one in sessions) == ["shout", "whisper"]
    assert len(server.api.runs) == 2 * EXAMPLES
    assert {run["reference_example_id"] for run in server.api.runs.values()} == set(server.api.examples)
    for session in sessions:
        runs = [run for run in server.api.runs.values() if run["session_id"] == session["id"]]
        assert len(runs) == EXAMPLES
    assert len(server.feedback("ExactMatch")) == 2 * EXAMPLES - 1
    assert len(server.feedback("fussy")) == 2 * EXAMPLES - 1


def test_every_task_is_an_experiment_and_every_evaluator_feedback(server: LangSmithServer) -> None:
    result = run()
    check_complete(server)
    assert result.saved["LangSmith"].startswith("http")
    assert "%2C" in result.saved["LangSmith"]
    (failed,) = (one for one in server.api.runs.values() if "error" in one)
    assert failed["error"] == "ValueError: seven, says <LANGSMITH_API_KEY>"
    assert "outputs" not in failed
    assert not [one for one in server.api.feedback.values() if one["run_id"] == failed["id"]]
    one = next(one for one in server.api.runs.values() if one.get("outputs") == {"text": "QUESTION 8"})
    assert (one["name"], one["run_type"], one["inputs"]) == ("shout", "chain", {"question": "question 8"})
    comments = {(one["score"], one["comment"]) for one in server.feedback("fussy")}
    assert comments == {(0.1235, "because"), (None, "failed: ValueError: nine")}


def test_what_is_not_taken_is_published_from_the_file(server: LangSmithServer) -> None:
    server.fail_after(2, "POST", "/runs/multipart", 500)
    result = run(outputs=[JsonOutput(), LangSmithOutput("questions", retries=QUICK)])
    assert "not sent: LangSmith did not take the experiment" in result.saved["LangSmith"]
    assert result.saved["LangSmith"].endswith(f"rag-eval publish {result.path} --dataset questions")
    server.heal()
    command = ["publish", str(result.path), "--dataset", "questions"]
    for _ in range(2):
        published = CliRunner().invoke(app, command)
        assert published.exit_code == 0, published.output
        check_complete(server)


def test_rows_of_elsewhere_are_refused_in_a_sentence() -> None:
    output = LangSmithOutput("questions", retries=QUICK)
    with pytest.raises(GroundTruthError, match="no row of 'else' is an example of the LangSmith dataset 'questions'"):
        evaluatorq("else", data=[{"id": "x", "input": 1}], tasks=[str], outputs=[output])


SCRIPT = """
from tests.experiments.test_langsmith_experiments import run
run("killed")
"""


@pytest.mark.parametrize("done", [False, True])
def test_killed_while_sending_then_run_again_sends_once(server: LangSmithServer, tmp_path: Path, done: bool) -> None:
    server.hang_after(2, done=done)
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "script.py"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    while not server.hanging.wait(0.02) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.heal()
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 0
    check_complete(server)
