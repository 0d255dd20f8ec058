"""LangSmith when it is slow, down, full of nonsense, or will not have the key."""

import logging
from collections.abc import Iterator

import pytest
from langsmith import Client

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.retry import RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService
from rag_eval.services.langsmith_datasets import find_dataset
from tests.doubles.langsmith_server import KEY, LangSmithServer
from tests.doubles.loopback import refused_url

ONE_RETRY = RetryPolicy(max_retries=1, backoff=0.001, give_up_after=2.0)


@pytest.fixture
def no_trace_of_the_key(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG):
        yield
    # The SDK would show the beginning and the end of it.
    assert KEY not in caplog.text
    assert KEY[:5] not in caplog.text


@pytest.mark.parametrize("status", [429, 500, 502, 503, 408, None])
def test_what_passes_is_asked_again(server: LangSmithServer, service: LangSmithService, status: int | None) -> None:
    server.fail("GET", "/datasets", status=status, retry_after=0.001, times=2)
    assert find_dataset(service, "spans") is None
    assert server.calls().count("GET /datasets") == 3


@pytest.mark.usefixtures("no_trace_of_the_key")
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said_at_once_and_not_shown(
    server: LangSmithServer, service: LangSmithService, status: int
) -> None:
    server.fail("GET", "/datasets", status=status, times=9)
    with pytest.raises(ServiceError, match=rf"'spans' could not be read \(it refused the key, {status}\)") as caught:
        find_dataset(service, "spans")
    assert not isinstance(caught.value, RequestRefusedError)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert server.calls().count("GET /datasets") == 1


def test_what_is_refused_for_itself_is_told_apart(server: LangSmithServer, service: LangSmithService) -> None:
    server.fail("GET", "/datasets", status=422)
    with pytest.raises(RequestRefusedError, match="it answered 422"):
        find_dataset(service, "spans")


@pytest.mark.usefixtures("no_trace_of_the_key")
def test_a_host_that_hangs_or_is_not_there_is_given_up(
    server: LangSmithServer, settings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = LangSmithService.connect(ONE_RETRY, timeout_seconds=0.2)
    server.fail("GET", "/datasets", hang=True, times=9)
    with pytest.raises(ServiceError, match=r"it did not answer in time, after 2 attempts"):
        find_dataset(service, "spans")
    service.close()
    monkeypatch.setenv("LANGSMITH_ENDPOINT", refused_url())
    with pytest.raises(ServiceError, match=r"LangSmith cannot be used \(it cannot be reached, after 2 attempts\)"):
        LangSmithService.connect(ONE_RETRY)


def test_a_long_wait_that_the_service_asks_for_is_not_waited_out(
    server: LangSmithServer, service: LangSmithService
) -> None:
    server.fail("GET", "/datasets", status=429, retry_after=3600)
    with pytest.raises(
        ServiceError, match=r"it answered 429, after 1 attempt \(waiting 3.6e\+03 s more would exceed 5 s"
    ):
        find_dataset(service, "spans")


@pytest.mark.parametrize("nonsense", [b"<html>Sign in</html>", b"[]", b'"text"', b"{}"])
def test_nonsense_is_no_answer(server: LangSmithServer, service: LangSmithService, nonsense: bytes) -> None:
    server.answer_with("POST", "/sessions", nonsense)
    with pytest.raises(ServiceError, match=r"no experiment \(its answer is not valid"):
        service.ask("no experiment", lambda client: client.create_project("experiment"))


def test_an_old_server_without_info_is_used(server: LangSmithServer, settings: None) -> None:
    server.fail("GET", "/info", status=404)
    service = LangSmithService.connect(ONE_RETRY)
    assert find_dataset(service, "spans") is None
    service.close()
    server.answer_with("GET", "/info", b"[]")
    with pytest.raises(ServiceError, match="is not valid"):
        LangSmithService.connect(ONE_RETRY)


@pytest.mark.parametrize("key", ["", "  ", "lsv2 secret", "lsv2\nsecret"])
def test_a_key_that_is_none_is_not_used_and_not_shown(
    server: LangSmithServer, settings: None, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", key)
    with pytest.raises(ConfigurationError, match="LANGSMITH_API_KEY") as caught:
        LangSmithService.connect()
    assert "secret" not in str(caught.value)
    assert server.requests == []


def test_a_client_of_the_users_own_is_asked_once(server: LangSmithServer, client: Client) -> None:
    server.fail("GET", "/datasets", status=401, times=9)
    with pytest.raises(ServiceError, match="refused the key"):
        find_dataset(LangSmithService(client), "spans")
    assert server.calls().count("GET /datasets") == 1
