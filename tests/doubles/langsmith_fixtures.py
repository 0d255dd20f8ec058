"""Fixtures for tests against the double of LangSmith: import them into a conftest."""

import threading
import time
from collections.abc import Iterator

import pytest
from langsmith import Client
from langsmith import utils as langsmith_utils

from rag_eval.services.langsmith_client import langsmith_client
from tests.doubles.langsmith_server import KEY, LangSmithServer


@pytest.fixture(autouse=True)
def no_langsmith_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ENDPOINT", "TRACING", "TRACING_V2", "PROJECT", "RUNS_ENDPOINTS"):
        for prefix in ("LANGSMITH_", "LANGCHAIN_"):
            monkeypatch.delenv(prefix + name, raising=False)
    langsmith_utils.get_env_var.cache_clear()


@pytest.fixture
def server() -> Iterator[LangSmithServer]:
    with LangSmithServer() as server:
        yield server


def closed(client: Client) -> None:
    """Close a client and wait for its threads to end."""
    client.close(timeout=20)
    deadline = time.monotonic() + 20
    while any("tracing_control" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the client's threads are still there"
        time.sleep(0.01)


@pytest.fixture
def client(server: LangSmithServer) -> Iterator[Client]:
    client = langsmith_client(KEY, server.url)
    yield client
    closed(client)
