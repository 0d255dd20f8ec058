from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from rag_eval import Corpus, Prices, RetryPolicy, TokenLevelSyntheticDatasetGenerator
from tests.doubles.openai_fixtures import KEY, server
from tests.doubles.openai_server import OpenAIServer

__all__ = ["KEY", "server"]

QUICK = RetryPolicy(max_retries=3, backoff=0.01)

Make = Callable[..., TokenLevelSyntheticDatasetGenerator]


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "LANGSMITH_API_KEY", "LANGSMITH_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client(server: OpenAIServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key=KEY, timeout=10) as sdk:
        yield sdk


@pytest.fixture
def token_level(client: openai.OpenAI, tmp_path: Path) -> Make:
    """Makes generators that keep their answers in one workspace."""

    def make(corpus: Corpus, **settings: Any) -> TokenLevelSyntheticDatasetGenerator:
        given = {"model": "tiny", "prices": Prices(input=1, output=4), "retries": QUICK, "workspace": tmp_path / "work"}
        return TokenLevelSyntheticDatasetGenerator(client, corpus, **{**given, **settings})

    return make
