"""Measure answers to unanswerable questions, and find the score threshold that keeps them rare.

A question is answered if its best hit reaches a threshold, the ``score_threshold`` of a selection. Answering a question
that is declared unanswerable is a false hit.
"""

import math
from dataclasses import dataclass

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.intervals import beta_interval, share_interval

NO_THRESHOLD = -float(np.finfo(np.float64).max)
"""A threshold below every score."""


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

    ``interval`` contains, with 95 % confidence, the false-hit rate on new questions of the same kind. For a threshold
    between the k-th and the next of n scores, that rate is a Beta(n - k + 1, k) variable, whatever the distribution of
    the scores (Vovk 2012). Its mean is at most the requested rate.
    """

    score: float
    false_hits: Share
    interval: tuple[float, float]
    kept: Share


def score_threshold(answerable: Values, unanswerable: Values, rate: float) -> ScoreThreshold | None:
    """Return the lowest threshold whose mean false-hit rate on other questions is at most ``rate``.

    It is above the k-th of the n unanswerable questions' scores with k = ⌈(n + 1)(1 - rate)⌉ (split-conformal
    prediction).

    >>> import numpy as np
    >>> score_threshold(np.array([0.9, 0.8, 0.4]), np.array([0.5, 0.3, 0.2]), 0.25).score
    0.6

    Args:
        answerable: The best score of every answerable question, -inf without a hit.
        unanswerable: The same for the unanswerable questions.
        rate: The false-hit rate.

    Returns:
        The threshold; None if there are fewer than 1 / rate - 1 unanswerable questions.

    Raises:
        ConfigurationError: The rate is not between 0 and 1.
    """
    if not 0 < rate < 1:
        raise ConfigurationError(f"the false-hit rate is {rate}: use a number between 0 and 1, such as 0.05")
    n = len(unanswerable)
    k = math.ceil(round((n + 1) * (1 - rate), 9))
    if k > n:
        return None
    below = np.sort(unanswerable)[k - 1]
    above = np.concatenate((unanswerable, answerable))
    score = _between(float(below), float(np.min(above[above > below], initial=np.inf)))
    false = Share(int((unanswerable >= score).sum()), n)
    kept = Share(int((answerable >= score).sum()), len(answerable))
    return ScoreThreshold(score, false, beta_interval(n - k + 1, k), kept)


def _between(low: float, high: float) -> float:
    """Return the shortest decimal number above ``low`` and at most ``high``."""
    if math.isinf(low):
        return NO_THRESHOLD
    size = math.floor(math.log10(abs(low) or (high if math.isfinite(high) else 1.0)))
    for digits in range(1, 17):
        step = 10.0 ** (size - digits + 1)
        rounded = float(f"{(math.floor(low / step) + 1) * step:.{digits + 1}g}")
        if low < rounded <= high:
            return rounded
    return float(np.nextafter(low, np.inf))
