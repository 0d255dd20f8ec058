"""The tutorial on experiments runs as written, with a double in the place of the model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rag_eval.experiments.composition import EVALUATORS
from rag_eval.experiments.experiment_file import ExperimentSettings
from rag_eval.services.orq import OrqSettings
from tests.doubles.openai_server import OpenAIServer

PAGE = Path(__file__).parent.parent / "docs" / "experiments.md"
KEY = "sk-tutorial-0123456789"


@pytest.fixture(scope="module")
def section() -> str:
    return PAGE.read_text(encoding="utf-8")


def model(body: dict[str, Any]) -> str:
    """Answers with the beginning of its passages, and judges by whether the answer's words are the expected ones."""
    told = body["messages"][-1]["content"]
    if "response_format" not in body:
        return str(told.removeprefix("Passages:\n").partition("\n\nQuestion:")[0][:400])
    asked = json.loads(told)
    expected = set(asked["expected_answer"].split())
    share = len(expected & set(asked["answer"].split())) / len(expected)
    return json.dumps({"reason": "Counted words.", "score": share})


def test_the_tutorial_runs(
    section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORQ_API_KEY", raising=False)
    with OpenAIServer(api_key=KEY) as server:
        server.reply = model
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        names: dict[str, Any] = {}
        for text in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
            exec(compile(text, "experiments.md", "exec"), names)  # noqa: S102  # the own documentation
        names["client"].close()
    printed = capsys.readouterr().out
    assert "✓ Experiment007 completed in" in printed
    assert "• Average CosineSimilarity: 0.809 (n = 1)" in printed
    assert re.search(r"^five passages/LLMJudge: 0\.\d\d \(95 % from .* to .*, n = 20\)$", printed, re.MULTILINE)
    assert len(server.requests) == 20 * 2 * 2
    assert len(list(tmp_path.glob("evaluations/*.html"))) == 3
    assert not [path for path in tmp_path.rglob("*.*") if path.is_file() and KEY in path.read_text()]


def test_every_evaluator_setting_and_argument_is_there(section: str) -> None:
    for name in EVALUATORS:
        assert f"`{name}" in section, name
    for setting in ExperimentSettings.model_fields:
        assert f"`{setting}`" in section or setting == "orq", setting
    for setting in OrqSettings.model_fields:
        assert f"`orq.{setting}`" in section, setting
