"""Results of an experiment: scores, samples, averages, the interface of outputs, and minimums for averages."""

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from scipy.special import ndtri, stdtrit

from rag_eval.errors import ConfigurationError, EvaluatorError
from rag_eval.experiments.json_lines import json_text, redacted
from rag_eval.formatting import choices, suggestion

Row = Mapping[str, Any]
"""One row of data: ``input``, the expected ``output`` if there is one, and any other columns."""
TaskResult = object
"""What a task returned for a row; None if it failed."""
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Score:
    """A finite number, an explanation, and whether it passes."""

    value: float
    explanation: str | None = None
    passed: bool | None = None


def score_of(value: object) -> Score:
    """Read an evaluator's return value: a number, a bool (pass or fail), a ``Score``, or a mapping with its fields.

    API keys are removed from the explanation.

    Raises:
        EvaluatorError: Anything else, a number that is not finite, or a verdict that is not a bool.
    """
    record = asdict(value) if isinstance(value, Score) else value
    if not isinstance(record, Mapping):
        record = {"value": value}
    number = _scalar(_first(record, "score", "value"))
    passed = _scalar(_first(record, "passed", "pass", "pass_"))
    explanation = record.get("explanation")
    if isinstance(number, bool) and passed is None:
        passed = number
    if not isinstance(number, numbers.Real):
        raise EvaluatorError(f"it returned a {type(number).__name__}: return a number, a bool or a Score")
    if not math.isfinite(number):
        raise EvaluatorError(f"it returned {number}: return a finite number")
    if not isinstance(passed, bool | None):
        raise EvaluatorError(f"passed is a {type(passed).__name__}: return True or False")
    return Score(float(number), None if explanation is None else redacted(json_text(explanation)), passed)


def _first(record: Row, *keys: str) -> object:
    return next((record[key] for key in keys if key in record), None)


def _scalar(value: object) -> object:
    """Return a numpy scalar as a Python value, and anything else unchanged."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value


@dataclass(frozen=True, slots=True)
class ItemError:
    """A failure of a task, or of an evaluator of its result, on a sample."""

    task: str
    evaluator: str | None
    message: str

    @property
    def place(self) -> str:
        return self.task if self.evaluator is None else f"{self.task}/{self.evaluator}"


@dataclass(slots=True)
class Call:
    """Duration of a call, including all attempts."""

    seconds: float = 0.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ItemResult:
    """A sample: a row, the result of each task (None if it failed) and the scores.

    ``columns`` are the row's other columns; ``calls`` have the keys ``task`` and ``task/Evaluator``.
    """

    index: int
    input: object
    output: object
    task_results: list[TaskResult]
    scores: dict[str, Score]
    errors: list[ItemError] = field(default_factory=list)
    seconds: float = 0.0
    id: str | None = None
    columns: Mapping[str, object] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)

    def record(self) -> dict[str, object]:
        """Return the sample as it is written to files."""
        details = {
            key: {"explanation": score.explanation, "passed": score.passed}
            for key, score in self.scores.items()
            if score.explanation is not None or score.passed is not None
        }
        optional: dict[str, object] = {
            "scoreDetails": details,
            "id": self.id,
            "columns": self.columns,
            "errors": [asdict(error) for error in self.errors],
        }
        return {
            "input": self.input,
            "output": self.output,
            "taskResults": self.task_results,
            "scores": {key: score.value for key, score in self.scores.items()},
            "seconds": round(self.seconds, 6),
            **{key: value for key, value in optional.items() if value},
            "calls": {place: [round(call.seconds, 6), call.attempts] for place, call in self.calls.items()},
        }

    @classmethod
    def of(cls, index: int, record: Mapping[str, Any]) -> "ItemResult":
        """Read a sample from its record; raises ``KeyError`` or ``TypeError`` if the record is damaged."""
        details = record.get("scoreDetails", {})
        return cls(
            index=index,
            input=record["input"],
            output=record["output"],
            task_results=record["taskResults"],
            scores={key: Score(value, **details.get(key, {})) for key, value in record["scores"].items()},
            errors=[ItemError(**error) for error in record.get("errors", [])],
            seconds=record["seconds"],
            id=record.get("id"),
            columns=record.get("columns", {}),
            calls={place: Call(*call) for place, call in record["calls"].items()},
        )


def score_key(tasks: Sequence[object], task: str, evaluator: str) -> str:
    """Return the name of a score: the evaluator's name, prefixed with the task's name if there are several tasks."""
    return evaluator if len(tasks) == 1 else f"{task}/{evaluator}"


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of ``n`` scores with its 95 % interval, which is missing for one score or for equal scores.

    ``passed`` of the ``judged`` scores passed. The other scores have no verdict.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None
    passed: int = 0
    judged: int = 0


class RunningAverage:
    """Mean and interval of a stream of scores in constant memory (Welford's sums).

    ``bounds`` is the range of the scores; by default 0 to 1 as long as every score lies there.
    """

    def __init__(self, bounds: tuple[float, float] | None = None) -> None:
        self.n = self._passed = self._judged = self._others = 0
        self._mean = self._squares = 0.0
        self._bounds = bounds
        self._least, self._most = math.inf, -math.inf

    def add(self, score: Score) -> None:
        self.n += 1
        delta = score.value - self._mean
        self._mean += delta / self.n
        self._squares += delta * (score.value - self._mean)
        self._least, self._most = min(self._least, score.value), max(self._most, score.value)
        self._others += score.value not in (0.0, 1.0)
        self._judged += score.passed is not None
        self._passed += bool(score.passed)

    def average(self) -> Average:
        low, high = self._interval() if self.n > 1 else (None, None)
        return Average(self._mean, self.n, low, high, self._passed, self._judged)

    def _interval(self) -> tuple[float, float] | tuple[None, None]:
        """Return Wilson's interval if every score is 0 or 1, otherwise Student's, cut at the range of the scores.

        Student's is mean ± t(n-1) · s/√n. It would be empty for two scores of 1, and reach to 6 for a 0 and a 1.
        Wilson's, (m + z²/2n ± z·√(m(1-m)/n + z²/4n²)) / (1 + z²/n), is never empty and stays within 0 to 1 (L. Brown,
        T. Cai, A. DasGupta, "Interval Estimation for a Binomial Proportion", 2001). Equal scores other than 0 and 1
        have no interval, as their spread is unknown.
        """
        mean, n = self._mean, self.n
        if not self._others and self._bounds is None:
            z = float(ndtri((1 + LEVEL) / 2))
            half = z * math.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2))
            low, high = ((mean + z**2 / (2 * n) + side) / (1 + z**2 / n) for side in (-half, half))
            return max(0.0, min(low, mean)), min(1.0, max(high, mean))
        if not self._squares:
            return None, None
        half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * math.sqrt(self._squares / (n - 1) / n)
        least, most = self._bounds or ((0.0, 1.0) if self._least >= 0 and self._most <= 1 else (-math.inf, math.inf))
        return max(min(least, self._least), mean - half), min(max(most, self._most), mean + half)


@dataclass(frozen=True, slots=True)
class ExperimentSummary:
    """The number of samples, the mean of each score, and the time in milliseconds."""

    total_samples: int
    average_scores: dict[str, float]
    execution_time: int


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """A finished experiment.

    ``results`` are in the order of the data and stay on disk until they are read. ``errors`` counts failed calls by
    place, ``resumed`` the samples taken from an interrupted run. ``saved`` has the location of the results by output.
    """

    name: str
    run: str
    timestamp: datetime
    tasks: list[str]
    evaluators: list[str]
    results: Sequence[ItemResult]
    averages: dict[str, Average]
    errors: dict[str, int]
    seconds: float
    resumed: int = 0
    saved: dict[str, str] = field(default_factory=dict)

    @property
    def experiment_name(self) -> str:
        """The name of the experiment."""
        return self.name

    @property
    def summary(self) -> ExperimentSummary:
        """The summary of the result."""
        means = {key: average.mean for key, average in self.averages.items()}
        return ExperimentSummary(self.total, means, round(self.seconds * 1_000))

    @property
    def total(self) -> int:
        """The number of samples."""
        return len(self.results)

    @property
    def failed(self) -> int:
        """The number of failed calls."""
        return sum(self.errors.values())

    @property
    def failure(self) -> str:
        """A sentence that names the failed calls."""
        places = ", ".join(f"{place} ({count})" for place, count in list(self.errors.items())[:5])
        return f"{self.name}: {self.failed} calls failed, in {places}"

    @property
    def path(self) -> Path | None:
        """The JSON file, if one was written."""
        return Path(self.saved["json"]) if "json" in self.saved else None

    def outcome(self, item: ItemResult, task: str) -> tuple[dict[str | None, str], dict[str, Score]]:
        """Return the errors and the scores of a task on a sample; errors are by evaluator (None: the task itself)."""
        failed = {error.evaluator: error.message for error in item.errors if error.task == task}
        keys = {name: score_key(self.tasks, task, name) for name in self.evaluators}
        return failed, {name: item.scores[key] for name, key in keys.items() if key in item.scores}


EvaluationResult = ExperimentResult


class OutputHandler(Protocol):
    """An output of an experiment; without a ``name`` it is named after its class.

    Example:
        class Printed:
            def handle(self, results):
                print(results.summary.average_scores)
    """

    def handle(self, results: ExperimentResult, /) -> object:
        """Receive the results; may be async, and may return their new location as a text or a path."""


def parse_minimums(texts: Iterable[str]) -> dict[str, float]:
    """Read minimums of averages from texts such as ``ExactMatch=0.8``; raises ``ConfigurationError``."""
    minimums: dict[str, float] = {}
    for text in texts:
        key, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not key.strip() or not math.isfinite(number):
            raise ConfigurationError(f"{text!r} is not a minimum: write metric=value, such as ExactMatch=0.8")
        minimums[key.strip()] = number
    return minimums


def below(results: Sequence[ExperimentResult], minimums: Mapping[str, float]) -> list[str]:
    """Return a sentence for each average below its minimum; raises ``ConfigurationError`` on an unknown name."""
    known = sorted({key for result in results for key in result.averages})
    for key in minimums:
        if key not in known:
            advice = choices(known, key) if known else "the experiments have no evaluators"
            raise ConfigurationError(f"there is no average {key!r}{suggestion(key, known)}: {advice}")
    return [
        f"{result.name}: {key} is {result.averages[key].mean:.4f}, below {least:g}"
        for key, least in minimums.items()
        for result in results
        if key in result.averages and result.averages[key].mean < least
    ]
