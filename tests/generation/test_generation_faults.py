"""What the service and its model do wrong: nothing is lost or paid twice, and the report says what happened."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import openai
import pytest

from rag_eval import GenerationOptions, RetryPolicy, TokenLevelSyntheticDatasetGenerator
from rag_eval.errors import RequestRefusedError, ServiceError
from tests.doubles.openai_chat import content, cut_off, no_choices, refusal
from tests.doubles.openai_server import Change, CutJSON, Disconnect, Fault, Hang, OpenAIServer, Status
from tests.generation.corpora import harbours

Make = Callable[..., TokenLevelSyntheticDatasetGenerator]
KEY = "sk-test-0123456789-abcdef"


def bodies(server: OpenAIServer) -> list[str]:
    return [str(request.body["messages"]) for request in server.requests]


@pytest.mark.parametrize(
    "fault",
    [
        Status(429, headers={"retry-after": "0.01"}),
        Status(503, headers={"retry-after-ms": "5"}),
        Hang(5),
        Disconnect(),
        CutJSON(),
        Change(lambda answer: {"error": {"message": "overloaded"}}),
    ],
    ids=str,
)
def test_failures_that_pass_lose_nothing(token_level: Make, server: OpenAIServer, tmp_path: Path, fault: Fault) -> None:
    expected = token_level(harbours(), workspace=tmp_path / "calm").generate(2, False)
    asked = len(server.requests)
    server.faults += [fault, fault]
    sdk = openai.OpenAI(base_url=server.base_url, api_key=KEY, timeout=0.5 if isinstance(fault, Hang) else 10)
    generator = TokenLevelSyntheticDatasetGenerator(
        sdk, harbours(), model="tiny", workspace=tmp_path / "stormy", retries=RetryPolicy(backoff=0.01), concurrency=2
    )
    assert generator.generate(2, False) == expected
    sdk.close()
    total = generator.report.total
    assert (total.fresh.calls, total.failed) == (4, 2)
    assert total.unsettled == (0 if isinstance(fault, Status) else 2)
    assert len(server.requests) - asked == 6


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (refusal("I cannot help with that"), "refused"),
        (cut_off(), "truncated"),
        (content('{"questions": [{"numb'), "schema mismatch"),
        (content('{"questions": [{"number": 1}]}'), "schema mismatch"),
        (content('{"answer": 42}'), "schema mismatch"),
        (content(""), "empty answer"),
        (no_choices(), "empty answer"),
        (Status(400, "no", code="content_filter"), "refused"),
    ],
    ids=str,
)
def test_answers_without_use_are_asked_again_and_kept(
    token_level: Make, server: OpenAIServer, fault: Fault, name: str
) -> None:
    server.faults += [fault, fault]
    generator = token_level(harbours("Storvåg"))
    truth = generator.generate(2, upload_to_langsmith=False)
    assert len(truth) == 2
    assert {kind: one.count for kind, one in generator.report.bad_answers.items()} == {name: 2}
    assert generator.report.total.fresh.calls == len(server.requests) == 3
    again = token_level(harbours("Storvåg"))
    assert again.generate(2, upload_to_langsmith=False) == truth
    assert (again.report.total.fresh.calls, again.report.total.cached.calls) == (0, 3)
    assert again.report.bad_answers == generator.report.bad_answers
    assert len(server.requests) == 3


def test_a_document_without_a_usable_answer_is_counted_and_the_others_go_on(
    token_level: Make, server: OpenAIServer
) -> None:
    usual = server.reply
    server.reply = lambda body: "no JSON" if "Lyngholm" in str(body["messages"]) else usual(body)
    generator = token_level(harbours(), options=GenerationOptions(attempts=2))
    truth = generator.generate(2, upload_to_langsmith=False)
    assert len(truth) == 6
    report = generator.report
    assert {reason: one.count for reason, one in report.dropped.items()} == {"no usable answer": 2}
    assert report.dropped["no usable answer"].examples[0] == "'lyngholm.md, question 1'"
    assert report.bad_answers["schema mismatch"].count == 2
    assert report.asked == report.kept + 2
    assert len(server.requests) == 5


def test_a_raised_limit_asks_again_for_what_was_cut_and_for_nothing_else(
    token_level: Make, server: OpenAIServer
) -> None:
    server.faults.append(cut_off())
    small = GenerationOptions(max_output_tokens=100, attempts=1)
    assert len(token_level(harbours(), options=small, concurrency=1).generate(1, False)) == 3
    assert server.requests[0].body["max_completion_tokens"] == 100
    assert len(token_level(harbours(), options=small).generate(1, False)) == 3
    assert len(server.requests) == 4
    large = small.model_copy(update={"max_output_tokens": 200})
    assert len(token_level(harbours(), options=large).generate(1, False)) == 4
    assert len(server.requests) == 5


def test_a_service_that_stays_away_ends_it_and_the_next_time_goes_on(token_level: Make, server: OpenAIServer) -> None:
    usual = server.reply

    def ending(body: object) -> str:
        if len(server.requests) >= 3:
            server.faults += [Status(500, "on fire")] * 20
        return usual(body)  # type: ignore[arg-type]

    server.reply = ending
    generator = token_level(harbours(), concurrency=1)
    with pytest.raises(ServiceError) as caught:
        generator.generate(2, upload_to_langsmith=False)
    assert str(caught.value) == (
        "tiny gave no answer about 'kvitøya.md': the service answered 500 ('on fire'), after 4 attempts; "
        "try again later; the answers so far are cached, run it again to continue"
    )
    total = generator.report.total
    assert (total.fresh.calls, total.failed, total.unsettled) == (3, 4, 0)
    assert total.fresh.cost
    answered = bodies(server)[:3]
    server.faults.clear()
    server.requests.clear()
    server.reply = usual
    again = token_level(harbours())
    assert len(again.generate(2, upload_to_langsmith=False)) == 8
    assert len(server.requests) == 1
    assert not set(bodies(server)) & set(answered)
    assert (again.report.total.fresh.calls, again.report.total.cached.calls) == (1, 3)


def test_after_an_error_for_good_nothing_more_is_asked_and_what_is_under_way_is_kept(
    token_level: Make, server: OpenAIServer
) -> None:
    server.seconds = 0.3
    server.faults += [Status(404, "no such model")]
    generator = token_level(harbours(), concurrency=2)
    with pytest.raises(RequestRefusedError, match=r"404 \('no such model'\); check the model"):
        generator.generate(1, upload_to_langsmith=False)
    asked = len(server.requests)
    assert asked in (2, 3)  # the other of the two may have been answered, and the next begun, just before the error
    assert generator.report.total.fresh.calls == asked - 1
    again = token_level(harbours())
    again.generate(1, upload_to_langsmith=False)
    assert (again.report.total.cached.calls, again.report.total.fresh.calls) == (asked - 1, 5 - asked)


def test_stopping_keeps_what_is_under_way(token_level: Make, server: OpenAIServer) -> None:
    server.seconds = 0.4
    generator = token_level(harbours(), concurrency=2)
    thread = threading.Thread(target=generator.generate, args=(1, False))
    thread.start()
    while len(server.requests) < 2:
        time.sleep(0.01)
    generator.asker.stop(10)
    assert generator.report.total.fresh.calls == 2
    thread.join()
    assert len(server.requests) == 2
    assert (generator.report.unasked, generator.report.kept) == (2, 2)


def test_a_server_that_was_never_there_is_not_asked_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    sdk = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY)
    generator = TokenLevelSyntheticDatasetGenerator(sdk, harbours(), model="tiny", workspace=tmp_path, concurrency=2)
    with pytest.raises(ServiceError, match=r"check base_url and the network"):
        generator.generate(2, False)
    sdk.close()
    total = generator.report.total
    assert total.unsettled == 0
    assert 1 <= total.failed <= 2
