"""Compute confidence intervals: every method is here.

Means over queries by the bootstrap (``estimates_of``), means of judgements by people and a model
(``prediction_powered``), and shares (``share_interval``).
"""

import copy
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.paired_scores import Unit, Units

RESAMPLES = 10_000
CONFIDENCE = 0.95

FEWEST_SURE = 10
"""Minimum number of documents for an interval with nominal coverage."""

# Draws per block, small enough for the processor cache.
_DRAWS = 32_000
# Multiplications per product: above, BLAS starts threads, which cost a hundred times the product on a busy machine;
# but at least a few resamples, so that totals are not read again for each.
_PRODUCT, _FEWEST = 2**18, 8
# Rows per block, to bound memory.
_ROWS = 500
# Rounding errors of squared deviations that should be 0.
_NOTHING = 1e-18


def bootstrap_means(values: Values, units: Units, rng: np.random.Generator, resamples: int = RESAMPLES) -> Values:
    """Return the mean of each row in each resample: resamples × rows. ``values`` has a column for each query."""
    totals = np.vstack([units.sums(values), units.sizes]).T.copy()
    sums = np.empty((resamples, totals.shape[1]))
    block = max(_FEWEST, min(_DRAWS, _PRODUCT // totals.shape[1]) // units.count)
    weights = np.empty((block, units.count))
    width = max(1, _PRODUCT // (block * units.count))
    parts = [(slice(at, at + width), totals[:, at : at + width].copy()) for at in range(0, totals.shape[1], width)]
    # Each resample of a block counts in its own row.
    row_starts = np.arange(block)[:, None] * units.count
    for first in range(0, resamples, block):
        size = min(block, resamples - first)
        drawn = rng.integers(0, units.count, (size, units.count))
        drawn += row_starts[:size]
        counts = np.bincount(drawn.ravel(), minlength=size * units.count)
        np.copyto(weights[:size], counts.reshape(size, units.count))
        for columns, part in parts:
            sums[first : first + size, columns] = weights[:size] @ part
    means: Values = sums[:, :-1] / sums[:, -1:]
    return means


def bootstrap_intervals(
    values: Values,
    units: Units,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Values | None:
    """Return the ends of the interval of each row's mean: rows × 2; None with one unit.

    They are percentiles of the resampled means, at the level of ``expanded_level``.
    Raises ``ConfigurationError`` unless ``0 < confidence < 1`` and ``resamples >= 1``.
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise ConfigurationError(
            f"confidence is {confidence} and resamples {resamples}: use a confidence between 0 and 1, such as 0.95, "
            "and at least one resample"
        )
    if units.count < 2:
        return None
    tail = (1 - expanded_level(confidence, units.count)) / 2
    start = copy.deepcopy(rng)
    ends = []
    for first in range(0, len(values), _ROWS):
        # All blocks of rows use the same resamples.
        drawing = rng if first == 0 else copy.deepcopy(start)
        means = bootstrap_means(values[first : first + _ROWS], units, drawing, resamples)
        ends.append(np.quantile(means.T.copy(), [tail, 1 - tail], axis=1).T)
    return np.concatenate(ends)


def expanded_level(confidence: float, units: int) -> float:
    """Return the percentile level that gives an interval its nominal coverage when units are few.

    Percentiles of n units are too narrow: they have the spread of n where n - 1 is due, and normal tails where
    Student's are. With α the error, each tail becomes Φ(-√(n / (n - 1)) · t) with t the 1 - α/2 quantile of Student's
    distribution with n - 1 degrees (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section
    5.3: the expanded percentile interval). 0.95 becomes 0.975 for 14 documents and 0.951 for 500. What skewed scores
    take away it does not give back: simulated right-or-wrong scores are covered at 0.95 from ``FEWEST_SURE`` documents
    on, and at 0.92 with six.
    """
    t = float(stdtrit(units - 1, (1 + confidence) / 2))
    return 1 - 2 * float(ndtr(-math.sqrt(units / (units - 1)) * t))


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
class Estimate:
    """A mean over ``n`` queries and its confidence interval over ``units``; no ``low`` and ``high`` with one unit."""

    mean: float
    low: float | None
    high: float | None
    n: int
    units: int
    unit: Unit


def estimates_of(
    values: Values,
    units: Units,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> list[Estimate]:
    """Return the mean and interval of each row; all rows share one resampling. Columns are queries."""
    ends = bootstrap_intervals(values, units, rng, resamples=resamples, confidence=confidence)
    means, n = values.mean(axis=1), values.shape[1]
    rows = [(None, None)] * len(means) if ends is None else ends.tolist()
    return [
        Estimate(mean, low, high, n, units.count, units.kind)
        for mean, (low, high) in zip(means.tolist(), rows, strict=True)
    ]


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
            f"{total} predictions came with {len(judged)} judgements, {n} of them made: give a judgement, or NaN, for "
            "each prediction, and at least one judgement"
        )
    each = np.ones(total) if weights is None else weights
    truth, guess = np.where(sampled, judged, 0.0) * each, predicted * each
    human, seen, everywhere = (float(mean) for mean in (truth.sum() / n, guess @ sampled / n, guess.mean()))
    of_people = (truth - human) * sampled / n
    of_model = (guess - everywhere) / total - (guess - seen) * sampled / n
    spread = float(of_model @ of_model)
    # If people judged everything, or the model gives only one value, the rest is rounding.
    is_informative = spread > _NOTHING * float(guess @ guess) / n**2
    weight = float(np.clip(-(of_people @ of_model) / spread, 0.0, 1.0)) if is_informative else 0.0
    one_more = float(np.sqrt(each @ each / max(1, int((each != 0).sum())))) / n

    def estimate(mean: float, deviations: Values, seen: NDArray[np.bool_], more: float) -> Estimate:
        groups, low, high = len(np.unique(units.numbers[seen])), None, None
        if groups > 1:
            by_unit = np.bincount(units.numbers, deviations, units.count)
            error = np.sqrt(groups / (groups - 1) * float(by_unit @ by_unit) + more**2)
            reach = more + float(stdtrit(groups - 1, (1 + CONFIDENCE) / 2) * error)
            low, high = mean - reach, mean + reach
        return Estimate(mean, low, high, int(seen.sum()), groups, units.kind)

    return PredictionPowered(
        estimate(human + weight * (everywhere - seen), of_people + weight * of_model, sampled, one_more),
        estimate(human, of_people, sampled, one_more),
        estimate(everywhere, (guess - everywhere) / total, np.ones(total, bool), 0.0),
        weight,
    )
