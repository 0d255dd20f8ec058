"""The OpenAI double of the tests of embedders."""

from collections.abc import Iterator

import pytest

from tests.doubles.openai_server import OpenAIServer

KEY = "sk-test-0123456789-abcdef"


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(api_key=KEY) as running:
        yield running
