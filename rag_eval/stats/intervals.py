"""Compute confidence intervals: every method is here.

Means over queries (``mean_estimates``), differences of means (``difference_estimates``), means of judgements by people
and a model (``prediction_powered``), and shares (``share_interval``). Nothing is resampled.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.paired_scores import Unit, Units
from rag_eval.stats.significance import ROUNDING

CONFIDENCE = 0.95

# Rounding of squared deviations that should be 0.
_NOTHING = 1e-18


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over ``n`` queries and its confidence interval over ``units``; no ``low`` and ``high`` with one unit."""

    mean: float
    low: float | None
    high: float | None
    n: int
    units: int
    unit: Unit


def mean_estimates(values: Values, units: Units) -> list[Estimate]:
    """Return the mean of each row and its 95 % interval. A row is a configuration, a column a query.

    The intervals of scores from 0 to 1 are those of Korn and Graubard, those of other scores Student's.
    """
    ends = mean_intervals(values, units)
    return _estimates(values, units, ends)


def difference_estimates(values: Values, units: Units, confidence: float = CONFIDENCE) -> list[Estimate]:
    """Return the mean of each row of differences and its interval by Student's distribution.

    Raises ``ConfigurationError`` unless ``0 < confidence < 1``.
    """
    if not 0 < confidence < 1:
        raise ConfigurationError(f"confidence is {confidence}: use a number between 0 and 1, such as 0.95")
    return _estimates(values, units, student_intervals(values, units, confidence))


def _estimates(values: Values, units: Units, ends: Values | None) -> list[Estimate]:
    means, n = values.mean(axis=1), values.shape[1]
    rows = [(None, None)] * len(means) if ends is None else ends.tolist()
    return [
        Estimate(mean, low, high, n, units.count, units.kind)
        for mean, (low, high) in zip(means.tolist(), rows, strict=True)
    ]


def mean_intervals(values: Values, units: Units) -> Values | None:
    """Return the ends of the 95 % interval of each row's mean: rows × 2; None with one unit."""
    if units.count < 2:
        return None
    if values.min() < 0 or values.max() > 1:
        return student_intervals(values, units)
    return _korn_graubard(values, units)


def student_intervals(values: Values, units: Units, confidence: float = CONFIDENCE) -> Values | None:
    """Return the ends of Student's interval of each row's mean: rows × 2; None with one unit.

    The variance is CR2's, the degrees of freedom are Satterthwaite's: units of very different size count as fewer
    (R. M. Bell, D. F. McCaffrey, 2002).
    """
    if units.count < 2:
        return None
    means, variances = _mean_variances(values, units)
    sizes, n = units.sizes, values.shape[1]
    cross = sizes**2 / (n - sizes)
    degrees = n**2 / float((sizes**2).sum() + cross.sum() ** 2 - (cross**2).sum())
    reach = float(stdtrit(degrees, (1 + confidence) / 2)) * np.sqrt(variances)
    return np.stack([means - reach, means + reach], axis=1)


def _mean_variances(values: Values, units: Units) -> tuple[Values, Values]:
    """Return the mean of each row and its variance over units by CR2, which is unbiased for units alike."""
    means, sizes, n = values.mean(axis=1), units.sizes, values.shape[1]
    strays = units.sums(values) - means[:, None] * sizes
    return means, (strays**2 / (1 - sizes / n)).sum(axis=1) / n**2


# The nearest means that share their variance.
_NEIGHBOURS = 5
# Queries off the nearer end of the scale that weigh as much as the assumption that scores are right or wrong.
_GRADED = 10
# The correlation of queries of one document that is assumed where all scores are 0, or all 1.
_CORRELATION = 0.05


def _korn_graubard(values: Values, units: Units) -> Values:
    """Return the ends of the 95 % interval of each row of scores from 0 to 1.

    The exact interval of a share, for as many independent right-or-wrong answers as have the variance of the mean
    (E. L. Korn, B. I. Graubard, 1998). The variance V is CR2's, written as f · p(1 - p) / queries, and the number of
    answers is queries / f, less by (1.96 / t)² with Student's t for the units. Few documents show little of how scores
    vary, so f is no less than

    - the same without regard to documents, r = s² / p(1 - p): 1 for right-or-wrong scores and less for graded ones.
      Few scores off the nearer end of the scale say little of how graded they are, so r has ``_GRADED`` more of 1;
    - the median over the configurations whose means are nearest.

    Where p is 0 or 1, f is that of queries that correlate by 0.05 within a document.
    """
    n = values.shape[1]
    means, variances = _mean_variances(values, units)
    binomial = means * (1 - means)
    is_inside = binomial > ROUNDING
    safe = np.where(is_inside, binomial, 1.0)
    spread = np.minimum(values.var(axis=1, ddof=1) / safe, 1.0)
    nearer_end = (means >= 0.5).astype(float)[:, None]
    off_end = (np.abs(values - nearer_end) > ROUNDING).sum(axis=1)
    floor = (off_end * spread + _GRADED) / (off_end + _GRADED)
    effect = np.where(is_inside, np.maximum(variances * n / safe, floor), 1 + _CORRELATION * (n / units.count - 1))
    nearest = np.abs(means[:, None] - means).argsort(axis=1, kind="stable")[:, :_NEIGHBOURS]
    effect = np.maximum(effect, np.median(effect[nearest], axis=1))
    tail = (1 - CONFIDENCE) / 2
    answers = n / effect * float(ndtri(1 - tail) / stdtrit(units.count - 1, 1 - tail)) ** 2
    right, wrong = means * answers, (1 - means) * answers
    low = betaincinv(np.maximum(right, ROUNDING), wrong + 1, tail)
    high = betaincinv(right + 1, np.maximum(wrong, ROUNDING), 1 - tail)
    return np.stack([np.where(means > ROUNDING, low, 0.0), np.where(means < 1 - ROUNDING, high, 1.0)], axis=1)


def share_interval(count: int, n: int) -> tuple[float, float]:
    """Return the exact (Clopper–Pearson) interval of the share of ``count`` in ``n``."""
    tail = (1 - CONFIDENCE) / 2
    low = betaincinv(count, n - count + 1, tail) if count else 0.0
    high = betaincinv(count + 1, n - count, 1 - tail) if count < n else 1.0
    return float(low), float(high)


def beta_interval(a: int, b: int) -> tuple[float, float]:
    """Return the central interval of a Beta(a, b) variable."""
    tail = (1 - CONFIDENCE) / 2
    return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail))


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A mean from the sample corrected with the model (``powered``), from the sample alone, and from the model alone.

    ``weight`` is how much of the model is used, from 0 (its judgements are uninformative) to 1. The interval of the
    model alone ignores the errors of the model.
    """

    powered: Estimate
    human: Estimate
    model: Estimate
    weight: float


def prediction_powered(
    predicted: Values, judged: Values, units: Units, weights: Values | None = None
) -> PredictionPowered:
    """Return the prediction-powered mean of what people judged at random, with its 95 % interval.

    ``docs/statistics.md`` has the formula. With the sample S, its n judgements y, the model's N values f and the
    weights w, an item contributes a + λb to the deviation of the mean: a = (wy - mean over S of wy) / n in the sample
    and 0 outside, and b = (wf - mean of wf) / N, less (wf - mean over S of wf) / n in the sample. λ = -Σab / Σb²,
    within 0 and 1, makes Σ(a + λb)² least (PPI++: A. N. Angelopoulos, J. C. Duchi, T. Zrnic, 2023).

    The variance is G / (G - 1) · Σ u², u being the sum of a + λb over each of the G units of the sample and over each
    other one, and the ends are Student's with G - 1 degrees. They are as far out as if one judgement more, of a thing
    of the usual weight m (the root of the mean of w² where w is not 0), were the opposite of what was found: m / n
    further, with m² / n² added to the variance (M. P. Fay, E. J. Feuer, 1997, do so for rates). Without it an interval
    is too narrow where nearly all judgements agree.

    Args:
        predicted: A model's value of each thing, from 0 to 1.
        judged: That of people of the things drawn at random, NaN of the others.
        units: What is independent of each other: things of one document or question are not.
        weights: The weight of each thing in the mean; None: 1.

    Raises:
        ConfigurationError: Nothing was judged, or the shapes disagree.
    """
    sampled = np.isfinite(judged)
    n, total = int(sampled.sum()), len(predicted)
    if not n or not total == len(judged) == len(units.numbers):
        raise ConfigurationError(
            f"there are {total} predictions and {len(judged)} judgements, of which {n} are not NaN: give a judgement, "
            "or NaN, for each prediction, and at least one judgement"
        )
    each = np.ones(total) if weights is None else weights
    truth, guess = np.where(sampled, judged, 0.0) * each, predicted * each
    human, seen, everywhere = (float(mean) for mean in (truth.sum() / n, guess @ sampled / n, guess.mean()))
    of_people = (truth - human) * sampled / n  # a
    of_model = (guess - everywhere) / total - (guess - seen) * sampled / n  # b
    spread = float(of_model @ of_model)
    # If people judged everything, or the model gives only one value, the rest is rounding.
    is_informative = spread > _NOTHING * float(guess @ guess) / n**2
    weight = float(np.clip(-(of_people @ of_model) / spread, 0.0, 1.0)) if is_informative else 0.0  # λ
    one_more = float(np.sqrt(each @ each / max(1, int((each != 0).sum())))) / n

    def estimate(mean: float, deviations: Values, counted: NDArray[np.bool_], more: float) -> Estimate:
        groups, low, high = len(np.unique(units.numbers[counted])), None, None
        if groups > 1:
            by_unit = np.bincount(units.numbers, deviations, units.count)
            error = np.sqrt(groups / (groups - 1) * float(by_unit @ by_unit) + more**2)
            reach = more + float(stdtrit(groups - 1, (1 + CONFIDENCE) / 2) * error)
            low, high = mean - reach, mean + reach
        return Estimate(mean, low, high, int(counted.sum()), groups, units.kind)

    return PredictionPowered(
        estimate(human + weight * (everywhere - seen), of_people + weight * of_model, sampled, one_more),
        estimate(human, of_people, sampled, one_more),
        estimate(everywhere, (guess - everywhere) / total, np.ones(total, bool), 0.0),
        weight,
    )
