"""What an evaluator returned as a score, and scores as averages."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

from scipy.special import stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.experiments.types import Average, Score

LEVEL = 0.95


def score_of(given: Any) -> Score:
    """The score that an evaluator returned: a number, a bool (pass or fail), a ``Score``, or a mapping with its parts.

    Raises ``ConfigurationError`` on anything else, and on a number that is not finite.
    """
    if isinstance(given, Score):
        return Score(_finite(given.value), given.explanation, given.passed)
    if hasattr(given, "item") and not hasattr(given, "__len__"):  # a scalar of numpy's
        given = given.item()
    if isinstance(given, bool):
        return Score(float(given), passed=given)
    if isinstance(given, numbers.Real):
        return Score(_finite(given))
    if isinstance(given, Mapping):
        value = next((given[key] for key in ("score", "value") if key in given), None)
        inner = score_of(value)
        passed = next((given[key] for key in ("passed", "pass", "pass_") if key in given), inner.passed)
        return Score(inner.value, given.get("explanation", inner.explanation), passed)
    raise ConfigurationError(f"it returned a {type(given).__name__}: return a number, a bool or a Score")


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ConfigurationError(f"it returned {number}: return a finite number")
    return number


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
        """The mean so far with its t-interval at 95 %: mean ± t(n-1) · s/√n."""
        if self.n < 2:
            return Average(self._mean, self.n, passed=self._passed, judged=self._judged)
        half = float(stdtrit(self.n - 1, (1 + LEVEL) / 2)) * math.sqrt(self._squares / (self.n - 1) / self.n)
        return Average(self._mean, self.n, self._mean - half, self._mean + half, self._passed, self._judged)
