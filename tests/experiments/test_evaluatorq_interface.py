"""The interface that the runner is known by: ``Evaluatorq``, fields as parameters, handlers, summaries and errors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import (
    ConfigurationError,
    DataError,
    ExperimentError,
    ExperimentFailedError,
    OutputError,
    RagEvalError,
)
from rag_eval.experiments import (
    ExactMatch,
    Experiment,
    ExperimentResult,
    JsonOutput,
    Score,
    SemanticSimilarity,
    evaluatorq,
    experiment,
)
from rag_eval.experiments.results import Average, RunningAverage

HELLO = [{"input": "Hello, how are you?", "output": "I'm good, thank you!"}]


def quietly(tasks: list[Any], data: Any = HELLO, **options: Any) -> ExperimentResult:
    return evaluatorq("quiet", data=data, tasks=tasks, outputs=[JsonOutput("out")], **options)


def test_a_task_with_several_parameters_takes_the_fields_that_they_name() -> None:
    class Joined:
        def __call__(self, input: str, output: str) -> str:
            return input + output

    async def later(output: str, *, input: str, missing: int = 7) -> str:
        return f"{output}{input}{missing}"

    def whole(input: str, row: dict[str, str], output: str = "") -> bool:
        return row == {"input": input, "output": output}

    def one(input: dict[str, str]) -> str:  # a single parameter is the row, whatever it is called
        return input["input"]

    found = quietly([Joined(), later, whole, one], data=[{"input": "a", "output": "b"}]).results[0].task_results
    assert found == ["ab", "ba7", True, "a"]


def test_a_field_that_the_row_lacks_fails_that_sample_in_a_sentence() -> None:
    data = [{"input": "a", "output": "b"}, {"input": "c", "id": 3}]
    result = quietly([lambda input, output: input], data=data, raise_errors=False)
    assert [item.task_results for item in result.results] == [["a"], [None]]
    (error,) = result.results[1].errors
    assert error.message == "the row has no column 'output', which the task needs: it has input, id"


def test_an_experiment_is_described_once_and_run_often() -> None:
    described = Experiment("twice", HELLO, [lambda row: row["output"]], [ExactMatch])
    first = evaluatorq(described, outputs=[])
    again = asyncio.run(experiment(described, outputs=[]))
    assert (first.name, first.summary.average_scores) == ("twice", {"ExactMatch": 1.0})
    assert again.summary.average_scores == first.summary.average_scores
    with pytest.raises(ConfigurationError, match="twice: give data, tasks and evaluators only to the Experiment"):
        evaluatorq(described, tasks=[str])
    with pytest.raises(ConfigurationError, match="has no name"):
        Experiment(" ", HELLO, [str])


class Plain:
    def __init__(self) -> None:
        self.seen: list[ExperimentResult] = []

    def handle(self, results: ExperimentResult) -> str:
        self.seen.append(results)
        return "in my notebook"


class Later:
    name = "later"

    async def handle(self, results: ExperimentResult) -> Path:
        await asyncio.sleep(0)
        return Path("elsewhere") / results.experiment_name


class Full:
    def handle(self, results: ExperimentResult) -> None:
        raise OSError("no room")


def test_a_handler_needs_only_to_handle_the_results() -> None:
    plain = Plain()
    result = evaluatorq("handled", data=HELLO, tasks=[str], outputs=[plain, Later()])
    assert plain.seen == [result]
    assert result.saved == {"Plain": "in my notebook", "later": "elsewhere/handled"}


def test_a_handler_that_fails_is_named_after_the_others_had_their_turn() -> None:
    plain = Plain()
    with pytest.raises(OutputError, match="the output Full failed: OSError: no room") as raised:
        evaluatorq("handled", data=HELLO, tasks=[str], outputs=[Full(), plain])
    assert isinstance(raised.value.__cause__, OSError)
    assert len(plain.seen) == 1


@pytest.mark.parametrize("wrong", [3, Plain, object(), print])
def test_what_is_no_output_is_said_before_anything_is_called(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"is not an output: give an object"):
        evaluatorq("wrong", data=HELLO, tasks=[str], outputs=[wrong])


def test_the_calls_of_a_sample_are_timed_and_their_attempts_counted() -> None:
    tried: list[int] = []

    def flaky(row: Any) -> int:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError
        return 1

    def broken(result: Any, expected: Any) -> int:
        raise ValueError("no")

    options = {"evaluators": [broken, ExactMatch], "retries": 2, "retry_delay": 0.001, "raise_errors": False}
    calls = quietly([flaky], **options).results[0].calls
    assert {place: call.attempts for place, call in calls.items()} == {
        "flaky": 3,
        "flaky/broken": 3,
        "flaky/ExactMatch": 1,
    }
    assert calls["flaky"].seconds >= 0.001  # two waits of at least half of 0.001 and 0.002 seconds
    assert all(call.seconds > 0 for call in calls.values())


def averaged(values: list[float], bounds: tuple[float, float] | None = None) -> Average:
    running = RunningAverage(bounds)
    for value in values:
        running.add(Score(value))
    return running.average()


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, 1.0], 0.342, 1.0),  # Wilson's: n / (n + z²)
        ([0.0, 0.0], 0.0, 0.658),
        ([0.0, 1.0], 0.095, 0.905),
        ([1.0] * 18 + [0.0] * 2, 0.699, 0.972),
        ([0.5, 1.0], 0.0, 1.0),  # Student's is from -2.4 to 3.9
        ([1.0, 5.0], -22.412, 28.412),  # of another scale, whose ends nobody told
    ],
)
def test_an_interval_stays_within_the_range_of_the_scores(values: list[float], low: float, high: float) -> None:
    average = averaged(values)
    assert (average.low, average.high) == (pytest.approx(low, abs=0.001), pytest.approx(high, abs=0.001))


def test_wilsons_interval_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    for passed, n in ((0, 3), (2, 7), (50, 80), (9, 9)):
        expected = binomtest(passed, n).proportion_ci(0.95, method="wilson")
        average = averaged([1.0] * passed + [0.0] * (n - passed))
        assert (average.low, average.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_equal_scores_say_nothing_of_their_spread() -> None:
    for average in (averaged([0.7, 0.7, 0.7]), averaged([4.0, 4.0]), averaged([0.3]), averaged([1.0, 1.0], (-1, 1))):
        assert (average.low, average.high) == (None, None)


def test_an_evaluator_tells_the_range_of_its_scores() -> None:
    average = averaged([-0.2, 1.0], SemanticSimilarity.bounds)
    assert (average.low, average.high) == (-1.0, 1.0)

    class Stars:
        bounds = (1.0, 5.0)

        def evaluate(self, result: Any, expected: Any) -> float:
            return float(result)

    data = [{"input": 2}, {"input": 5}]
    found = quietly([lambda row: row["input"]], data=data, evaluators=[Stars()]).averages["Stars"]
    assert (found.mean, found.low, found.high) == (3.5, 1.0, 5.0)


@pytest.mark.parametrize("bounds", ["wide", (5, 1), (1, 2, 3), 5, (0, float("nan"))])
def test_a_range_that_is_none_is_said_before_anything_is_called(bounds: Any) -> None:
    def stars(result: Any, expected: Any) -> float:
        return 1.0

    stars.bounds = bounds  # type: ignore[attr-defined]  # as a user would
    with pytest.raises(ConfigurationError, match="the bounds of stars are"):
        quietly([str], evaluators=[stars])


@given(st.lists(st.integers(0, 1_000).map(lambda number: number / 1_000), min_size=2, max_size=30))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_an_interval_holds_its_mean_and_is_never_empty(values: list[float]) -> None:
    average = averaged(values)
    if average.low is None or average.high is None:
        assert len(set(values)) == 1
    else:
        assert 0.0 <= average.low <= average.mean <= average.high <= 1.0
        assert average.low < average.high


def test_the_errors_have_their_kinds() -> None:
    def rows() -> Any:
        yield {"input": 1}
        raise OSError("dry")

    with pytest.raises(DataError) as raised:
        quietly([str], data=rows)
    assert isinstance(raised.value, ExperimentError)
    assert isinstance(raised.value.__cause__, OSError)
    with pytest.raises(DataError, match=r"'gone\.csv' is missing"):
        quietly([str], data="gone.csv")
    with pytest.raises(ExperimentFailedError) as failed:
        quietly([lambda row: 1 // row["input"]], data=[{"input": 1}, {"input": 0}])
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def rows() -> Any:
    yield {"input": 1}
    raise OSError("the user's own")


def work(row: Any) -> None:
    raise OSError("the user's own")


async def later(row: Any) -> None:
    raise OSError("the user's own")


def judge(result: Any, expected: Any) -> None:
    raise OSError("the user's own")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rows", {"data": rows, "tasks": [str]}),
        ("work", {"tasks": [work]}),
        ("later", {"tasks": [later], "timeout": 60}),
        ("judge", {"tasks": [str], "evaluators": [judge], "timeout": 60}),
        ("handle", {"tasks": [str], "outputs": [Full()]}),
    ],
)
def test_a_traceback_begins_in_the_users_code(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(RagEvalError) as raised:
        evaluatorq("fails", **{"data": HELLO, "outputs": [], **options})
    cause = raised.value.__cause__
    assert cause is not None
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_name == name
    assert (type(cause), cause.__context__) == (OSError, None)
