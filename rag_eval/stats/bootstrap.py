"""A mean and how sure it is."""

import copy
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.scores import Unit, Units

RESAMPLES = 10_000
CONFIDENCE = 0.95

FEWEST_SURE = 10
"""From so many documents on an interval covers at its nominal rate, with fewer a little less often."""

# Draws at a time: few enough for the processor's cache.
_DRAWS = 32_000
# Multiplications at a time: above, BLAS wakes threads, which cost a hundred times the product on a busy machine; but
# some resamples at least, so that the totals are not read anew for each.
_PRODUCT, _FEWEST = 2**18, 8
# Rows at a time, to bound memory.
_ROWS = 500


def bootstrap_means(values: Values, units: Units, rng: np.random.Generator, resamples: int = RESAMPLES) -> Values:
    """The mean of each row in each resample: resamples × rows. ``values`` has one column a query."""
    totals = np.vstack([units.sums(values), units.sizes]).T.copy()
    found = np.empty((resamples, totals.shape[1]))
    block = max(_FEWEST, min(_DRAWS, _PRODUCT // totals.shape[1]) // units.count)
    weights = np.empty((block, units.count))
    width = max(1, _PRODUCT // (block * units.count))
    parts = [(slice(at, at + width), totals[:, at : at + width].copy()) for at in range(0, totals.shape[1], width)]
    # Every resample of a block counts in a row of its own.
    row_starts = np.arange(block)[:, None] * units.count
    for first in range(0, resamples, block):
        size = min(block, resamples - first)
        drawn = rng.integers(0, units.count, (size, units.count))
        drawn += row_starts[:size]
        counts = np.bincount(drawn.ravel(), minlength=size * units.count)
        np.copyto(weights[:size], counts.reshape(size, units.count))
        for columns, part in parts:
            found[first : first + size, columns] = weights[:size] @ part
    means: Values = found[:, :-1] / found[:, -1:]
    return means


def bootstrap_intervals(
    values: Values,
    units: Units,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Values | None:
    """The low and high end of the interval of each row's mean: rows × 2; None when there is but one unit.

    Percentiles of the resampled means, at the level of ``expanded_level``.
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
        # Every block of rows meets the same resamples.
        drawing = rng if first == 0 else copy.deepcopy(start)
        means = bootstrap_means(values[first : first + _ROWS], units, drawing, resamples)
        ends.append(np.quantile(means.T.copy(), [tail, 1 - tail], axis=1).T)
    return np.concatenate(ends)


def expanded_level(confidence: float, units: int) -> float:
    """The level of the percentiles that gives an interval its nominal coverage when units are few.

    Percentiles of n units are too narrow: they have the spread of n where n - 1 is due, and normal tails where
    Student's are. With α the error, each tail becomes Φ(-√(n / (n - 1)) · t) with t the 1 - α/2 quantile of Student's
    distribution with n - 1 degrees (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section
    5.3: the expanded percentile interval). 0.95 becomes 0.975 for 14 documents and 0.951 for 500. What skewed scores
    take away it does not give back: simulated right-or-wrong scores are covered at 0.95 from ``FEWEST_SURE`` documents
    on, and at 0.92 with six.
    """
    t = float(stdtrit(units - 1, (1 + confidence) / 2))
    return 1 - 2 * float(ndtr(-math.sqrt(units / (units - 1)) * t))


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean over ``n`` queries, and its confidence interval from resampling ``units`` documents (or queries).

    ``low`` and ``high`` are None when there is but one unit: one unit says nothing about the others.
    """

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
    """The mean of each row; ``values`` has one column a query. All rows share one resampling.

    An interval is for one mean, not for all of them together.
    """
    ends = bootstrap_intervals(values, units, rng, resamples=resamples, confidence=confidence)
    means, n = values.mean(axis=1), values.shape[1]
    found = []
    for row, mean in enumerate(means.tolist()):
        low, high = (None, None) if ends is None else ends[row].tolist()
        found.append(Estimate(mean, low, high, n, units.count, units.kind))
    return found
