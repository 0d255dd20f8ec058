from collections.abc import Iterator

import pytest

from rag_eval.retry import RetryPolicy
from rag_eval.services.langsmith_client import LangSmithService
from tests.doubles.langsmith_fixtures import client, no_langsmith_settings, server
from tests.doubles.langsmith_server import KEY, LangSmithServer

__all__ = ["client", "no_langsmith_settings", "server"]

QUICK = RetryPolicy(max_retries=3, backoff=0.001, give_up_after=5.0)


@pytest.fixture
def settings(server: LangSmithServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of somebody who uses the double."""
    monkeypatch.setenv("LANGSMITH_API_KEY", KEY)
    monkeypatch.setenv("LANGSMITH_ENDPOINT", server.url)


@pytest.fixture
def service(settings: None) -> Iterator[LangSmithService]:
    service = LangSmithService.connect(QUICK)
    yield service
    service.close()
