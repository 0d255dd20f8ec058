"""Compute the strip: the winner at every token budget, and the configurations that are tied with it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import sqrt
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from rag_eval.metrics.formulas import BUDGET, STRIP, RecallWithinTokens, TokensFetched
from rag_eval.metrics.metric import Counts, Values, score_name, split_name
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import SEED, RunScores
from rag_eval.stats.comparison import best_first
from rag_eval.stats.intervals import mean_intervals
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.stats.significance import holm, is_significant, sign_flip_p_values

USED_UP = 0.05
"""A configuration's curve ends where its hits are used up for more than this share of the questions."""

MOST_LANES = 6
"""Maximum number of configurations for which the page draws a lane."""

_FLIPS = 2_000

Flags = NDArray[np.bool_]
Curve = list[float | None]
Point = tuple[float, float | None, float | None]
"""A mean and the ends of its 95 % interval."""


class Lane(TypedDict):
    """A configuration that wins at some budget: the ranges of budgets in which it is first, and tied with the first."""

    name: str
    first: list[tuple[float, float]]
    tied: list[tuple[float, float]]


@dataclass(frozen=True)
class Strip:
    """The winner at every budget, and the mean of every configuration there.

    Attributes:
        metric: Recall within tokens.
        budget: The budget of the run, one of the budgets.
        budgets: The budgets, rising.
        means: The mean at each budget, by configuration; None from where on its hits are used up for more than 5 % of
            the questions: beyond, one would compare how many hits were fetched.
        low: The lower ends of the 95 % intervals.
        high: The upper ends.
        first: The configuration with the best mean at each budget; None if the hits of all are used up.
        among: The configurations not significantly different from it, itself included.
    """

    metric: str
    budget: int
    budgets: list[int]
    means: dict[str, Curve]
    low: dict[str, Curve]
    high: dict[str, Curve]
    first: list[str | None]
    among: list[list[str]]

    def stretches(self) -> list[tuple[int, int, str]]:
        """Return the budget ranges, from the lowest to the highest, over which a configuration stays first."""
        runs = [(name, [at for at, _ in run]) for name, run in groupby(enumerate(self.first), key=lambda row: row[1])]
        return [(self.budgets[at[0]], self.budgets[at[-1]], name) for name, at in runs if name is not None]

    def lines(self, names: Iterable[str]) -> list[list[Point | None]]:
        """Return the mean of each configuration at each budget with its interval; None if its hits are used up."""
        curves = ([*zip(self.means[name], self.low[name], self.high[name], strict=True)] for name in names)
        return [[None if mean is None else (mean, low, high) for mean, low, high in curve] for curve in curves]

    def lanes(self, shipped: str) -> list[Lane]:
        """Return a lane for the shipped configuration and those that win most, in the order of where they win.

        A stretch extends halfway to the next budgets, on a logarithmic scale.
        """
        edges = [self.budgets[0], *(sqrt(low * high) for low, high in pairwise(self.budgets)), self.budgets[-1]]

        def stretches(flags: Sequence[bool]) -> list[tuple[float, float]]:
            return [(round(edges[first], 1), round(edges[last + 1], 1)) for first, last in _runs(flags)]

        wins = {name: [at for at, winner in enumerate(self.first) if winner == name] for name in self.first if name}
        drawn = sorted(wins, key=lambda name: (name != shipped, -len(wins[name])))[:MOST_LANES]
        return [
            {
                "name": name,
                "first": stretches([winner == name for winner in self.first]),
                "tied": stretches([name in among for among in self.among]),
            }
            for name in sorted(drawn, key=lambda name: sum(wins[name]) / len(wins[name]))
        ]

    def safe_budgets(self, name: str, budget: int | None) -> tuple[int, int] | None:
        """Return the budgets around this one at which no other configuration is significantly better."""
        runs = _runs([name in among for among in self.among])
        ranges = ((self.budgets[first], self.budgets[last]) for first, last in runs)
        return next(((low, high) for low, high in ranges if budget is not None and low <= budget <= high), None)


def _runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the first and the last index of each run of true values."""
    runs = [list(run) for is_on, run in groupby(range(len(flags)), key=flags.__getitem__) if is_on]
    return [(run[0], run[-1]) for run in runs]


def strip_of(scores: RunScores, outcome: BenchmarkOutcome) -> Strip | None:
    """Return the winners at every budget of the strip and at the budget of the run; None without such scores.

    Equal ones are in the order in which the run ranks them by that budget.
    """
    budget = _budget(outcome)
    budgets = [size for size in sorted({*STRIP, budget}) if _within(size) in scores.metrics]
    if not scores.configurations or len(budgets) < 2 or TokensFetched.label not in scores.metrics:
        return None
    paired = [scores.paired(_within(size)) for size in budgets]
    units, names = paired[0].units, paired[0].names
    rows = np.concatenate([at_budget.values for at_budget in paired])
    shape = (len(budgets), len(names))
    low, high = np.full((2, *shape), np.nan)
    for at, at_budget in enumerate(paired):
        ends = mean_intervals(at_budget.values, units)
        if ends is not None:
            low[at], high[at] = ends.T
    fetched = scores.paired(TokensFetched.label).values
    reached = (fetched <= np.array(budgets)[:, None, None]).mean(axis=2) <= USED_UP
    means = np.where(reached, rows.mean(axis=1).reshape(shape), -np.inf)
    first = np.array([_first(row, names, outcome.by(_within(size))) for row, size in zip(means, budgets, strict=True)])
    labels = np.array(names, object)
    winners = labels[first]
    winners[~reached.any(axis=1)] = None
    return Strip(
        metric=RecallWithinTokens.label,
        budget=budget,
        budgets=budgets,
        means=_curves(means, reached, names),
        low=_curves(low, reached, names),
        high=_curves(high, reached, names),
        first=winners.tolist(),
        among=[labels[row].tolist() for row in _among_first(paired, first) & reached],
    )


def _budget(outcome: BenchmarkOutcome) -> int:
    cut = split_name(outcome.ranking_metric)[1]
    return cut.size if cut.kind == "tokens" else outcome.config.budget or BUDGET


def _first(means: Values, names: Sequence[str], outcome: BenchmarkOutcome) -> int:
    """Return the row of the best mean; of equal ones, the first in the ranking."""
    order = [names.index(configuration.name) for configuration in outcome.ranked()]
    return order[best_first(means[order].tolist())[0]]


def _within(budget: int) -> str:
    return score_name(RecallWithinTokens.label, "tokens", budget)


def _curves(values: Values, reached: Flags, names: Sequence[str]) -> dict[str, Curve]:
    rounded = np.where(reached, values.round(6), np.nan).T.tolist()
    return {
        name: [None if value != value else value for value in row] for name, row in zip(names, rounded, strict=True)
    }


def _among_first(paired: Sequence[PairedScores], first: Counts) -> Flags:
    """Test at each budget, as the ranking is tested, which configurations are tied with the first."""
    units, count = paired[0].units, len(paired[0].names)
    differences = [scores.values[at] - scores.values for scores, at in zip(paired, first, strict=True)]
    sums = np.concatenate([units.sums(rows) for rows in differences])
    p_values = sign_flip_p_values(sums, np.random.default_rng(SEED), flips=max(_FLIPS, 40 * count))
    among = np.ones((len(paired), count), bool)
    for row, (at, p_row) in enumerate(zip(first.tolist(), p_values.reshape(among.shape), strict=True)):
        others = [n for n in range(count) if n != at]
        among[row, others] = [not is_significant(p) for p in holm(p_row[others]).tolist()]
    return among
