"""What a person does with experiments: run one, compare tasks, read what failed."""

import asyncio
import gc
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rag_eval.errors import ConfigurationError, ExperimentFailedError
from rag_eval.experiments.callables import evaluator, task
from rag_eval.experiments.results import ExperimentResult, Score
from rag_eval.experiments.running import experiment
from tests.experiments.conftest import HELLO, quietly


def test_tasks_are_compared_side_by_side() -> None:
    @task("shout")
    def upper(row: Any) -> str:
        return str(row["input"]).upper()

    async def whisper(row: Any) -> str:
        return str(row["input"]).lower()

    @evaluator("is-upper")
    async def judge(result: str, expected: Any, row: Any) -> Score:
        return Score(1.0, f"of {row['input']}", passed=True) if result.isupper() else Score(0.25, passed=False)

    data = [{"input": "Ab"}, {"input": "Cd"}]
    result = quietly("two", data=data, tasks=[upper, whisper], evaluators=[judge])
    assert {key: average.mean for key, average in result.averages.items()} == {
        "shout/is-upper": 1.0,
        "whisper/is-upper": 0.25,
    }
    assert result.results[1].task_results == ["CD", "cd"]
    assert result.results[0].scores["shout/is-upper"] == Score(1.0, "of Ab", True)
    assert (result.averages["shout/is-upper"].passed, result.averages["whisper/is-upper"].passed) == (2, 0)


def test_what_raises_is_counted_and_never_averaged() -> None:
    def divide(row: Any) -> float:
        return float(6 / row["input"])

    def fussy(result: float, expected: Any) -> float:
        if result == 3:
            raise ValueError("three")
        return result

    with pytest.raises(ExperimentFailedError, match=r"2 calls failed, in divide \(1\), divide/fussy \(1\)") as raised:
        quietly("bad", data=[{"input": number} for number in (0, 1, 2)], tasks=[divide], evaluators=[fussy])
    result = raised.value.result
    assert isinstance(result, ExperimentResult)
    assert result.averages["fussy"].mean == 6
    assert result.averages["fussy"].n == 1
    assert result.results[0].errors[0].message == "ZeroDivisionError: division by zero"
    assert result.results[0].task_results == [None]
    assert result.path is not None
    assert json.loads(result.path.read_text())["summary"]["errors"] == {"divide": 1, "divide/fussy": 1}
    kept = quietly("bad", data=[{"input": 0}], tasks=[divide], evaluators=[], raise_errors=False)
    assert kept.failed == 1


def test_two_scores_of_one_name_are_refused() -> None:
    tasks = [task("a")(lambda row: 1), task("a/b")(lambda row: 1)]
    evaluators = [evaluator("b/c")(lambda a, b: 1), evaluator("c")(lambda a, b: 1)]
    with pytest.raises(ConfigurationError, match="two scores are called 'a/b/c'"):
        quietly("names", data=HELLO, tasks=tasks, evaluators=evaluators)


@pytest.mark.parametrize("returned", [None, "high", float("nan"), float("inf"), {"value": "x"}, [1]])
def test_a_score_must_be_one(returned: Any) -> None:
    result = quietly("odd", data=HELLO, tasks=[lambda row: 1], evaluators=[lambda a, b: returned], raise_errors=False)
    assert result.averages == {}
    assert "return" in result.results[0].errors[0].message


def test_averages_have_the_interval_of_student() -> None:
    from scipy import stats

    values = [0.1, 0.4, 0.8, 0.9, 0.3]
    data = [{"input": value} for value in values]
    average = quietly("t", data=data, tasks=[lambda row: row["input"]], evaluators=[lambda a, b: a]).averages[
        "evaluator-1"
    ]
    low, high = stats.t.interval(0.95, 4, sum(values) / 5, stats.sem(values))
    assert (average.low, average.high) == (pytest.approx(low), pytest.approx(high))


def test_it_runs_inside_a_loop_too() -> None:
    async def notebook() -> tuple[ExperimentResult, ExperimentResult]:
        inside = quietly("inside", data=HELLO, tasks=[lambda row: "x"], evaluators=[])
        awaited = await experiment("awaited", data=HELLO, tasks=[lambda row: "y"], outputs=[])
        return inside, awaited

    inside, awaited = asyncio.run(notebook())
    assert (inside.results[0].task_results, awaited.results[0].task_results) == (["x"], ["y"])


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("Incorrect API key provided: very-secret-value", "Incorrect API key provided: <SOME_API_KEY>"),
        ("Incorrect API key provided: sk-proj-0123456789abcdef.", "Incorrect API key provided: <key>."),
        ("headers: Authorization: Bearer abcdef.0123456789==, x", "headers: Authorization: Bearer <key>, x"),
        ("no key here, a task-of-some-length", "no key here, a task-of-some-length"),
    ],
)
@pytest.mark.parametrize("kind", [ValueError, ConfigurationError])
def test_keys_do_not_reach_results(
    monkeypatch: pytest.MonkeyPatch, message: str, kept: str, kind: type[Exception]
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")

    def leak(row: Any) -> None:
        raise kind(message)

    def leaking(result: Any, expected: Any) -> None:
        raise kind(message)

    result = quietly(
        "leak", data=HELLO, tasks=[leak, task("fine")(lambda row: 1)], evaluators=[leaking], raise_errors=False
    )
    sentence = f"ValueError: {kept}" if kind is ValueError else kept
    assert [error.message for error in result.results[0].errors] == [sentence, sentence]
    assert result.path is not None
    assert "very-secret" not in result.path.read_text()


def test_results_are_let_go_with_what_holds_them() -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    for number in range(5):
        quietly(f"run {number}", data=HELLO, tasks=[str])
    gc.collect()
    assert opened() <= before


def test_experiments_of_one_name_and_second_have_files_of_their_own() -> None:
    results = [quietly("same", data=HELLO, tasks=[str]) for _ in range(3)]
    assert len({result.path for result in results}) == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tasks": [str]}, "data is missing"),
        ({"data": HELLO}, "tasks is missing"),
        ({"data": HELLO, "tasks": []}, "has no tasks"),
        ({"data": HELLO, "tasks": [3]}, "task 1 is a int"),
        ({"data": HELLO, "tasks": [str, str]}, "two tasks are called 'str'"),
        ({"data": HELLO, "tasks": [str], "evaluators": [3]}, "evaluator 1 is a int"),
        ({"data": HELLO, "tasks": [str], "concurrency": 0}, "concurrency"),
    ],
)
def test_a_wrong_part_is_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        quietly("wrong", **options)
