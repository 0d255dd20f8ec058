"""Answers from what the configurations of a run found, by a double of the model."""

import json
from pathlib import Path
from typing import Any

import pytest

from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ConfigurationError
from rag_eval.experiments.answers import answer_experiment
from rag_eval.pipeline.workspace import Workspace
from tests.chain import run_benchmark
from tests.cli.commands import rag_eval
from tests.doubles.openai_server import OpenAIServer
from tests.results.made_runs import write_data

KEY = "sk-answers-0123456789"


def model(body: dict[str, Any]) -> str:
    """Answers with its passages, and judges by whether the answer has the words that were expected."""
    told = body["messages"][-1]["content"]
    if body["response_format"]["json_schema"]["name"] == "WrittenText":
        return json.dumps({"text": told.partition("<<<question")[0]})
    asked = json.loads(told)
    words = set(asked["expected_answer"].split())
    return json.dumps({"reason": "counted", "score": len(words & set(asked["answer"].split())) / len(words)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    write_data(folder, documents=3, queries=4)
    config = BenchmarkConfig(
        corpus=folder / "docs",
        ground_truth=folder / "truth.jsonl",
        chunkers=[FixedTokenChunker(5), FixedTokenChunker(40)],
        retrieval=["bm25"],
        k=[1],
        objective="span_recall@1",
    )
    run_benchmark(Workspace(root=folder / ".rag-eval"), config)
    return folder


def test_better_retrieval_makes_better_answers(folder: Path) -> None:
    with OpenAIServer(api_key=KEY) as server:
        server.reply = model
        done = rag_eval(
            *("experiment", "answers", "--questions", "6", "--model", "tiny"),
            cwd=folder,
            OPENAI_API_KEY=KEY,
            OPENAI_BASE_URL=server.base_url,
        )
    assert done.returncode == 0, done.stderr
    assert "12 answers by tiny, each judged by tiny" in done.stderr
    assert len(server.requests) == 24
    (page,) = (folder / "evaluations").glob("*.json")
    averages = {name: one["mean"] for name, one in json.loads(page.read_text())["summary"]["scores"].items()}
    large, small = (averages[f"fixed-token {size}/0, bm25/LLMJudge"] for size in (40, 5))
    assert large > small + 0.2
    assert KEY not in page.read_text()


def test_the_questions_are_spread_and_configurations_named(folder: Path) -> None:
    from rag_eval.results.runs import read_run

    workspace = Workspace(root=folder / ".rag-eval")
    outcome = read_run(workspace)
    chosen = answer_experiment(workspace, outcome, ["fixed-token 5/0, bm25"], questions=3)
    assert [one.name for one in chosen.tasks] == ["fixed-token 5/0, bm25"]
    assert [row["input"].split()[2].split("x")[0] for row in chosen.data] == ["cabin0", "cabin1", "cabin2"]
    assert len(answer_experiment(workspace, outcome, questions=500).data) == 12
    with pytest.raises(ConfigurationError, match=r"has no configuration 'fixed-token 5/1' \(did you mean"):
        answer_experiment(workspace, outcome, ["fixed-token 5/1"])
