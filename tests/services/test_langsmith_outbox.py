"""Runs and ground truth through the outbox to LangSmith: the real SDK, real HTTP, and a service with faults."""

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rag_eval.retry import ONCE
from rag_eval.services import langsmith_outbox
from rag_eval.services.langsmith_outbox import (
    LANGSMITH_CHANNEL,
    ExperimentPayload,
    LangSmithSender,
    RowOutcome,
    experiment_key,
    put_experiment,
    put_truth,
)
from rag_eval.services.outbox import Delivery, Outbox
from rag_eval.types.evidence import TokenLevelGroundTruth
from tests.doubles.langsmith_server import KEY, LangSmithServer
from tests.doubles.langsmith_truth import UGLY, chunk_level, spans_of, token_level
from tests.services.conftest import QUICK

AT = datetime(2025, 11, 16, 6, 0, tzinfo=UTC)


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox")


def experiment(
    truth: list[TokenLevelGroundTruth], configuration: str = "markdown, bm25", error: str | None = None
) -> ExperimentPayload:
    queries = [
        RowOutcome(id=one.query.id, text=one.query.text, error=error)
        if error
        else RowOutcome(
            id=one.query.id,
            text=one.query.text,
            outputs={"retrieved_spans": [{"doc_id": "a.md", "start": 0, "end": len(UGLY), "text": UGLY}]},
            scores={} if one.unanswerable else {"span_recall@5": 1 / 3, "span_iou@5": 0.0},
        )
        for one in truth
    ]
    return ExperimentPayload(
        dataset="spans",
        name=configuration,
        run="run-1",
        at=AT,
        metadata={"run": "run-1"},
        rows=queries,
        evaluation_type="token-level",
    )


def put(outbox: Outbox, payload: ExperimentPayload) -> None:
    put_experiment(outbox, experiment_key(payload.run, payload.name, payload.dataset), payload)


def deliver(outbox: Outbox) -> list[Delivery]:
    sender = LangSmithSender(QUICK)
    try:
        return outbox.deliver({LANGSMITH_CHANNEL: sender})
    finally:
        sender.close()


def experiments(server: LangSmithServer) -> list[dict[str, Any]]:
    return [one for one in server.api.sessions.values() if one["reference_dataset_id"]]


def test_a_run_becomes_an_experiment_on_a_dataset_that_is_made_for_it(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level()))
    truth, run = deliver(outbox)
    assert (truth.state, run.state) == ("sent", "sent")
    (session,) = experiments(server)
    assert session["extra"]["metadata"] == {"run": "run-1"}
    assert session["end_time"]
    assert run.receipt is not None
    assert run.receipt.details["url"].endswith(
        f"/datasets/{session['reference_dataset_id']}/compare?selectedSessions={session['id']}"
    )
    assert run.receipt.details["absent"] == 0
    runs = {one["inputs"]["query"]: one for one in server.api.runs.values()}
    assert runs.keys() == {"both?", UGLY, "who?"}
    assert runs[UGLY]["outputs"]["retrieved_spans"][0]["text"] == UGLY
    assert {one["session_id"] for one in runs.values()} == {session["id"]}
    assert {one["reference_example_id"] for one in runs.values()} == set(server.api.examples)
    assert server.scores("span_recall@5") == [0.3333, 0.3333]
    assert server.scores("span_iou@5") == [0, 0]
    assert {one["run_id"] for one in server.api.feedback.values()} == {runs["both?"]["id"], runs[UGLY]["id"]}


def test_a_failed_configuration_is_recorded_as_failed_and_not_as_0(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level(), error=f"OPENAI_API_KEY is not set {UGLY}"))
    assert [one.state for one in deliver(outbox)] == ["sent", "sent"]
    assert {one["error"] for one in server.api.runs.values()} == {f"OPENAI_API_KEY is not set {UGLY}"}
    assert not any("outputs" in one for one in server.api.runs.values())
    assert server.api.feedback == {}


def test_without_a_key_everything_waits_and_is_sent_later(
    server: LangSmithServer, settings: None, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANGSMITH_API_KEY")
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level()))
    waiting = deliver(outbox)
    assert [one.state for one in waiting] == ["waiting", "waiting"]
    assert "there is none: set LANGSMITH_API_KEY" in str(waiting[1].reason)
    assert server.requests == []
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    assert [one.state for one in deliver(outbox)] == ["sent", "sent"]
    assert deliver(outbox) == []
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "localhost:1984")
    put(outbox, experiment(token_level(), "other"))
    (waits,) = deliver(outbox)
    assert "'localhost:1984' is no web address" in str(waits.reason)


@pytest.mark.parametrize("fault", [{"status": 429, "retry_after": 0.001}, {"status": 500}, {}])
@pytest.mark.parametrize(
    "path", ["/datasets", r"/v1/platform/datasets/.*", "/sessions", "/runs/multipart", r"/sessions/.*"]
)
def test_faults_that_pass_lose_and_double_nothing(
    server: LangSmithServer, settings: None, outbox: Outbox, path: str, fault: dict[str, Any]
) -> None:
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level()))
    server.fail("PATCH" if path == r"/sessions/.*" else "POST", path, times=2, **fault)
    assert [one.state for one in deliver(outbox)] == ["sent", "sent"]
    counts = (len(experiments(server)), len(server.api.examples), len(server.api.runs), len(server.api.feedback))
    assert counts == (1, 3, 3, 4)


@pytest.mark.parametrize("path", ["/sessions", "/runs/multipart"])
def test_answers_that_got_lost_double_nothing(
    server: LangSmithServer, settings: None, outbox: Outbox, path: str
) -> None:
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level()))
    server.lose_answer("POST", path)
    assert [one.state for one in deliver(outbox)] == ["sent", "sent"]
    assert (len(experiments(server)), len(server.api.runs), len(server.api.feedback)) == (1, 3, 4)


def test_a_service_that_hangs_in_the_middle_is_given_up_and_completed_later(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level()))
    put(outbox, experiment(token_level(), "another"))
    server.hang_after(3, done=True)
    sender = LangSmithSender(ONCE, timeout_seconds=0.3)
    _, hung, untried = outbox.deliver({LANGSMITH_CHANNEL: sender})
    sender.close()
    assert "it did not answer in time" in str(hung.reason)
    assert untried.reason == hung.reason
    server.heal()
    assert [one.state for one in deliver(outbox)] == ["sent", "sent"]
    assert (len(experiments(server)), len(server.api.runs), len(server.api.feedback)) == (2, 6, 8)


@pytest.mark.parametrize("status", [401, 403, 500, 422])
def test_what_fails_for_good_in_the_middle_is_completed_later(
    server: LangSmithServer, settings: None, outbox: Outbox, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(langsmith_outbox, "REQUEST_RECORDS", 1)
    put_truth(outbox, "spans", token_level(), only_if_new=True)
    put(outbox, experiment(token_level()))
    server.fail_after(4, "POST", "/runs/multipart", status)
    _, failed = deliver(outbox)
    assert failed.state == "waiting"
    assert str(status) in str(failed.reason)
    assert KEY not in str(failed.reason)
    assert (len(server.api.runs), len(server.api.feedback)) == (3, 1)
    server.heal()
    (sent,) = deliver(outbox)
    assert sent.state == "sent"
    assert (len(experiments(server)), len(server.api.runs), len(server.api.feedback)) == (1, 3, 4)


def test_a_dataset_that_does_not_fit_is_named_and_holds_up_nothing_else(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    put_truth(outbox, "spans", chunk_level())
    put(outbox, experiment(token_level()))
    put_truth(outbox, "others", spans_of("one?"))
    states = [(one.state, one.reason) for one in deliver(outbox)]
    assert [state for state, _ in states] == ["sent", "waiting", "sent"]
    assert "'spans' holds chunk-level ground truth" in str(states[1][1])


def test_queries_that_the_dataset_lacks_are_counted_and_none_is_an_error(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    one, two, three = spans_of("one?", "two?", "three?")
    put_truth(outbox, "spans", [one])
    put(outbox, experiment([one, two], "some"))
    put(outbox, experiment([two, three], "none"))
    _, some, none = deliver(outbox)
    assert some.receipt is not None
    assert some.receipt.details["absent"] == 1
    assert (none.state, "push the ground truth of the run" in str(none.reason)) == ("waiting", True)


def test_newer_ground_truth_takes_the_place_of_what_still_waits(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    one, two = spans_of("one?", "two?")
    put_truth(outbox, "spans", [one])
    put_truth(outbox, "others", [one])
    put_truth(outbox, "spans", [one, two])
    put_truth(outbox, "spans", [one, two])
    assert len(outbox.waiting()) == 2
    deliver(outbox)
    assert sorted(one["inputs"]["query"] for one in server.api.examples.values()) == ["one?", "one?", "two?"]


def test_a_message_of_another_version_waits_and_is_named(settings: None, outbox: Outbox) -> None:
    message = outbox.put(LANGSMITH_CHANNEL, "k", {"kind": "letter"})
    (delivery,) = deliver(outbox)
    assert delivery.state == "waiting"
    assert str(message.path) in str(delivery.reason)


# Imports once, then publishes in a child of its own for every line that it reads.
PUBLISHER = """
import os, sys
from pathlib import Path
import langsmith.client
from rag_eval.services import langsmith_datasets, langsmith_outbox
from rag_eval.services.langsmith_outbox import LANGSMITH_CHANNEL, LangSmithSender
from rag_eval.services.outbox import Outbox

langsmith_outbox.REQUEST_RECORDS = langsmith_datasets.BATCH = 5
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        Outbox(Path(sys.argv[1])).deliver({LANGSMITH_CHANNEL: LangSmithSender()})
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""


def test_killed_at_any_point_and_run_again_nothing_is_lost_and_nothing_doubled(
    server: LangSmithServer, settings: None, outbox: Outbox
) -> None:
    truth = spans_of(*(f"question {number}?" for number in range(12)))
    put_truth(outbox, "spans", truth, only_if_new=True)
    for name in ("first", "second"):
        put(outbox, experiment(truth, name))
    killed = 0
    command = [sys.executable, "-c", PUBLISHER, str(outbox.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as publisher:
        assert publisher.stdin is not None
        assert publisher.stdout is not None
        while outbox.waiting():
            # One request further each time, which is done or is not when the process is killed in it.
            server.hang_after(killed, done=killed % 2 == 0)
            publisher.stdin.write("again\n")
            publisher.stdin.flush()
            child = int(publisher.stdout.readline())
            while not server.hanging.wait(0.02) and outbox.waiting():
                assert killed < 60, "it never ends"
            if server.hanging.is_set():
                os.kill(child, signal.SIGKILL)
                killed += 1
            assert publisher.stdout.readline() == "ended\n"
            server.heal()
        publisher.stdin.close()
    assert killed > 15
    assert (len(server.api.datasets), len(server.api.examples), len(experiments(server))) == (1, 12, 2)
    assert (len(server.api.runs), len(server.api.feedback)) == (24, 48)
    assert {one["session_id"] for one in server.api.runs.values()} == {one["id"] for one in experiments(server)}
    # A run that is sent again keeps its time, by which LangSmith knows it too.
    assert {run["start_time"] for run in server.api.runs.values()} == {AT.isoformat()}
