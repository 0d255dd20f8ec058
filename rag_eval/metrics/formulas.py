"""The arithmetic that the metrics share, for any number of queries at once.

Counts and values have one entry a query. Gains have one row a rank and one column a query: what the hit at that rank
adds to what the hits before it had found.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Values = NDArray[np.float64]


def ratio(part: Counts | Values, whole: Counts | Values, empty: float = 0.0) -> Values:
    """``part / whole``, and ``empty`` where the whole is 0."""
    values = np.full(whole.shape, empty, dtype=np.float64)
    return np.divide(part, whole, out=values, where=whole > 0)


@lru_cache(maxsize=8)
def discounts(ranks: int) -> Values:
    """``1 / log2(rank + 1)`` for the ranks 1, 2, …; shared, so read-only."""
    values = np.array([1 / math.log2(rank + 1) for rank in range(1, ranks + 1)], dtype=np.float64)
    values.flags.writeable = False
    return values


def hit_rate(gains: Counts) -> Values:
    """1 where any rank has a gain, else 0."""
    found: NDArray[np.bool_] = np.any(gains > 0, axis=0)
    return found.astype(np.float64)


def reciprocal_rank(gains: Counts) -> Values:
    """1 / the first rank that has a gain; 0 where none has."""
    values = np.zeros(gains.shape[1])
    for rank, gain in enumerate(gains, start=1):
        np.maximum(values, (gain > 0) / rank, out=values)
    return values


def average_precision(gains: Counts, total: Counts) -> Values:
    """Σ gain(i) · P(i) / total, P(i) being the share of the first i ranks that have a gain; 0 where the total is 0."""
    useful = np.zeros(gains.shape[1], dtype=np.int64)
    weighted = np.zeros(gains.shape[1])
    for rank, gain in enumerate(gains, start=1):
        useful += gain > 0
        weighted += gain * (useful / rank)
    return ratio(weighted, total)


def discounted_gain(gains: Counts) -> Values:
    """Σ gain(i) / log2(i + 1)."""
    values = np.zeros(gains.shape[1])
    # Added rank by rank: the same sum, to the last bit, for one query and for many.
    for gain, discount in zip(gains, discounts(len(gains)), strict=True):
        values += gain * discount
    return values
