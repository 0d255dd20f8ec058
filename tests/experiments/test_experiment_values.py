"""Whatever tasks and evaluators return is recorded, and what cannot be a score is an error of its sample alone."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from pydantic_core import from_json

from rag_eval.experiments.composition import Weighted
from rag_eval.experiments.evaluators import MetricEvaluator
from rag_eval.experiments.json_lines import encode
from rag_eval.experiments.results import ExperimentResult, Score
from tests.experiments.conftest import HELLO, quietly

KEY = "very-secret-value"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", KEY)
    monkeypatch.setenv("SOME_API_KEY_PREFIX", KEY[:9])


def run(tasks: list[Any], evaluators: Sequence[Any] = (), **options: Any) -> ExperimentResult:
    return quietly("odd", data=HELLO, tasks=tasks, evaluators=evaluators, raise_errors=False, **options)


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no words")


class Model(BaseModel):
    number: int = 1


@dataclasses.dataclass
class Node:
    next: Any = None


def ring() -> list[Any]:
    found: list[Any] = []
    found += [found, found]
    return found


def knot() -> Node:
    node = Node()
    node.next = [node]
    return node


def tower() -> list[Any]:
    found: list[Any] = []
    for _ in range(5_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("returned", "recorded"),
    [
        (knot(), "Node(next=[...])"),
        (Unspeakable(), "<Unspeakable>"),
        (Model, "<class 'tests.experiments.test_experiment_values.Model'>"),
        ([Model()], [{"number": 1}]),
        (object(), "<object object>"),
        (10**30 + 1, 10**30 + 1),
        ({(1, 2): {"a"}, "half": "\ud83d"}, {"(1, 2)": ["a"], "half": "?"}),
        (b"\xff", "_w=="),
    ],
)
def test_any_result_is_recorded(returned: Any, recorded: Any) -> None:
    result = run([lambda row: returned])
    assert result.failed == 0
    assert result.results[0].task_results == [recorded]
    assert result.path is not None
    assert from_json(result.path.read_bytes().replace(b"\n", b""))["results"][0]["taskResults"] == [recorded]


def test_what_is_too_deep_is_cut() -> None:
    assert b"..." in encode(ring())
    assert from_json(encode(tower())) is not None
    assert run([lambda row: tower()]).failed == 0


@pytest.mark.parametrize("returned", [Score(0.5, passed="yes"), {"score": 1, "passed": 1}])  # type: ignore[arg-type]
def test_a_verdict_is_true_or_false(returned: Any) -> None:
    result = run([str], [lambda a, b: returned])
    assert result.averages == {}
    assert result.results[0].errors[0].message.startswith("passed is a")


def test_a_verdict_of_numpy_is_one_and_an_explanation_is_text() -> None:
    explained = {"value": np.float32(0.5), "pass": np.bool_(True), "explanation": {"because": ["of", 1]}}
    (score,) = run([str], [lambda a, b: explained]).results[0].scores.values()
    assert score == Score(0.5, '{"because":["of",1]}', passed=True)


def test_keys_do_not_reach_explanations() -> None:
    def leaking(result: Any, expected: Any) -> Score:
        return Score(0.5, f"asked with {KEY},\nand with sk-0123456789abcdef, half of \ud83d")

    result = run([str], [leaking, Weighted([leaking], name="whole")])
    told = "asked with <SOME_API_KEY>,\nand with <key>, half of ?"
    assert result.results[0].scores["leaking"].explanation == told
    assert result.path is not None
    assert KEY not in result.path.read_text()


def test_a_metric_of_ones_own_does_not_hold_up_the_others() -> None:
    class Slow:
        name = "slow"

        def calculate(self, retrieved: Any, truth: Any) -> float:
            return 1.0

    assert MetricEvaluator("span_recall@5").instant
    assert not MetricEvaluator(Slow()).instant
