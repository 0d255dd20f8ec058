"""Paired tests by flipping signs: were the two labels of a unit exchanged, would the difference be as large?"""

from typing import Literal

import numpy as np

from rag_eval.metrics.formulas import Values

FLIPS = 10_000

# Signs at a time, to bound memory.
_BLOCK = 1_000_000

Alternative = Literal["two-sided", "greater"]


def sign_flip_p_values(
    sums: Values, rng: np.random.Generator, alternative: Alternative = "two-sided", flips: int = FLIPS
) -> Values:
    """For each row of differences, summed over units (rows × units), the p-value of no difference.

    Under no difference each unit's sum is as likely to have the other sign. The statistic is the sum over all units;
    p is the share of sign patterns whose statistic is at least as large as the one seen (``two-sided``: in size).
    All 2ⁿ patterns are looked at when there are at most ``flips`` of them; otherwise ``flips`` - 1 random ones and the
    one seen, so p is never 0. p is 1 where all differences are 0.
    """
    rows, units = sums.shape
    seen = sums.sum(axis=1)
    # Sums of the same numbers in another order differ by rounding: what is equal on paper counts as equal.
    threshold = (np.abs(seen) if alternative == "two-sided" else seen) - 1e-10 * np.abs(sums).sum(axis=1)
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


def holm(p_values: Values) -> Values:
    """The p-values corrected for being several (S. Holm, 1979): rejecting where they are below α errs in any of them
    with probability α at most.

    The i-th smallest of m, counted from 0, is multiplied by m - i; none is smaller than those before it, or above 1.
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
