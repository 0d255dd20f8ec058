from pathlib import Path
from typing import Any

import pytest

from rag_eval.experiments.file_outputs import JsonOutput
from rag_eval.experiments.results import ExperimentResult
from rag_eval.experiments.running import evaluatorq
from tests.doubles.langsmith_fixtures import client, no_langsmith_settings, server

__all__ = ["client", "no_langsmith_settings", "server"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of its own, without the keys of services."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORQ_API_KEY", raising=False)


HELLO = [{"input": "Hello, how are you?", "output": "I'm good, thank you!"}]


def quietly(name: str, **options: Any) -> ExperimentResult:
    """Run an experiment that only writes its JSON file."""
    return evaluatorq(name, outputs=[JsonOutput("evaluations")], **options)
