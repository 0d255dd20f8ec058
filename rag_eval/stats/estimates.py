"""A mean and how sure it is."""

from dataclasses import dataclass

import numpy as np

from rag_eval.metrics.formulas import Values
from rag_eval.stats.bootstrap import CONFIDENCE, RESAMPLES, bootstrap_intervals
from rag_eval.stats.scores import PairedScores, Unit, Units


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


def estimate(
    scores: PairedScores, rng: np.random.Generator, *, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> list[Estimate]:
    """The mean of each configuration, in their order. The interval is for one mean, not for all of them together."""
    return estimates_of(scores.values, scores.units, rng, resamples=resamples, confidence=confidence)


def estimates_of(
    values: Values,
    units: Units,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> list[Estimate]:
    """The mean of each row; ``values`` has one column a query. All rows share one resampling."""
    ends = bootstrap_intervals(values, units, rng, resamples=resamples, confidence=confidence)
    means, n = values.mean(axis=1), values.shape[1]
    found = []
    for row, mean in enumerate(means.tolist()):
        low, high = (None, None) if ends is None else ends[row].tolist()
        found.append(Estimate(mean, low, high, n, units.count, units.kind))
    return found
