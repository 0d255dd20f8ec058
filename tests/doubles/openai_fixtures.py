"""Fixtures for tests against the double of OpenAI's API: import them into a conftest."""

from collections.abc import Iterator

import pytest

from tests.doubles.openai_chat import writer
from tests.doubles.openai_server import OpenAIServer

KEY = "sk-test-0123456789-abcdef"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A service whose model writes questions that fit."""
    with OpenAIServer(api_key=KEY) as running:
        running.reply = writer()
        yield running
