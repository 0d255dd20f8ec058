"""What an experiment finds: scores, samples, averages, the result, the outputs that take it, and least averages."""

import asyncio
import inspect
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from scipy.special import ndtri, stdtrit

from rag_eval.errors import ConfigurationError, EvaluatorError
from rag_eval.experiments.json_lines import encode, recordable, scalar
from rag_eval.formatting import choices, suggestion

Row = Mapping[str, Any]
"""One sample: ``input``, the expected ``output`` where there is one, and whatever else tasks and evaluators need."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an evaluator found: a finite number, why, and whether that is good enough."""

    value: float
    explanation: str | None = None
    passed: bool | None = None


def score_of(given: Any) -> Score:
    """Read what an evaluator returned: a number, a bool (pass or fail), a ``Score``, or a mapping with its parts.

    An explanation becomes text without API keys. Raises ``EvaluatorError`` on anything else, on a number
    that is not finite, and on a verdict that is neither true nor false.
    """
    if isinstance(given, Score):
        return Score(_finite(given.value), _explanation(given.explanation), _verdict(given.passed))
    given = scalar(given)
    if isinstance(given, bool):
        return Score(float(given), passed=given)
    if isinstance(given, numbers.Real):
        return Score(_finite(given))
    if isinstance(given, Mapping):
        value = next((given[key] for key in ("score", "value") if key in given), None)
        inner = score_of(value)
        passed = next((given[key] for key in ("passed", "pass", "pass_") if key in given), inner.passed)
        return Score(inner.value, _explanation(given.get("explanation", inner.explanation)), _verdict(passed))
    raise EvaluatorError(f"it returned a {type(given).__name__}: return a number, a bool or a Score")


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise EvaluatorError(f"it returned {number}: return a finite number")
    return number


def _explanation(given: Any) -> str | None:
    if given is None:
        return None
    return recordable(given if isinstance(given, str) else encode(given).decode())


def _verdict(given: Any) -> bool | None:
    given = scalar(given)
    if given is None or isinstance(given, bool):
        return given
    raise EvaluatorError(f"whether it passed is a {type(given).__name__}: return True or False")


@dataclass(frozen=True, slots=True)
class ItemError:
    """What went wrong with one sample: in a task, or in an evaluator of its result."""

    task: str
    evaluator: str | None
    message: str

    @property
    def place(self) -> str:
        return self.task if self.evaluator is None else f"{self.task}/{self.evaluator}"


@dataclass(slots=True)
class Call:
    """How long a call of a task or an evaluator took, with all its attempts; 0 attempts when it was not made."""

    seconds: float = 0.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One sample: what each task made of it (None where it failed) and every score that could be given."""

    index: int
    input: Any
    output: Any
    task_results: list[Any]
    scores: dict[str, Score]
    errors: list[ItemError] = field(default_factory=list)
    seconds: float = 0.0
    id: str | None = None
    """The row's own ``id``, where it has one."""
    calls: dict[str, Call] = field(default_factory=dict)
    """The calls by their place: ``task``, or ``task/Evaluator``."""

    def record(self) -> dict[str, Any]:
        """The sample as it stands in files."""
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
        """The sample that a record holds; raises ``KeyError`` or ``TypeError`` when it is none."""
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
    """What a score is called: the evaluator's name, after the task's where there are several."""
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
    """Mean and interval of a stream of scores, in constant memory (Welford's sums).

    ``bounds`` are the ends of the scores' range; without them it is 0 to 1 for as long as every score lies there.
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
    """A result in short: how many samples, the mean of each score, and how long it took, in milliseconds."""

    total_samples: int
    average_scores: dict[str, float]
    execution_time: int


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """A finished experiment; ``results`` stay on disk and are read one by one, in the order of the data."""

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
    """How many samples were finished by an interrupted run before."""
    saved: dict[str, str] = field(default_factory=dict)
    """Where each output put the results, by the output's name."""

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
        """How many samples there were."""
        return len(self.results)

    @property
    def failed(self) -> int:
        """How many tasks and evaluations failed."""
        return sum(self.errors.values())

    @property
    def failure(self) -> str:
        """What failed, in a sentence."""
        places = ", ".join(f"{place} ({count})" for place, count in list(self.errors.items())[:5])
        return f"{self.name}: {self.failed} of its calls failed, in {places}"

    @property
    def path(self) -> Path | None:
        """The JSON file, where one was written."""
        return Path(self.saved["json"]) if "json" in self.saved else None

    def outcome(self, item: ItemResult, task: str) -> tuple[dict[str | None, str], dict[str, Score]]:
        """What failed of a task on a sample, by evaluator (None: the task itself), and the scores by evaluator."""
        failed = {error.evaluator: error.message for error in item.errors if error.task == task}
        keys = {name: score_key(self.tasks, task, name) for name in self.evaluators}
        return failed, {name: item.scores[key] for name, key in keys.items() if key in item.scores}


class Output(Protocol):
    """An output of an experiment; derive from it where only some of the calls are of interest."""

    name: str

    def started(self, name: str, total: int | None) -> None:
        """Begin; called once, before the first sample. ``total`` is None where the number of rows is not known."""
        return

    def sample(self, item: ItemResult) -> None:
        """Take a finished sample; must be quick, since the experiment waits."""
        return

    def finished(self, result: ExperimentResult) -> str | None:
        """Take the result and return where it is, or None; raises ``RagEvalError`` when it cannot be written."""
        return None

    def stopped(self) -> None:
        """End early, after an error or when the user stops the experiment."""
        return


class _Handled(Output):
    """An object with ``handle(results)``, sync or async, as an output; a text or a path that it returns is the place.

    Without a ``name`` it has that of its class.
    """

    def __init__(self, handler: Any) -> None:
        self._handle = handler.handle
        self.name = getattr(handler, "name", None) or type(handler).__name__

    def finished(self, result: ExperimentResult) -> str | None:
        async def awaited(given: Any) -> Any:
            return await given

        given = self._handle(result)
        place = asyncio.run(awaited(given)) if inspect.isawaitable(given) else given
        return str(place) if isinstance(place, str | Path) else None


def as_output(given: Any) -> Output:
    """An output, or a handler as one; raises ``ConfigurationError`` on anything else."""
    is_output = all(callable(getattr(given, name, None)) for name in ("started", "sample", "finished", "stopped"))
    if isinstance(given, type) or not (is_output or callable(getattr(given, "handle", None))):
        kind = given.__name__ if isinstance(given, type) else type(given).__name__
        raise ConfigurationError(
            f"{kind} is no output: give an object with handle(results), or one derived from Output"
        )
    found: Output = given if is_output else _Handled(given)
    return found


def parse_minimums(texts: Iterable[str]) -> dict[str, float]:
    """The least that averages must be, each from ``metric=value``; raises ``ConfigurationError`` on anything else."""
    found: dict[str, float] = {}
    for text in texts:
        key, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not key.strip() or not math.isfinite(number):
            raise ConfigurationError(f"{text!r} is no gate: write metric=value, such as ExactMatch=0.8")
        found[key.strip()] = number
    return found


def below(results: Sequence[ExperimentResult], minimums: Mapping[str, float]) -> list[str]:
    """Say of each average below its minimum how far; raises ``ConfigurationError`` on a name that none has."""
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
