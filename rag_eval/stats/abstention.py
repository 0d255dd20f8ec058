"""Answers to questions that nothing answers, and the score threshold that keeps them rare.

A question is answered if its best hit reaches a threshold, the ``score_threshold`` of a selection. Answering a question
that is declared unanswerable is a false hit.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.intervals import beta_interval, share_interval

NO_THRESHOLD = -float(np.finfo(np.float64).max)
"""Below every score."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of ``n``; 0 of 0 is 0."""

    count: int
    n: int

    @property
    def value(self) -> float:
        return self.count / self.n if self.n else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval; 0 to 1 if n is 0."""
        return share_interval(self.count, self.n)


@dataclass(frozen=True, slots=True)
class ScoreThreshold:
    """A minimum score, the false hits that remain, and the answerable questions that are still answered.

    ``interval`` has the false-hit rate of other questions of the same kind with 95 % confidence: for a threshold
    between the k-th and the next of n scores it is a Beta(n - k + 1, k) variable, whatever their distribution (Vovk
    2012). Its mean is at most the requested rate.
    """

    score: float
    false_hits: Share
    interval: tuple[float, float]
    kept: Share


@dataclass(frozen=True, slots=True)
class RiskPoint:
    """A point of the risk–coverage curve.

    ``coverage`` is the share of all questions that are answered and ``risk`` the mean of 1 - score over those, where an
    unanswerable question scores 0; ``false_hits`` and ``kept`` are the shares of the unanswerable and of the answerable
    questions that are answered.
    """

    score: float
    coverage: float
    risk: float
    false_hits: float
    kept: float


@dataclass(frozen=True)
class Abstention:
    """The best score of every question, -inf without a hit, and what the answerable ones score by a metric in [0, 1].

    >>> import numpy as np
    >>> scores = Abstention(np.array([0.9, 0.8, 0.4]), np.array([1.0, 1.0, 0.0]), np.array([0.5, 0.3, 0.2]))
    >>> scores.at(0.6).false_hits.value, scores.at(0.6).kept.count
    (0.0, 2)
    """

    answerable: Values
    gains: Values
    unanswerable: Values

    def at(self, score: float) -> ScoreThreshold:
        """Return the effect of a threshold that was not chosen by these questions."""
        false = Share(int((self.unanswerable >= score).sum()), len(self.unanswerable))
        kept = Share(int((self.answerable >= score).sum()), len(self.answerable))
        return ScoreThreshold(score, false, false.interval, kept)

    def threshold(self, rate: float) -> ScoreThreshold | None:
        """Return the lowest threshold whose mean false-hit rate on other questions is at most ``rate``.

        It is above the k-th of the n unanswerable questions' scores with k = ⌈(n + 1)(1 - rate)⌉ (split-conformal
        prediction). None if there are fewer than 1 / rate - 1 such questions. Raises ``ConfigurationError`` on a rate
        that is not between 0 and 1.
        """
        if not 0 < rate < 1:
            raise ConfigurationError(f"the false-hit rate is {rate}: use a number between 0 and 1, such as 0.05")
        n = len(self.unanswerable)
        k = math.ceil(round((n + 1) * (1 - rate), 9))
        if k > n:
            return None
        below = np.sort(self.unanswerable)[k - 1]
        above = np.concatenate((self.unanswerable, self.answerable))
        threshold = self.at(_between(float(below), float(np.min(above[above > below], initial=np.inf))))
        return replace(threshold, interval=beta_interval(n - k + 1, k))

    @cached_property
    def curve(self) -> list[RiskPoint]:
        """The risk–coverage curve: a point for every score that answers more questions than the one before."""
        scores = np.concatenate((self.answerable, self.unanswerable))
        gains = np.concatenate((self.gains, np.zeros(len(self.unanswerable))))
        order = np.argsort(-scores, kind="stable")
        scores, gains = scores[order], np.cumsum(gains[order])
        false = np.cumsum(order >= len(self.answerable))
        last = np.append(scores[1:] != scores[:-1], True) & np.isfinite(scores)
        return [
            RiskPoint(
                score=float(scores[row]),
                coverage=(row + 1) / len(scores),
                risk=1 - float(gains[row]) / (row + 1),
                false_hits=int(false[row]) / max(1, len(self.unanswerable)),
                kept=(row + 1 - int(false[row])) / max(1, len(self.answerable)),
            )
            for row in np.flatnonzero(last).tolist()
        ]

    @property
    def area(self) -> float:
        """The area under the risk–coverage curve: the mean risk when questions are answered best score first.

        0 without a question that has a hit.
        """
        steps = np.diff([0.0, *(point.coverage for point in self.curve)])
        total = float(steps.sum())
        return float(np.dot(steps, [point.risk for point in self.curve])) / total if total else 0.0


def _between(low: float, high: float) -> float:
    """Return the shortest number that is more than ``low`` and ``high`` at most."""
    if math.isinf(low):
        return NO_THRESHOLD
    size = math.floor(math.log10(abs(low) or (high if math.isfinite(high) else 1.0)))
    for digits in range(1, 17):
        step = 10.0 ** (size - digits + 1)
        rounded = float(f"{(math.floor(low / step) + 1) * step:.{digits + 1}g}")
        if low < rounded <= high:
            return rounded
    return float(np.nextafter(low, np.inf))
