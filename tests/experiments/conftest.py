from pathlib import Path

import pytest

from tests.doubles.langsmith_fixtures import client, no_langsmith_settings, server

__all__ = ["client", "no_langsmith_settings", "server"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own, without the keys of services."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORQ_API_KEY", raising=False)
