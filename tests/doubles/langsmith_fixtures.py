"""Fixtures for tests against the double of LangSmith: import them into a conftest."""

import threading
import time
from collections.abc import Iterator

import pytest
from langsmith import Client
from langsmith import utils as langsmith_utils
from urllib3.util import Retry

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


def offline_client() -> Client:
    """A client for ``evaluate`` or ``aevaluate`` with ``upload_results=False``: no key, no threads, no connection."""
    return Client(
        # Nothing listens on the discard port of this machine: a call that slips through is refused at once.
        api_url="http://127.0.0.1:9",
        api_key="offline",
        info={},
        auto_batch_tracing=False,
        tracing_sampling_rate=0.0,  # aevaluate would send the target's runs even so
        retry_config=Retry(0),
        disable_prompt_cache=True,
    )


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
