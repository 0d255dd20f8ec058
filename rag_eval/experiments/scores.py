"""Scores of an experiment: what evaluators return, their averages, and the averages that must be reached."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.json_lines import encode, recordable
from rag_eval.experiments.types import Average, ExperimentResult, Score
from rag_eval.formatting import choices, suggestion

LEVEL = 0.95


def score_of(given: Any) -> Score:
    """Read what an evaluator returned: a number, a bool (pass or fail), a ``Score``, or a mapping with its parts.

    An explanation becomes text without API keys. Raises ``ConfigurationError`` on anything else, on a number
    that is not finite, and on a verdict that is neither true nor false.
    """
    if isinstance(given, Score):
        return Score(_finite(given.value), _explanation(given.explanation), _verdict(given.passed))
    given = _scalar(given)
    if isinstance(given, bool):
        return Score(float(given), passed=given)
    if isinstance(given, numbers.Real):
        return Score(_finite(given))
    if isinstance(given, Mapping):
        value = next((given[key] for key in ("score", "value") if key in given), None)
        inner = score_of(value)
        passed = next((given[key] for key in ("passed", "pass", "pass_") if key in given), inner.passed)
        return Score(inner.value, _explanation(given.get("explanation", inner.explanation)), _verdict(passed))
    raise ConfigurationError(f"it returned a {type(given).__name__}: return a number, a bool or a Score")


def _scalar(given: Any) -> Any:
    """A scalar of numpy's as Python's own; anything else as it is."""
    return given.item() if hasattr(given, "item") and not hasattr(given, "__len__") else given


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ConfigurationError(f"it returned {number}: return a finite number")
    return number


def _explanation(given: Any) -> str | None:
    if given is None:
        return None
    return recordable(given if isinstance(given, str) else encode(given).decode())


def _verdict(given: Any) -> bool | None:
    given = _scalar(given)
    if given is None or isinstance(given, bool):
        return given
    raise ConfigurationError(f"whether it passed is a {type(given).__name__}: return True or False")


class RunningAverage:
    """Mean and interval of a stream of scores, in constant memory (Welford's sums)."""

    def __init__(self) -> None:
        self.n = self._passed = self._judged = 0
        self._mean = self._squares = 0.0

    def add(self, score: Score) -> None:
        """Count one score."""
        self.n += 1
        delta = score.value - self._mean
        self._mean += delta / self.n
        self._squares += delta * (score.value - self._mean)
        if score.passed is not None:
            self._judged += 1
            self._passed += score.passed

    def average(self) -> Average:
        """The mean so far with its 95 % t-interval: mean ± t(n-1) · s/√n."""
        if self.n < 2:
            return Average(self._mean, self.n, passed=self._passed, judged=self._judged)
        half = float(stdtrit(self.n - 1, (1 + LEVEL) / 2)) * math.sqrt(self._squares / (self.n - 1) / self.n)
        return Average(self._mean, self.n, self._mean - half, self._mean + half, self._passed, self._judged)


@dataclass(frozen=True, slots=True)
class MinimumAverage:
    """The least that an average, named by its key, must be."""

    key: str
    at_least: float

    @classmethod
    def parse(cls, text: str) -> "MinimumAverage":
        """Read ``metric=value``; raises ``ConfigurationError`` on anything else."""
        key, sign, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not sign or not key.strip() or not math.isfinite(number):
            raise ConfigurationError(f"{text!r} is no gate: write metric=value, such as ExactMatch=0.8")
        return cls(key.strip(), number)


def check_minimums(minimums: Sequence[MinimumAverage], keys: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` when the experiment will not have a score of that name."""
    for one in minimums:
        if one.key not in keys:
            advice = choices(keys, one.key) if keys else "the experiment has no evaluators"
            meant = suggestion(one.key, keys)
            raise ConfigurationError(f"there is no average {one.key!r} to compare{meant}: {advice}")


def below(results: Sequence[ExperimentResult], minimums: Sequence[MinimumAverage]) -> list[str]:
    """Say of each average that is below its minimum how far.

    Raises ``ConfigurationError`` when no experiment has an average of that name.
    """
    found: list[str] = []
    for one in minimums:
        averages = [(result.name, result.averages[one.key]) for result in results if one.key in result.averages]
        if not averages:
            known = ", ".join(sorted({key for result in results for key in result.averages})) or "none"
            raise ConfigurationError(f"there is no average {one.key!r} to compare: there are {known}")
        found += [
            f"{name}: {one.key} is {average.mean:.4f}, below {one.at_least:g}"
            for name, average in averages
            if average.mean < one.at_least
        ]
    return found
