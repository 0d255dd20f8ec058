"""Configurations on the same queries: which differ, by how much, and which may be the best."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rag_eval.errors import TableError
from rag_eval.metrics.formulas import Values
from rag_eval.stats.bootstrap import RESAMPLES
from rag_eval.stats.estimates import Estimate, estimate, estimates_of
from rag_eval.stats.permutation import FLIPS, holm, sign_flip_p_values
from rag_eval.stats.ranks import best_first
from rag_eval.stats.scores import PairedScores, Unit

SIGNIFICANCE = 0.05
"""A difference is taken for real when its adjusted p-value is below this."""

EQUAL_WITHIN = 1e-12
"""Two scores that are no further apart than rounding are equal."""

Verdict = Literal["better", "worse", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two configurations on the same ``n`` queries: means, ``difference`` (after - before) and how sure it is.

    ``low`` and ``high`` are the interval of the difference, for this comparison alone, from resampling ``units``; None
    with one unit. ``p`` is the sign-flip test of no difference, ``p_adjusted`` the same after Holm's correction over
    what was compared together, and the verdict follows it. ``effect_size`` is the mean difference in standard
    deviations of the queries' differences (d_z); None where those are all the same and not 0. ``better``, ``worse``
    and ``equal`` count queries; for a metric of cost, lower is better.
    """

    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    p: float
    p_adjusted: float
    effect_size: float | None
    better: int
    worse: int
    equal: int
    n: int
    units: int
    unit: Unit
    verdict: Verdict

    @property
    def is_same(self) -> bool:
        """Whether every query scores the same."""
        return not (self.better or self.worse)


@dataclass(frozen=True, slots=True)
class Placed:
    """A configuration in a ranking: its mean, how it compares with the best, and whether it may be the best itself.

    ``against_best`` is None for the best; its ``before`` is the best, its ``after`` this one.
    """

    name: str
    estimate: Estimate
    against_best: Comparison | None
    among_best: bool


def compare(
    before: PairedScores,
    after: PairedScores,
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
    resamples: int = RESAMPLES,
) -> list[Comparison]:
    """Compare the configurations row by row; the p-values are adjusted over the rows.

    Raises ``TableError`` unless both have the same queries in the same order and the same number of rows.
    """
    if before.query_ids != after.query_ids or len(before.names) != len(after.names):
        raise TableError("what is compared must be scores of the same queries, row by row: use on() and subset() first")
    units = before.units
    differences = without_rounding(after.values - before.values)
    intervals = estimates_of(differences, units, rng, resamples=resamples)
    # Enough flips that the smallest p-value there can be is well below the significance after the correction.
    flips = max(FLIPS, 100 * len(differences))
    p_values = sign_flip_p_values(units.sums(differences), rng, flips=flips)
    found = []
    for row, (p, adjusted) in enumerate(zip(p_values.tolist(), holm(p_values).tolist(), strict=True)):
        gains = differences[row] if higher_is_better else -differences[row]
        interval = intervals[row]
        better, worse = int((gains > 0).sum()), int((gains < 0).sum())
        found.append(
            Comparison(
                before=float(before.values[row].mean()),
                after=float(after.values[row].mean()),
                difference=interval.mean,
                low=interval.low,
                high=interval.high,
                p=p,
                p_adjusted=adjusted,
                effect_size=_effect_size(differences[row]),
                better=better,
                worse=worse,
                equal=len(gains) - better - worse,
                n=interval.n,
                units=interval.units,
                unit=interval.unit,
                verdict=_verdict(adjusted, float(gains.sum())),
            )
        )
    return found


def without_rounding(differences: Values) -> Values:
    """The differences, with 0 for what is no more than rounding: a sign-flip test would take it for a sure difference
    where it has the same sign everywhere."""
    found: Values = np.where(np.abs(differences) <= EQUAL_WITHIN, 0.0, differences)
    return found


def rank(
    scores: PairedScores, rng: np.random.Generator, *, higher_is_better: bool = True, resamples: int = RESAMPLES
) -> list[Placed]:
    """The configurations, best mean first (equal ones in their order), each compared with the first.

    Those whose difference from the first is not significant are ``among_best``. The p-values are adjusted over these
    comparisons, which is enough for the group to hold the truly best configuration with 95 % confidence, although the
    first is chosen by the same scores: whichever configuration comes first, the truly best is left out only when one
    of the others beats it significantly, and there are as many of them as there are comparisons (J. Hsu, "Multiple
    Comparisons", 1996, on comparisons with the best). That Holm's steps ask for less than Bonferroni's is made up for
    by the tests being two-sided where only one side can leave it out: in simulations it is left out in 3 % at most.
    """
    order = best_first(scores.means().tolist(), higher_is_better=higher_is_better)
    ranked = scores.subset([scores.names[row] for row in order])
    estimates = estimate(ranked, rng, resamples=resamples)
    placed = [Placed(ranked.names[0], estimates[0], None, True)]
    if len(order) == 1:
        return placed
    others = ranked.subset(ranked.names[1:])
    best = replace(others, values=np.tile(ranked.values[0], (len(others.names), 1)))
    compared = compare(best, others, rng, higher_is_better=higher_is_better, resamples=resamples)
    for name, figure, comparison in zip(others.names, estimates[1:], compared, strict=True):
        placed.append(Placed(name, figure, comparison, comparison.p_adjusted >= SIGNIFICANCE))
    return placed


def _effect_size(differences: Values) -> float | None:
    mean = float(differences.mean())
    if not differences.any():
        return 0.0
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return mean / spread if spread > EQUAL_WITHIN else None


def _verdict(p_adjusted: float, gain: float) -> Verdict:
    if p_adjusted >= SIGNIFICANCE:
        return "no difference shown"
    return "better" if gain > 0 else "worse"
