"""Results of an experiment: scores, samples, averages, the handlers that take them, and minimums to reach."""

import asyncio
import inspect
import math
import numbers
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from scipy.special import ndtri, stdtrit

from rag_eval.errors import ConfigurationError, EvaluatorError
from rag_eval.experiments.json_lines import encode, recordable, scalar
from rag_eval.formatting import choices, suggestion

Row = Mapping[str, Any]
"""One sample: ``input``, the expected ``output`` where there is one, and whatever else tasks and evaluators need."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score: a finite number, an explanation, and whether it is good enough."""

    value: float
    explanation: str | None = None
    passed: bool | None = None


def score_of(value: object) -> Score:
    """Read what an evaluator returned: a number, a bool (pass or fail), a ``Score``, or a mapping with its parts.

    An explanation becomes text without API keys. Raises ``EvaluatorError`` on anything else, on a number
    that is not finite, and on a verdict that is neither true nor false.
    """
    if isinstance(value, Score):
        return Score(_finite(value.value), _explanation(value.explanation), _verdict(value.passed))
    value = scalar(value)
    if isinstance(value, bool):
        return Score(float(value), passed=value)
    if isinstance(value, numbers.Real):
        return Score(_finite(value))
    if isinstance(value, Mapping):
        score = score_of(next((value[key] for key in ("score", "value") if key in value), None))
        passed = next((value[key] for key in ("passed", "pass", "pass_") if key in value), score.passed)
        return Score(score.value, _explanation(value.get("explanation", score.explanation)), _verdict(passed))
    raise EvaluatorError(f"it returned a {type(value).__name__}: return a number, a bool or a Score")


def _finite(value: SupportsFloat) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise EvaluatorError(f"it returned {number}: return a finite number")
    return number


def _explanation(value: object) -> str | None:
    if value is None:
        return None
    return recordable(value if isinstance(value, str) else encode(value).decode())


def _verdict(value: object) -> bool | None:
    value = scalar(value)
    if value is None or isinstance(value, bool):
        return value
    raise EvaluatorError(f"whether it passed is a {type(value).__name__}: return True or False")


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
    """The duration of a call of a task or an evaluator, with all its attempts; 0 attempts if it was not called."""

    seconds: float = 0.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ItemResult:
    """A sample: the result of each task (None where it failed) and the scores."""

    index: int
    input: object
    output: object
    task_results: list[object]
    scores: dict[str, Score]
    errors: list[ItemError] = field(default_factory=list)
    seconds: float = 0.0
    id: str | None = None
    """The row's own ``id``, where it has one."""
    calls: dict[str, Call] = field(default_factory=dict)
    """The calls by their place: ``task``, or ``task/Evaluator``."""

    def record(self) -> dict[str, Any]:
        """Return the sample as plain data, for files."""
        record: dict[str, Any] = {
            "input": self.input,
            "output": self.output,
            "taskResults": self.task_results,
            "scores": {key: score.value for key, score in self.scores.items()},
            "seconds": round(self.seconds, 6),
        }
        details = {
            key: {"explanation": score.explanation, "passed": score.passed}
            for key, score in self.scores.items()
            if score.explanation is not None or score.passed is not None
        }
        record |= {"scoreDetails": details} if details else {}
        record |= {"id": self.id} if self.id is not None else {}
        record |= {"errors": [asdict(error) for error in self.errors]} if self.errors else {}
        calls = {place: [round(call.seconds, 6), call.attempts] for place, call in self.calls.items()}
        return record | {"calls": calls}

    @classmethod
    def of(cls, index: int, record: Mapping[str, Any]) -> "ItemResult":
        """Return the sample of a record; raises ``KeyError`` or ``TypeError`` on anything else."""
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
            calls={place: Call(*call) for place, call in record.get("calls", {}).items()},
        )


def score_key(tasks: Sequence[object], task: str, evaluator: str) -> str:
    """Return the name of a score: the evaluator's, after the task's where there are several."""
    return evaluator if len(tasks) == 1 else f"{task}/{evaluator}"


LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of ``n`` scores and its 95 % interval, which one score alone, or n equal ones, do not have.

    ``passed`` is how many passed, of the ``judged`` ones that an evaluator said pass or fail about.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None
    passed: int = 0
    judged: int = 0


class RunningAverage:
    """Compute mean and interval of a stream of scores in constant memory (Welford's sums).

    ``bounds`` are the ends of the scores' range; without them it is 0 to 1 as long as every score lies there.
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
        if score.passed is not None:
            self._judged += 1
            self._passed += score.passed

    def average(self) -> Average:
        low, high = self._interval() if self.n > 1 else (None, None)
        return Average(self._mean, self.n, low, high, self._passed, self._judged)

    def _interval(self) -> tuple[float, float] | tuple[None, None]:
        """Wilson's interval where every score is 0 or 1, as in pass or fail; else Student's, within the scores' range.

        Student's is mean ± t(n-1) · s/√n. Of two scores of 1 it would say that all are 1, and of a 0 and a 1 that their
        mean may be 6; Wilson's (m + z²/2n ± z·√(m(1-m)/n + z²/4n²)) / (1 + z²/n) is never empty and stays within 0 to 1
        (L. Brown, T. Cai, A. DasGupta, "Interval Estimation for a Binomial Proportion", 2001). Equal scores that are
        neither 0 nor 1 say nothing of their spread.
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
    """A result in short: the number of samples, the mean of each score, and the time in milliseconds."""

    total_samples: int
    average_scores: dict[str, float]
    execution_time: int


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """A finished experiment; ``results`` are in the order of the data, on disk until they are read."""

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
    """The number of samples that an interrupted run had finished."""
    saved: dict[str, str] = field(default_factory=dict)
    """The place of the results at each handler, by the handler's name."""

    @property
    def experiment_name(self) -> str:
        """The name of the experiment."""
        return self.name

    @property
    def summary(self) -> ExperimentSummary:
        """The result in short."""
        means = {key: average.mean for key, average in self.averages.items()}
        return ExperimentSummary(self.total, means, round(self.seconds * 1_000))

    @property
    def total(self) -> int:
        """The number of samples."""
        return len(self.results)

    @property
    def failed(self) -> int:
        """The number of calls that failed."""
        return sum(self.errors.values())

    @property
    def failure(self) -> str:
        """A sentence on what failed."""
        places = ", ".join(f"{place} ({count})" for place, count in list(self.errors.items())[:5])
        return f"{self.name}: {self.failed} of its calls failed, in {places}"

    @property
    def path(self) -> Path | None:
        """The JSON file, where one was written."""
        return Path(self.saved["json"]) if "json" in self.saved else None

    def outcome(self, item: ItemResult, task: str) -> tuple[dict[str | None, str], dict[str, Score]]:
        """Return the failures of a task on a sample, by evaluator (None: the task itself), and its scores."""
        failed = {error.evaluator: error.message for error in item.errors if error.task == task}
        keys = {name: score_key(self.tasks, task, name) for name in self.evaluators}
        return failed, {name: item.scores[key] for name, key in keys.items() if key in item.scores}


class OutputHandler(Protocol):
    """An output of an experiment; one without a ``name`` has that of its class."""

    def handle(self, results: ExperimentResult, /) -> object:
        """Take the results; may be async, and may return the place where they are as a text or a path."""


def handler_name(handler: OutputHandler) -> str:
    """Return the name of a handler."""
    return getattr(handler, "name", None) or type(handler).__name__


def handle(handler: OutputHandler, result: ExperimentResult) -> None:
    """Give the results to a handler and note the place that it returns; raises what it raises."""

    async def awaited(answer: Awaitable[object]) -> object:
        return await answer

    answer = handler.handle(result)
    place = asyncio.run(awaited(answer)) if inspect.isawaitable(answer) else answer
    if isinstance(place, str | Path):
        result.saved[handler_name(handler)] = str(place)


def check_handler(output: object) -> OutputHandler:
    """Return an output; raises ``ConfigurationError`` on anything but a handler."""
    if isinstance(output, type) or not callable(getattr(output, "handle", None)):
        kind = output.__name__ if isinstance(output, type) else type(output).__name__
        raise ConfigurationError(f"{kind} is no output: give an object with handle(results)")
    handler: OutputHandler = output  # type: ignore[assignment]
    return handler


def parse_minimums(texts: Iterable[str]) -> dict[str, float]:
    """Return the minimums of averages, each from ``metric=value``; raises ``ConfigurationError`` on anything else."""
    minimums: dict[str, float] = {}
    for text in texts:
        key, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not key.strip() or not math.isfinite(number):
            raise ConfigurationError(f"{text!r} is no gate: write metric=value, such as ExactMatch=0.8")
        minimums[key.strip()] = number
    return minimums


def below(results: Sequence[ExperimentResult], minimums: Mapping[str, float]) -> list[str]:
    """Return a sentence for each average below its minimum; raises ``ConfigurationError`` on an unknown name."""
    known = sorted({key for result in results for key in result.averages})
    for key in minimums:
        if key not in known:
            advice = choices(known, key) if known else "the experiments have no evaluators"
            raise ConfigurationError(f"there is no average {key!r} to compare{suggestion(key, known)}: {advice}")
    return [
        f"{result.name}: {key} is {result.averages[key].mean:.4f}, below {least:g}"
        for key, least in minimums.items()
        for result in results
        if key in result.averages and result.averages[key].mean < least
    ]
