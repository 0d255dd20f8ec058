"""Test differences for significance, and compute how many documents a significant difference needs.

Differences are arrays of rows × units, summed over the queries of each unit.
"""

import math
from bisect import bisect_left
from typing import Literal

import numpy as np
from scipy.special import chdtri, nctdtr, stdtrit

from rag_eval.metrics.metric import Values
from rag_eval.stats.paired_scores import Units

ROUNDING = 1e-12
"""Scores that differ by no more than this are equal, because of rounding."""

SIGNIFICANCE = 0.05
"""A difference is significant if its adjusted p-value is below this."""

FLIPS = RESAMPLES = 10_000
# Draws per block, small enough for the processor cache.
_DRAWS = 32_000
# Multiplications per product: above, BLAS starts threads, which cost a hundred times the product on a busy machine;
# but at least a few resamples, so that totals are not read again for each.
_PRODUCT, _FEWEST = 2**18, 8
# Signs per block, to bound memory.
_BLOCK = 1_000_000

Alternative = Literal["two-sided", "greater"]


def is_significant(p_value: float) -> bool:
    """Return whether an adjusted p-value is below ``SIGNIFICANCE``."""
    return p_value < SIGNIFICANCE


def without_rounding(differences: Values) -> Values:
    """Replace rounding errors by 0, because a sign-flip test would take errors of one sign for a certain difference."""
    exact: Values = np.where(np.abs(differences) <= ROUNDING, 0.0, differences)
    return exact


def flips_for(tests: int) -> int:
    """Return how many sign patterns to use so that the smallest p-value times the number of tests can be 0.01."""
    return max(FLIPS, 100 * tests)


def sign_flip_p_values(
    sums: Values, rng: np.random.Generator, alternative: Alternative = "two-sided", flips: int = FLIPS
) -> Values:
    """Return the p-value of no difference for each row.

    Without a difference each unit's sum is as likely to have the other sign. The statistic is the sum over all units;
    p is the share of sign patterns whose statistic is at least as large as the observed one (``two-sided``: in size).
    All 2ⁿ patterns are used when there are at most ``flips`` of them; otherwise ``flips`` - 1 random ones and the
    observed one, so p is never 0. p is 1 where all differences are 0.
    """
    rows, units = sums.shape
    observed = sums.sum(axis=1)
    # Sums in another order differ by rounding and must count as equal.
    threshold = (np.abs(observed) if alternative == "two-sided" else observed) - 1e-10 * np.abs(sums).sum(axis=1)
    exact = 2**units <= flips
    patterns = 2**units if exact else flips - 1
    reached = np.zeros(rows) if exact else np.ones(rows)
    block = max(1, _BLOCK // units)
    for first in range(0, patterns, block):
        size = min(block, patterns - first)
        if exact:
            signs = np.arange(first, first + size)[:, None] >> np.arange(units) & 1
        else:
            signs = rng.integers(0, 2, (size, units), dtype=np.int8)
        flipped = (signs * 2.0 - 1.0) @ sums.T
        if alternative == "two-sided":
            np.abs(flipped, out=flipped)
        reached += (flipped >= threshold).sum(axis=0)
    p_values: Values = reached / (patterns if exact else flips)
    return p_values


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


def rise_p_values(sums: Values, rng: np.random.Generator, resamples: int = RESAMPLES) -> Values:
    """Return the p-value of a mean of 0 or less for each row.

    The larger of two: that of the sign-flip test, and that of the bootstrap-t, the share of resamples of the units
    whose mean strays from the row's as far, in its own standard errors, as the row's does from 0 (B. Efron,
    R. Tibshirani, *An Introduction to the Bootstrap*, 1993, section 12.5). The first assumes symmetric differences,
    which those of few documents seldom are: of 12 configurations that dropped just as far as allowed in 14 documents
    it rejects one or more in 13 % of draws where differences have a long tail, both together in 8 %; where most are 0
    and a few 1 or -1, in 3.3 and 2.6 %. A resample's error counts as at least a third of the row's: a resample without
    the few units that differ has next to none, and would stray infinitely far.
    """
    rows, units = sums.shape
    flipped = sign_flip_p_values(sums, rng, "greater", resamples)
    if units < 2:
        return flipped
    means = sums.mean(axis=1)
    strays = sums - means[:, None]
    drawn = bootstrap_means(np.vstack([strays, strays**2]), Units("queries", np.arange(units), units), rng, resamples)
    error = np.sqrt((strays**2).mean(axis=1) / (units - 1))
    errors = np.maximum(np.sqrt(np.maximum(drawn[:, rows:] - drawn[:, :rows] ** 2, 0.0) / (units - 1)), error / 3)
    reached = (_in_errors(drawn[:, :rows], errors) >= _in_errors(means, error)).sum(axis=0)
    larger: Values = np.maximum(flipped, (1 + reached) / (1 + resamples))
    return larger


def _in_errors(means: Values, errors: Values) -> Values:
    """Divide means by their standard errors; with an error of 0 the result is infinite, or 0 for a mean of 0."""
    exact = np.where(np.abs(means) <= ROUNDING, 0.0, np.copysign(np.inf, means))
    quotients: Values = np.divide(means, errors, out=exact, where=errors > ROUNDING)
    return quotients


def certified_p_values(sums: Values, bound: float, rng: np.random.Generator, draws: int = RESAMPLES) -> Values:
    """Return Gaffke's p-value of a mean of 0 or less for each row of units, none of which is below ``-bound``.

    Unlike the sign flips it assumes nothing of the shape of differences, so units that the sample has missed may be as
    low as the bound: weights that are uniform on the simplex go to the bound and to the units, and p is the share of
    draws whose weighted sum is 0 at most. That it holds is a conjecture without a known counterexample (N. Gaffke,
    "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable", 2005).
    """
    rows, units = sums.shape
    ends = np.vstack([np.full(rows, -bound), sums.T])
    reached = np.ones(rows)
    block = max(1, _BLOCK // (units + 1))
    for first in range(0, draws - 1, block):
        weights = rng.standard_exponential((min(block, draws - 1 - first), units + 1))
        reached += (weights @ ends <= ROUNDING).sum(axis=0)
    p_values: Values = reached / draws
    return p_values


def least_certified(units: int, tests: int, bound: float) -> float:
    """Return the least mean that ``certified_p_values`` can tell from 0 in so many units, if all have this mean."""
    return bound * (math.pow(tests / SIGNIFICANCE, 1 / units) - 1)


def holm(p_values: Values) -> Values:
    """Adjust p-values for multiple tests (S. Holm, 1979).

    Rejecting where they are below α errs in any of them with probability α at most. The i-th smallest of m, counted
    from 0, is multiplied by m - i; none is smaller than those before it, or above 1.
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


POWER = 0.8
# The upper quantile of the pilot's variances: small pilots underestimate them.
_UPPER = 0.8


def documents_needed(differences: Values, units: Units, tests: int = 1) -> int | None:
    """Return how many documents make the mean difference significant with a power of 80 %.

    From the noncentral t with SE² = (σ_b² + σ_w² / queries a document) / documents, where σ_b² and σ_w² are the
    variances between documents and within them, at their upper 80 % limit; with Bonferroni's correction for ``tests``.
    ``differences`` have one value a query.

    Returns:
        None if there are fewer than two units, nothing varies, the mean is not positive, or half a million is too few.
    """
    mean = float(differences.mean())
    if units.count < 2 or np.abs(differences - mean).max() <= ROUNDING or mean <= 0:
        return None
    between, within = _variances(differences, units)
    variance = between + within / (len(differences) / units.count)

    def is_enough(documents: int) -> bool:
        error = math.sqrt(variance / documents)
        limit = float(stdtrit(documents - 1, 1 - SIGNIFICANCE / tests))
        return error <= 0 or 1 - float(nctdtr(documents - 1, mean / error, limit)) >= POWER

    most = next(filter(is_enough, (2 << step for step in range(19))), None)
    return None if most is None else 2 + bisect_left(range(2, most), True, key=is_enough)


def _variances(differences: Values, units: Units) -> tuple[float, float]:
    """Return the variances between units and within them, by the analysis of variance for unequal groups.

    With one query per unit, all variance is between units.
    """
    means = units.sums(differences[None])[0] / units.sizes
    inside = len(differences) - units.count
    within = float(((differences - means[units.numbers]) ** 2).sum()) / inside if inside else 0.0
    spread = float((units.sizes * (means - differences.mean()) ** 2).sum()) / (units.count - 1)
    usual = (len(differences) - float((units.sizes**2).sum()) / len(differences)) / (units.count - 1)
    between = max(0.0, spread - within) / usual
    limit = (units.count - 1) / float(chdtri(units.count - 1, _UPPER))
    return between * limit, within * limit
