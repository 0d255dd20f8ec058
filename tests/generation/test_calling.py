"""Calls of real and of minimal clients: what is sent, what is read, and what becomes of failures."""

import json
import logging
import socket
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.generation.questions import Verdict
from rag_eval.llm.chat import (
    Answer,
    ChatRequest,
    ChatService,
    call,
    check_client,
    is_openai,
    response_format,
    server_of,
    without_retries,
)
from rag_eval.llm.client import CallFailure
from tests.doubles.openai_chat import content, no_choices, refusal
from tests.doubles.openai_server import Change, CutJSON, Disconnect, Fault, Hang, OpenAIServer, Status

KEY = "sk-test-0123456789-abcdef"


def request(**others: Any) -> ChatRequest:
    given = {"server": "s", "model": "tiny", "system": "rules", "user": "text", "settings": {}, **others}
    return ChatRequest(response_format=response_format(Verdict), **given)


def client_of(create: Any) -> Any:
    return SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))


def told(text: str | None, **usage: int) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}


def test_a_minimal_client_gets_three_arguments() -> None:
    def create(model: str, messages: list[dict[str, str]], response_format: dict[str, Any]) -> Any:
        assert messages == [{"role": "system", "content": "rules"}, {"role": "user", "content": "text"}]
        assert response_format["json_schema"]["name"] == "Verdict"
        return told(model, prompt_tokens=3, completion_tokens=4)

    answer = call(client_of(create), request(), 0)
    assert answer == Answer(content="tiny", refusal=None, finish_reason="stop", input_tokens=3, output_tokens=4)


def test_settings_are_sent_with_a_new_seed_per_attempt() -> None:
    sent: list[dict[str, Any]] = []
    client = client_of(lambda **arguments: sent.append(arguments) or told("x"))
    asked = request(settings={"temperature": 0.5, "seed": 7}, max_output_tokens=99)
    call(client, asked, 0)
    call(client, asked, 2)
    assert [
        (arguments["seed"], arguments["temperature"], arguments["max_completion_tokens"]) for arguments in sent
    ] == [
        (7, 0.5, 99),
        (9, 0.5, 99),
    ]
    assert set(sent[0]) == {"model", "messages", "response_format", "seed", "temperature", "max_completion_tokens"}


def test_the_digest_covers_what_determines_the_answer() -> None:
    first = request().digest(0)
    for other in (
        request(server="t"),
        request(model="huge"),
        request(system="other"),
        request(user="other"),
        request(settings={"seed": 0}),
    ):
        assert other.digest(0) != first
    assert request().digest(1) != first
    assert request(max_output_tokens=5).digest(0) == first


def test_without_usage_the_tokens_are_counted_here() -> None:
    answer = call(client_of(lambda **_: told("one two three")), request(), 0)
    assert isinstance(answer, Answer)
    assert answer.output_tokens == 3
    assert answer.input_tokens == request().input_tokens > 20


def test_lone_surrogates_in_answers_are_replaced() -> None:
    answer = call(client_of(lambda **_: told("a\ud800b")), request(), 0)
    assert isinstance(answer, Answer)
    assert answer.content == "a?b"


@pytest.mark.parametrize("bad", [None, "x", openai.OpenAI, SimpleNamespace(chat=None), client_of(None)])
def test_other_objects_are_not_clients(bad: object) -> None:
    with pytest.raises(ConfigurationError, match="is not a chat client"):
        check_client(bad)


def test_an_asynchronous_client_answers_as_a_sync_one_does(server: OpenAIServer) -> None:
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY, max_retries=0)
    expected = call(openai.OpenAI(base_url=server.base_url, api_key=KEY), request(), 0)
    assert [call(client, request(), 0) for _ in range(2)] == [expected] * 2
    failed = call(openai.AsyncOpenAI(base_url="http://127.0.0.1:9", api_key=KEY, max_retries=0), request(), 0)
    assert isinstance(failed, CallFailure)
    assert failed.may_pass


def test_other_errors_of_a_client_are_not_hidden() -> None:
    def create(**_: Any) -> Any:
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        call(client_of(create), request(), 0)


@pytest.mark.parametrize(
    ("fault", "reason", "may_pass", "maybe_billed"),
    [
        (Status(429, "slow down", headers={"retry-after": "0.2"}), "429 ('slow down')", True, False),
        (Status(429, "pay first", code="insufficient_quota"), "429 ('pay first')", False, False),
        (Status(500), "500", True, False),
        (Status(502, body=b"<html>"), "502", True, False),
        (Status(400, "no such parameter"), "400 ('no such parameter')", False, False),
        (Status(404, f"no model for {KEY}"), "404 ('no model for ***')", False, False),
        (Status(401, f"bad key {KEY}"), "refused the key (401)", False, False),
        (Hang(5), "did not answer in time", True, True),
        (Disconnect(), "the connection to the service failed", True, True),
        (Disconnect(keep=0.5), "the connection to the service failed", True, True),
        (CutJSON(), "not JSON", True, True),
        (Change(lambda answer: {"error": {"message": KEY}}), "without choices", True, True),
        (Change(lambda answer: []), "without choices", True, True),  # type: ignore[arg-type, return-value]
    ],
    ids=str,
)
def test_failures_of_the_service(
    server: OpenAIServer,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
    reason: str,
    may_pass: bool,
    maybe_billed: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.reply = lambda body: "{}"
    server.faults.append(fault)
    sdk = openai.OpenAI(base_url=server.base_url, api_key=KEY, timeout=0.5 if isinstance(fault, Hang) else 10)
    failure = call(without_retries(sdk), request(), 0)
    sdk.close()
    assert isinstance(failure, CallFailure)
    assert reason in failure.reason
    assert (failure.may_pass, failure.maybe_billed) == (may_pass, maybe_billed)
    assert failure.retry_after == (0.2 if "slow" in reason else None)
    assert len(server.requests) == 1, "the SDK asked again by itself"
    assert KEY not in failure.reason + failure.advice + caplog.text


@pytest.mark.parametrize("code", ["content_filter", "context_length_exceeded"])
def test_a_rejected_text_is_a_refusal(server: OpenAIServer, client: openai.OpenAI, code: str) -> None:
    server.faults.append(Status(400, "not this text", code=code))
    answer = call(client, request(max_output_tokens=20), 0)
    assert isinstance(answer, Answer)
    assert (answer.refusal, answer.input_tokens, answer.max_output_tokens) == (code, 0, 20)


def test_refusals_and_empty_answers_are_answers(server: OpenAIServer, client: openai.OpenAI) -> None:
    server.reply = lambda body: "unused"
    server.faults += [refusal("I will not"), no_choices(), content(None)]
    answers = [call(client, request(), 0) for _ in range(3)]
    assert all(isinstance(answer, Answer) for answer in answers)
    assert [(answer.refusal, answer.content) for answer in answers if isinstance(answer, Answer)] == [
        ("I will not", None),
        (None, None),
        (None, None),
    ]


def test_a_service_needs_its_key_at_the_first_request(server: OpenAIServer) -> None:
    service = ChatService()
    check_client(service)
    assert is_openai(service)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        call(service, request(), 0)


def test_a_service_by_address_asks_with_the_key_of_the_environment(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.reply = lambda body: "hello"
    service = ChatService(server.base_url, timeout=0.5)
    assert server_of(service) == server.host
    assert not is_openai(service)
    answer = call(service, request(), 0)
    assert isinstance(answer, Answer)
    assert answer.content == "hello"
    server.faults.append(Hang(5))
    assert isinstance(call(service, request(), 0), CallFailure)
    server.faults.append(Status(400, f"{KEY} is odd"))
    failure = call(service, request(), 0)
    assert isinstance(failure, CallFailure)
    assert KEY not in json.dumps(failure.reason)


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://api.openai.com/v1/", "api.openai.com"),
        ("http://localhost:8000/v1", "localhost:8000"),
        ("http://user:secret@host/llm/v1", "host/llm"),
    ],
)
def test_servers_are_identified_without_credentials(url: str, server: str) -> None:
    assert server_of(SimpleNamespace(base_url=url)) == server
    assert server_of(object()) == ""


def test_an_unreachable_server_costs_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    sdk = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, timeout=10)
    failure = call(without_retries(sdk), request(), 0)
    sdk.close()
    assert isinstance(failure, CallFailure)
    assert (failure.may_pass, failure.maybe_billed, failure.is_unreached) == (True, False, True)
    assert failure.advice == "check base_url and the network"
