"""Compare configurations on the same queries: which differ, by how much and where, and which may be the best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rag_eval.errors import TableError
from rag_eval.metrics.metric import Values
from rag_eval.stats.intervals import CONFIDENCE, Estimate, difference_estimates, mean_estimates
from rag_eval.stats.paired_scores import PairedScores, Unit
from rag_eval.stats.significance import (
    RESAMPLES,
    ROUNDING,
    bootstrap_means,
    flips_for,
    holm,
    is_significant,
    sign_flip_p_values,
    without_rounding,
)

EQUAL_WITHIN = 1e-9
"""Means that differ by less are equal, because sums in another order round differently."""


def best_first(means: Sequence[float], *, higher_is_better: bool = True) -> list[int]:
    """Return the indices of the means, best first; equal means stay in order."""
    sign = -1 if higher_is_better else 1
    order = sorted(range(len(means)), key=lambda number: sign * means[number])
    places = shared_places([means[number] for number in order])
    return [number for _, number in sorted(zip(places, order, strict=True))]


def shared_places(means: Sequence[float]) -> list[int]:
    """Return the places, from 1, of means that are sorted best first; equal means share a place."""
    places: list[int] = []
    for number, mean in enumerate(means):
        is_tie = number > 0 and abs(means[number - 1] - mean) <= EQUAL_WITHIN
        places.append(places[-1] if is_tie else number + 1)
    return places


def place_labels(means: Sequence[float]) -> list[str]:
    """Return the places of means that are sorted best first as text; a shared place is marked, such as ``=1``."""
    places = shared_places(means)
    return [f"{'=' if places.count(place) > 1 else ''}{place}" for place in places]


Verdict = Literal["better", "worse", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A paired comparison of two configurations on the same ``n`` queries.

    Attributes:
        difference: The mean after minus the mean before.
        low, high: The interval of the difference over ``units``, unadjusted; None with one unit.
        p: The p-value of the sign-flip test of no difference.
        p_adjusted: The same after Holm's correction over all comparisons made together; it decides the verdict.
        better, worse, equal: Numbers of queries.
    """

    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    p: float
    p_adjusted: float
    better: int
    worse: int
    equal: int
    n: int
    units: int
    unit: Unit
    verdict: Verdict

    @property
    def is_same(self) -> bool:
        """Whether every query scores the same in both."""
        return not (self.better or self.worse)


@dataclass(frozen=True, slots=True)
class Placed:
    """A configuration in a ranking, and whether it may be the best.

    ``against_best`` compares it with the first; None for the first. ``probability`` is that of being the best or near
    it (``near_best``); None with one unit, and for those among the best if some are ``too_alike``.
    """

    name: str
    estimate: Estimate
    against_best: Comparison | None
    among_best: bool
    probability: float | None = None


def compare(
    before: PairedScores,
    after: PairedScores,
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
    confidence: float = CONFIDENCE,
) -> list[Comparison]:
    """Compare configurations row by row; the p-values are adjusted over the rows.

    Raises:
        TableError: The two do not have the same queries in the same order and the same number of rows.
    """
    if before.query_ids != after.query_ids or len(before.names) != len(after.names):
        raise TableError("only scores of the same queries can be compared: use on() and subset() first")
    differences = without_rounding(after.values - before.values)
    intervals = difference_estimates(differences, before.units, confidence)
    p_values = sign_flip_p_values(before.units.sums(differences), rng, flips=flips_for(len(differences)))
    sign = 1 if higher_is_better else -1
    comparisons = []
    for row, (interval, p, adjusted) in enumerate(
        zip(intervals, p_values.tolist(), holm(p_values).tolist(), strict=True)
    ):
        gains = sign * differences[row]
        better, worse = int((gains > 0).sum()), int((gains < 0).sum())
        verdict: Verdict = "no difference shown"
        if is_significant(adjusted):
            verdict = "better" if gains.sum() > 0 else "worse"
        comparisons.append(
            Comparison(
                before=float(before.values[row].mean()),
                after=float(after.values[row].mean()),
                difference=interval.mean,
                low=interval.low,
                high=interval.high,
                p=p,
                p_adjusted=adjusted,
                better=better,
                worse=worse,
                equal=len(gains) - better - worse,
                n=interval.n,
                units=interval.units,
                unit=interval.unit,
                verdict=verdict,
            )
        )
    return comparisons


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Adjust the p-values over all these comparisons; those that are no longer significant show no difference."""
    adjusted = holm(np.array([comparison.p for comparison in comparisons])).tolist()
    return [
        replace(comparison, p_adjusted=p, verdict=comparison.verdict if is_significant(p) else "no difference shown")
        for comparison, p in zip(comparisons, adjusted, strict=True)
    ]


def rank(
    scores: PairedScores, rng: np.random.Generator, *, higher_is_better: bool = True, resamples: int = RESAMPLES
) -> list[Placed]:
    """Rank the configurations by their means, and compare each with the first.

    Those whose difference from the first is not significant are ``among_best``. The p-values are adjusted over these
    comparisons, which is enough for the group to hold the truly best configuration with 95 % confidence, although the
    first is chosen by the same scores: whichever configuration comes first, the truly best is left out only when one
    of the others beats it significantly, and there are as many of them as there are comparisons (J. Hsu, "Multiple
    Comparisons", 1996, on comparisons with the best). Holm's steps are less strict than Bonferroni's, but the tests are
    two-sided although only one side can leave the best out: in simulations it is left out in at most 3 % of cases.
    """
    order = best_first(scores.values.mean(axis=1).tolist(), higher_is_better=higher_is_better)
    ranked = scores.subset([scores.names[row] for row in order])
    estimates = mean_estimates(ranked.values, ranked.units)
    shares: list[float | None] = [None] * len(order)
    if ranked.units.count > 1:
        near = margin_at(estimates[0].mean, NEAR)
        shares = list(near_best(ranked, rng, higher_is_better=higher_is_better, near=near, resamples=resamples))
    placed = [Placed(ranked.names[0], estimates[0], None, True, shares[0])]
    if len(order) == 1:
        return placed
    others = ranked.subset(ranked.names[1:])
    best = replace(others, values=np.tile(ranked.values[0], (len(others.names), 1)))
    compared = compare(best, others, rng, higher_is_better=higher_is_better)
    for name, estimate, comparison, share in zip(others.names, estimates[1:], compared, shares[1:], strict=True):
        placed.append(Placed(name, estimate, comparison, not is_significant(comparison.p_adjusted), share))
    if too_alike(placed):
        # If a few differences all favour the first, they favour it in every resample.
        placed = [replace(rival, probability=None) if rival.among_best else rival for rival in placed]
    return placed


FEWEST_DIFFERENT = 6
"""With fewer differing questions, a sign-flip test cannot be significant."""


def too_alike(placed: Sequence[Placed]) -> list[Placed]:
    """Return the configurations that differ from the first on few questions, all in one direction.

    If all configurations score the same on every question, return all of them.
    """
    rivals = [(rival, rival.against_best) for rival in placed if rival.against_best is not None]
    few = [
        rival
        for rival, by in rivals
        if 0 < max(by.better, by.worse) < FEWEST_DIFFERENT and not min(by.better, by.worse)
    ]
    return few or ([rival for rival, _ in rivals] if all(by.is_same for _, by in rivals) else [])


NEAR = 0.005
"""Means that differ by less count as equally good: half a percentage point."""


def margin_at(mean: float, margin: float) -> float:
    """Scale a margin to the mean: unchanged for means from ½ to 1, in proportion below and above."""
    return margin * max(min(1.0, 2 * abs(mean)), abs(mean))


def near_best(
    scores: PairedScores,
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
    near: float = NEAR,
    resamples: int = RESAMPLES,
) -> Values:
    """Return for each configuration the probability that its true mean is the best, or within ``near`` of the best.

    The share of joint resamples of the units in which it is, each resample's strays from the observed means widened as
    for an interval: by √(n / (n - 1)), and by as much as Student's distribution with n - 1 degrees is wider than the
    normal one. The first of many is partly lucky, so means close to it are ``_drawn_together``.
    """
    units, sign = scores.units, 1 if higher_is_better else -1
    observed = sign * scores.values.mean(axis=1)
    strays = sign * bootstrap_means(scores.values, units, rng, resamples) - observed
    strays *= np.sqrt(units.count / rng.chisquare(units.count - 1, (resamples, 1)))
    means = observed + strays
    behind = observed.max() - observed
    close = np.flatnonzero(behind <= CLOSE_ERRORS * (strays - strays[:, [behind.argmin()]]).std(axis=0))
    means[:, close] = _drawn_together(observed[close], strays[:, close], max(near, ROUNDING), rng)
    shares: Values = (means >= means.max(axis=1, keepdims=True) - near).mean(axis=0)
    return shares


CLOSE_ERRORS = 1.5
"""Number of standard errors of the difference within which means are close to the first."""

_SPREADS = np.geomspace(1, 40, 60)


def _drawn_together(observed: Values, strays: Values, near: float, rng: np.random.Generator) -> Values:
    """Draw true means that are normal around a common centre, given the observed means and how resamples stray.

    Empirical Bayes: along each principal axis of the strays, of variance v, the observed mean is shrunk by
    τ² / (τ² + v) and strays by its root. The spread τ of the true means is drawn by how well it explains the observed
    ones, and is no less than what counts as near: other configurations are seldom more alike.
    """
    centre, common = observed.mean(), strays.mean(axis=1, keepdims=True)
    apart = strays - common
    variances, axes = np.linalg.eigh(apart.T @ apart / len(apart))
    variances, along = np.maximum(variances, ROUNDING**2), (observed - centre) @ axes
    spreads = (near * _SPREADS) ** 2
    wide = spreads[:, None] + variances
    # A common axis of all configurations is not a difference, and says nothing about the spread.
    fit = (np.log(spreads) - (np.log(wide) + along**2 / wide).sum(axis=1)) / 2
    weights = np.exp(fit - fit.max())
    drawn = rng.choice(spreads, len(strays), p=weights / weights.sum())[:, None]
    kept = drawn / (drawn + variances)
    together: Values = centre + common + (kept * along + np.sqrt(kept) * (apart @ axes)) @ axes.T
    return together
