"""A run is not needed where nothing has changed since the last one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_eval.config.models import BenchmarkConfig
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results import unchanged
from rag_eval.results.unchanged import STEPS, unchanged_run
from tests.chain import run_benchmark
from tests.results.made_runs import LARGE, SMALL, write_data


@pytest.fixture
def config(tmp_path: Path) -> BenchmarkConfig:
    return write_data(tmp_path, documents=2, queries=1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / ".rag-eval")


def found(workspace: Workspace, config: BenchmarkConfig, *, reanchor: bool = False, **changes: Any) -> str | None:
    """The name of the run that is shown in the place of a new one."""
    run = unchanged_run(workspace, config.model_copy(update=changes), reanchor=reanchor)
    return None if run is None else run.run


def test_the_newest_run_of_the_same_benchmark_is_shown(workspace: Workspace, config: BenchmarkConfig) -> None:
    assert found(workspace, config) is None
    first, second = run_benchmark(workspace, config), run_benchmark(workspace, config)
    assert found(workspace, config) == second.run != first.run
    other = run_benchmark(workspace, config.model_copy(update={"chunkers": [SMALL]}))
    assert found(workspace, config) == second.run
    assert found(workspace, config, chunkers=[SMALL]) == other.run
    carried = run_benchmark(workspace, config, reanchor=True)
    assert found(workspace, config, reanchor=True) == carried.run
    assert found(workspace, config) == second.run


@pytest.mark.parametrize(
    "changes",
    [{"chunkers": [SMALL]}, {"chunkers": [LARGE, SMALL]}, {"k": [1, 2]}, {"fetch_k": 9}, {"shards": 2}],
    ids=["parts", "order", "k", "depth", "shards"],
)
def test_another_benchmark_is_run(workspace: Workspace, config: BenchmarkConfig, changes: dict[str, Any]) -> None:
    run_benchmark(workspace, config)
    assert found(workspace, config) is not None
    assert found(workspace, config, **changes) is None
    assert found(workspace, config, reanchor=True) is None


EDITS: dict[str, Callable[[BenchmarkConfig, Path], object]] = {
    "a document": lambda config, truth: (config.corpus / "00.md").write_text("Another text."),
    "a new document": lambda config, truth: (config.corpus / "new.md").write_text("More."),
    "a document that is gone": lambda config, truth: (config.corpus / "01.md").unlink(),
    "the ground truth": lambda config, truth: truth.write_text(truth.read_text().replace("Where", "When")),
}


@pytest.mark.parametrize("kind", EDITS)
def test_a_change_of_what_is_read_is_run_again(workspace: Workspace, config: BenchmarkConfig, kind: str) -> None:
    run_benchmark(workspace, config)
    EDITS[kind](config, config.ground_truth[0].path)
    assert found(workspace, config) is None


def test_a_run_is_made_where_it_is_asked_for_published_or_has_lost_its_scores(
    workspace: Workspace, config: BenchmarkConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_benchmark(workspace, config)
    assert found(workspace, config) == run.run
    assert found(workspace.model_copy(update={"refresh": True}), config) is None
    with monkeypatch.context() as other:
        first, *rest = STEPS
        other.setattr(unchanged, "STEPS", [replace(first, version=first.version + 1), *rest])
        assert found(workspace, config) is None
    published = config.model_copy(update={"langsmith_dataset": "reviewed"})
    run_benchmark(workspace, published)
    assert found(workspace, published) is None
    (workspace.root / run.configurations[0].scores.uri).unlink()
    assert found(workspace, config) is None


def test_a_run_that_lost_spans_is_run_again(workspace: Workspace, config: BenchmarkConfig) -> None:
    path = config.ground_truth[0].path
    item = json.loads(path.read_text().splitlines()[0])
    lost = [span | {"text": span["text"].replace("Deck", "Bunk")} for span in item["relevant_spans"]]
    more = item | {"id": "more", "query": "What else is there?", "relevant_spans": lost}
    path.write_text(f"{json.dumps(item)}\n{json.dumps(more)}\n")
    run_benchmark(workspace, config, reanchor=True)
    assert found(workspace, config, reanchor=True) is None


def test_a_run_with_a_failure_or_a_summary_that_cannot_be_read_is_passed_over(
    workspace: Workspace, config: BenchmarkConfig
) -> None:
    def nothing(text: str) -> list[str]:
        return []

    failing = BenchmarkConfig.model_validate(config.model_dump() | {"chunkers": [SMALL, nothing]})
    assert len(run_benchmark(workspace, failing).failures) == 1
    assert found(workspace, failing) is None
    good, damaged = run_benchmark(workspace, config), run_benchmark(workspace, config)
    summary = workspace.runs / damaged.run / "summary.json"
    summary.write_text(summary.read_text()[:-9])
    assert found(workspace, config) == good.run
