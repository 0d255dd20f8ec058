"""Clients of LangSmith."""

import logging

import pytest
from langsmith import evaluate

from rag_eval.errors import ConfigurationError
from rag_eval.evaluation.metrics import ChunkLevelRecall, get_langsmith_evaluators
from rag_eval.services.langsmith_client import langsmith_client
from tests.doubles.langsmith_fixtures import closed
from tests.doubles.langsmith_sample import retrieve, uploaded_dataset
from tests.doubles.langsmith_server import KEY, LangSmithServer


def test_a_client_asks_for_a_key_and_a_web_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="LANGSMITH_API_KEY"):
        langsmith_client()
    with pytest.raises(ConfigurationError, match=r"'smith\.example'"):
        langsmith_client("secret-key", "smith.example")
    for url in ("ftp://user:hunter2@smith.example/x?key=hunter2", "user:hunter2@smith.example"):
        with pytest.raises(ConfigurationError, match=r"at 'smith\.example' is not a web address") as caught:
            langsmith_client("secret-key", url)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="timeout"):
        langsmith_client("secret-key", timeout_seconds=0)


def test_key_and_endpoint_come_from_the_environment_and_the_key_is_not_shown(
    server: LangSmithServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url + "/")
    with caplog.at_level(logging.DEBUG):
        client = langsmith_client()
        assert not client.has_dataset(dataset_name="none")
    closed(client)
    assert KEY not in caplog.text + repr(client)


def test_uploads_that_fail_in_the_background_are_told(server: LangSmithServer) -> None:
    told: list[Exception] = []
    client = langsmith_client(KEY, server.url, tracing_error_callback=told.append)
    name = uploaded_dataset(client)
    server.fail("POST", "/runs/multipart", status=422, times=99)
    evaluate(retrieve, data=name, evaluators=get_langsmith_evaluators([ChunkLevelRecall()], 2), client=client)
    closed(client)
    assert told
    assert server.api.feedback == {}
