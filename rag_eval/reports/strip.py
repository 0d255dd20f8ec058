"""The strip: which configuration is first at every budget of tokens, and which cannot be told apart from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from rag_eval.metrics.budget import STRIP, RecallWithinTokens, TokensFetched
from rag_eval.metrics.metric import Counts, Values, score_name
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import SEED, RunScores
from rag_eval.stats.comparison import best_first
from rag_eval.stats.estimates import bootstrap_intervals
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.stats.significance import holm, is_significant, sign_flip_p_values

USED_UP = 0.05
"""The hits of a configuration end before a budget where they do for more than this share of the questions."""

_RESAMPLES, _FLIPS = 2_000, 2_000

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Strip:
    """Who is first at every budget: of each configuration the mean at each of ``budgets``, which rise.

    ``means``, ``low`` and ``high`` (95 %) are by name, a value a budget; None from where on the hits of more than 5 %
    of the questions are used up: beyond, one would compare how many hits were fetched. ``first`` has the configuration
    with the best mean at each budget, None where the hits of all are used up; ``among`` all that cannot be told apart
    from it, itself included.
    """

    metric: str
    budgets: list[int]
    means: dict[str, list[float | None]]
    low: dict[str, list[float | None]]
    high: dict[str, list[float | None]]
    first: list[str | None]
    among: list[list[str]]

    def stretches(self) -> list[tuple[int, int, str]]:
        """Return the budgets, from the lowest to the highest, over which a configuration stays first."""
        known = [(budget, name) for budget, name in zip(self.budgets, self.first, strict=True) if name is not None]
        found = []
        for name, group in groupby(known, key=lambda one: one[1]):
            budgets = [budget for budget, _ in group]
            found.append((budgets[0], budgets[-1], name))
        return found


def strip_of(scores: RunScores, outcome: BenchmarkOutcome, budget: int) -> Strip | None:
    """Return the winners at every budget of the strip and at this one; None where a run has no scores at budgets.

    Equal ones are in the order in which the run ranks them by that budget.
    """
    budgets = [one for one in sorted({*STRIP, budget}) if _within(one) in scores.metrics]
    if not scores.configurations or len(budgets) < 2 or TokensFetched.label not in scores.metrics:
        return None
    paired = [scores.paired(_within(one)) for one in budgets]
    units, names = paired[0].units, paired[0].names
    rows = np.concatenate([one.values for one in paired])
    shape = (len(budgets), len(names))
    ends = bootstrap_intervals(rows, units, np.random.default_rng(SEED), resamples=_RESAMPLES)
    fetched = scores.paired(TokensFetched.label).values
    reached = np.array([(fetched <= one).mean(axis=1) <= USED_UP for one in budgets])
    means = np.where(reached, rows.mean(axis=1).reshape(shape), -np.inf)
    first = np.array([_first(row, names, outcome.by(_within(one))) for row, one in zip(means, budgets, strict=True)])
    among = _among_first(paired, first) & reached
    lows, highs = (None, None) if ends is None else (ends[:, 0].reshape(shape), ends[:, 1].reshape(shape))
    by_name = [{name: _column(one, reached, n) for n, name in enumerate(names)} for one in (means, lows, highs)]
    winners = [names[one] if reached[at].any() else None for at, one in enumerate(first.tolist())]
    tied = [[name for n, name in enumerate(names) if row[n]] for row in among]
    return Strip(RecallWithinTokens.label, budgets, by_name[0], by_name[1], by_name[2], winners, tied)


def _first(means: Values, names: Sequence[str], outcome: BenchmarkOutcome) -> int:
    """The place of the best mean, of equal ones that which the ranking has first."""
    order = [names.index(one.name) for one in outcome.ranked()]
    return order[best_first(means[order].tolist())[0]]


def _within(budget: int) -> str:
    return score_name(RecallWithinTokens.label, "tokens", budget)


def _column(values: Values | None, reached: Flags, place: int) -> list[float | None]:
    if values is None:
        return [None] * len(reached)
    return [
        round(float(one), 6) if there else None for one, there in zip(values[:, place], reached[:, place], strict=True)
    ]


def _among_first(paired: Sequence[PairedScores], first: Counts) -> Flags:
    """For each budget which configurations cannot be told apart from the first: the test of the ranking at each."""
    units, count = paired[0].units, len(paired[0].names)
    sums = np.concatenate([units.sums(one.values[at] - one.values) for one, at in zip(paired, first, strict=True)])
    p_values = sign_flip_p_values(sums, np.random.default_rng(SEED), flips=max(_FLIPS, 40 * count))
    among = np.ones((len(paired), count), bool)
    for row, (at, p_row) in enumerate(zip(first.tolist(), p_values.reshape(among.shape), strict=True)):
        others = [n for n in range(count) if n != at]
        among[row, others] = [not is_significant(p) for p in holm(p_row[others]).tolist()]
    return among
