"""Experiments to LangSmith: the real SDK, real HTTP, and a service with faults."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rag_eval.errors import GroundTruthError, RequestRefusedError, ServiceError
from rag_eval.retry import ONCE, RetryPolicy
from rag_eval.services import langsmith_experiments
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import push_truth, read_examples
from rag_eval.services.langsmith_experiments import (
    ExperimentUpload,
    RowOutcome,
    matched_rows,
    publish_experiment,
    service_id,
)
from rag_eval.types.evidence import TokenLevelGroundTruth
from tests.doubles.langsmith_server import KEY, LangSmithServer
from tests.doubles.langsmith_truth import UGLY, spans_of, token_level
from tests.services.conftest import QUICK

AT = datetime(2025, 11, 16, 6, 0, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("settings")


def outcome(item: TokenLevelGroundTruth, error: str | None) -> RowOutcome:
    if error is not None:
        return RowOutcome(item.query.id, item.query.text, error=error)
    spans = [{"doc_id": "a.md", "start": 0, "end": len(UGLY), "text": UGLY}]
    scores = {} if item.unanswerable else {"span_recall@5": 1 / 3, "span_iou@5": 0.0}
    return RowOutcome(item.query.id, item.query.text, {"retrieved_spans": spans}, scores)


def publish(
    truth: list[TokenLevelGroundTruth],
    name: str = "markdown, bm25",
    error: str | None = None,
    patience: RetryPolicy = QUICK,
    seconds: float = 20.0,
) -> str:
    """Push the ground truth and publish an experiment of a run, as a process that does nothing else."""
    with closing(LangSmithService.connect(patience, timeout_seconds=seconds)) as service:
        push_truth(service, "spans", truth, only_if_new=True)
        rows = matched_rows(read_examples(service, "spans"), [outcome(item, error) for item in truth], "spans")
        upload = ExperimentUpload(service_id("run-1", name, "spans"), name, {"run": "run-1"}, rows, AT)
        return publish_experiment(service, upload)


def counts(server: LangSmithServer) -> tuple[int, int, int]:
    return len(experiments(server)), len(server.api.runs), len(server.api.feedback)


def experiments(server: LangSmithServer) -> list[dict[str, Any]]:
    return [session for session in server.api.sessions.values() if session["reference_dataset_id"]]


def test_a_run_becomes_an_experiment_on_a_dataset_that_is_created_for_it(server: LangSmithServer) -> None:
    url = publish(token_level())
    (session,) = experiments(server)
    assert session["extra"]["metadata"] == {"run": "run-1"}
    assert session["end_time"]
    assert url.endswith(f"/datasets/{session['reference_dataset_id']}/compare?selectedSessions={session['id']}")
    runs = {run["inputs"]["query"]: run for run in server.api.runs.values()}
    assert runs.keys() == {"both?", UGLY, "who?"}
    assert runs[UGLY]["outputs"]["retrieved_spans"][0]["text"] == UGLY
    assert {run["session_id"] for run in runs.values()} == {session["id"]}
    assert {run["reference_example_id"] for run in runs.values()} == set(server.api.examples)
    assert server.scores("span_recall@5") == [0.3333, 0.3333]
    assert server.scores("span_iou@5") == [0, 0]
    assert {score["run_id"] for score in server.api.feedback.values()} == {runs["both?"]["id"], runs[UGLY]["id"]}


def test_a_failed_configuration_is_recorded_as_failed_and_not_as_0(server: LangSmithServer) -> None:
    publish(token_level(), error=f"OPENAI_API_KEY is not set {UGLY}")
    assert {run["error"] for run in server.api.runs.values()} == {f"OPENAI_API_KEY is not set {UGLY}"}
    assert not any("outputs" in run for run in server.api.runs.values())
    assert server.api.feedback == {}


def test_publishing_again_creates_nothing_twice(server: LangSmithServer) -> None:
    assert publish(token_level()) == publish(token_level())
    assert counts(server) == (1, 3, 4)
    publish(token_level(), "another")
    assert counts(server) == (2, 6, 8)


@pytest.mark.parametrize("fault", [{"status": 429, "retry_after": 0.001}, {"status": 500}, {}])
@pytest.mark.parametrize(
    "path", ["/datasets", r"/v1/platform/datasets/.*", "/sessions", "/runs/multipart", r"/sessions/.*"]
)
def test_faults_that_pass_lose_and_double_nothing(server: LangSmithServer, path: str, fault: dict[str, Any]) -> None:
    server.fail("PATCH" if path == r"/sessions/.*" else "POST", path, times=2, **fault)
    publish(token_level())
    assert (counts(server), len(server.api.examples)) == ((1, 3, 4), 3)


@pytest.mark.parametrize("path", ["/sessions", "/runs/multipart"])
def test_answers_that_got_lost_double_nothing(server: LangSmithServer, path: str) -> None:
    server.lose_answer("POST", path)
    publish(token_level())
    assert counts(server) == (1, 3, 4)


def test_a_service_that_hangs_is_given_up_and_the_experiment_completed_later(server: LangSmithServer) -> None:
    server.hang_after(3, done=True)
    with pytest.raises(ServiceError, match="it did not answer in time"):
        publish(token_level(), patience=ONCE, seconds=0.3)
    server.heal()
    publish(token_level())
    assert counts(server) == (1, 3, 4)


@pytest.mark.parametrize("status", [401, 403, 500, 422])
def test_what_fails_for_good_in_the_middle_is_completed_later(
    server: LangSmithServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(langsmith_experiments, "REQUEST_RECORDS", 1)
    server.fail_after(4, "POST", "/runs/multipart", status)
    with pytest.raises(RequestRefusedError if status == 422 else ServiceError, match=str(status)) as raised:
        publish(token_level())
    assert KEY not in str(raised.value)
    assert counts(server) == (1, 3, 1)
    server.heal()
    publish(token_level())
    assert counts(server) == (1, 3, 4)


def test_a_dataset_without_any_query_of_the_run_is_refused(server: LangSmithServer) -> None:
    publish(spans_of("one?"))
    with pytest.raises(GroundTruthError, match="push the ground truth of the run, or name another dataset"):
        publish(spans_of("two?"))


# Imports once, then publishes in a child of its own for every line that it reads.
PUBLISHER = """
import os, sys
import langsmith.client
from rag_eval.services import langsmith_datasets, langsmith_experiments
from tests.services.test_experiment_upload import publish, questions

langsmith_experiments.REQUEST_RECORDS = langsmith_datasets.BATCH = 5
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        publish(questions())
        os.write(1, b"complete\\n")
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


def questions() -> list[TokenLevelGroundTruth]:
    return spans_of(*(f"question {number}?" for number in range(12)))


def test_killed_at_any_point_and_run_again_nothing_is_lost_and_nothing_doubled(server: LangSmithServer) -> None:
    killed, line = 0, ""
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as publisher:
        assert publisher.stdin is not None
        assert publisher.stdout is not None
        while line != "complete\n":
            # One request further each time, which is done or is not when the process is killed in it.
            server.hang_after(killed, done=killed % 2 == 0)
            publisher.stdin.write("again\n")
            publisher.stdin.flush()
            child = int(publisher.stdout.readline())
            while not server.hanging.wait(0.02) and Path(f"/proc/{child}").exists():
                pass
            assert killed < 60, "it never ends"
            if server.hanging.is_set():
                os.kill(child, signal.SIGKILL)
                killed += 1
            line = publisher.stdout.readline()
            server.heal()
        publisher.stdin.close()
    assert killed > 8
    assert (len(server.api.datasets), len(server.api.examples)) == (1, 12)
    assert counts(server) == (1, 12, 24)
    # A run that is sent again keeps its time, by which LangSmith identifies it too.
    assert {run["start_time"] for run in server.api.runs.values()} == {AT.isoformat()}
