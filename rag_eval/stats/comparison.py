"""Configurations on the same queries: which differ, by how much and on which, and which may be the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rag_eval.errors import TableError
from rag_eval.metrics.metric import Values
from rag_eval.stats.estimates import CONFIDENCE, RESAMPLES, Estimate, bootstrap_means, estimates_of
from rag_eval.stats.scores import PairedScores, Unit, Units

EQUAL_WITHIN = 1e-9
"""Means that differ by less are the same in other words: sums in another order."""


def best_first(means: Sequence[float], *, higher_is_better: bool = True) -> list[int]:
    """The numbers of the means, best first; equal ones stay in the order given."""
    sign = -1 if higher_is_better else 1
    order = sorted(range(len(means)), key=lambda number: sign * means[number])
    places = shared_places([means[number] for number in order])
    return [number for _, number in sorted(zip(places, order, strict=True))]


def shared_places(means: Sequence[float]) -> list[int]:
    """The places of means that stand best first, from 1; equal ones share the first of theirs."""
    places: list[int] = []
    for number, mean in enumerate(means):
        is_tie = number > 0 and abs(means[number - 1] - mean) <= EQUAL_WITHIN
        places.append(places[-1] if is_tie else number + 1)
    return places


def place_labels(means: Sequence[float]) -> list[str]:
    """The places of means that stand best first, in writing: a shared one is marked, such as ``=1``."""
    places = shared_places(means)
    return [f"{'=' if places.count(place) > 1 else ''}{place}" for place in places]


ROUNDING = 1e-12
"""Two scores that are no further apart than rounding are equal."""

FLIPS = 10_000


def flips_for(tests: int) -> int:
    """How many sign patterns are looked at for so many tests: the smallest p-value, times all, can be 0.01."""
    return max(FLIPS, 100 * tests)


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


def rise_p_values(sums: Values, rng: np.random.Generator, resamples: int = RESAMPLES) -> Values:
    """For each row of differences, summed over units (rows × units), the p-value of a mean of 0 or less.

    The larger of two: that of the sign-flip test, and that of the bootstrap-t, the share of resamples of the units
    whose mean strays from the row's as far, in its own standard errors, as the row's does from 0 (B. Efron,
    R. Tibshirani, *An Introduction to the Bootstrap*, 1993, section 12.5). The first takes differences for symmetric,
    which those of few documents seldom are: of 12 configurations that dropped just as far as allowed in 14 documents
    it rejects one or more in 13 % of draws where differences have a long tail, both together in 8 %; where most are 0
    and a few 1 or -1, in 3.3 and 2.6 %. A resample's error counts as a third of the row's at least: one without the few
    units that differ has next to none, and would stray infinitely far whatever is seen.
    """
    rows, units = sums.shape
    flipped = sign_flip_p_values(sums, rng, "greater", resamples)
    if units < 2:
        return flipped
    means = sums.mean(axis=1)
    strays = sums - means[:, None]
    drawn = bootstrap_means(np.vstack([strays, strays**2]), Units("queries", np.arange(units), units), rng, resamples)
    own = np.sqrt((strays**2).mean(axis=1) / (units - 1))
    errors = np.maximum(np.sqrt(np.maximum(drawn[:, rows:] - drawn[:, :rows] ** 2, 0.0) / (units - 1)), own / 3)
    seen = _in_errors(means, own)
    reached = (_in_errors(drawn[:, :rows], errors) >= seen).sum(axis=0)
    larger: Values = np.maximum(flipped, (1 + reached) / (1 + resamples))
    return larger


def _in_errors(means: Values, errors: Values) -> Values:
    """Means in standard errors; without an error they are infinitely many, of what is 0 none."""
    exact = np.where(np.abs(means) <= ROUNDING, 0.0, np.copysign(np.inf, means))
    found: Values = np.divide(means, errors, out=exact, where=errors > ROUNDING)
    return found


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


SIGNIFICANCE = 0.05
"""A difference is taken for real when its adjusted p-value is below this."""


def is_significant(p_value: float) -> bool:
    """Whether an adjusted p-value is small enough; one of exactly ``SIGNIFICANCE`` is not."""
    return p_value < SIGNIFICANCE


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

    ``against_best`` is None for the best; its ``before`` is the best, its ``after`` this one. ``probability`` is that
    of being the best or near it, as ``near_best`` has it; None with one unit, and for those that may be the best where
    some of them are ``too_alike``.
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
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> list[Comparison]:
    """Compare the configurations row by row; the p-values are adjusted over the rows.

    Raises ``TableError`` unless both have the same queries in the same order and the same number of rows.
    """
    if before.query_ids != after.query_ids or len(before.names) != len(after.names):
        raise TableError("what is compared must be scores of the same queries, row by row: use on() and subset() first")
    units = before.units
    differences = without_rounding(after.values - before.values)
    intervals = estimates_of(differences, units, rng, resamples=resamples, confidence=confidence)
    p_values = sign_flip_p_values(units.sums(differences), rng, flips=flips_for(len(differences)))
    found = []
    for row, (p, adjusted) in enumerate(zip(p_values.tolist(), holm(p_values).tolist(), strict=True)):
        gains = differences[row] if higher_is_better else -differences[row]
        interval = intervals[row]
        better, worse = int((gains > 0).sum()), int((gains < 0).sum())
        verdict: Verdict = "no difference shown"
        if is_significant(adjusted):
            verdict = "better" if gains.sum() > 0 else "worse"
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
                verdict=verdict,
            )
        )
    return found


def without_rounding(differences: Values) -> Values:
    """The differences, with 0 for what is no more than rounding: a sign-flip test would take it for a sure difference
    where it has the same sign everywhere."""
    found: Values = np.where(np.abs(differences) <= ROUNDING, 0.0, differences)
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
    order = best_first(scores.values.mean(axis=1).tolist(), higher_is_better=higher_is_better)
    ranked = scores.subset([scores.names[row] for row in order])
    estimates = estimates_of(ranked.values, ranked.units, rng, resamples=resamples)
    shares: list[float | None] = [None] * len(order)
    if ranked.units.count > 1:
        near = margin_at(estimates[0].mean, NEAR)
        shares = list(near_best(ranked, rng, higher_is_better=higher_is_better, near=near, resamples=resamples))
    placed = [Placed(ranked.names[0], estimates[0], None, True, shares[0])]
    if len(order) == 1:
        return placed
    others = ranked.subset(ranked.names[1:])
    best = replace(others, values=np.tile(ranked.values[0], (len(others.names), 1)))
    compared = compare(best, others, rng, higher_is_better=higher_is_better, resamples=resamples)
    for name, figure, comparison, chance in zip(others.names, estimates[1:], compared, shares[1:], strict=True):
        placed.append(Placed(name, figure, comparison, not is_significant(comparison.p_adjusted), chance))
    if too_alike(placed):
        # Resamples of a few differences that all favour the first never favour another.
        placed = [replace(one, probability=None) if one.among_best else one for one in placed]
    return placed


FEWEST_DIFFERENT = 6
"""Two that differ on fewer questions cannot be told apart by a sign-flip test, however large the differences are."""


def too_alike(placed: Sequence[Placed]) -> list[Placed]:
    """Those that differ from the first on few questions, all to one side: no probability can be told of them.

    All, where all are the same on every question; beside rivals such are none: where one is the best, both are.
    """
    rivals = [(one, one.against_best) for one in placed if one.against_best is not None]
    few = [
        one for one, by in rivals if 0 < max(by.better, by.worse) < FEWEST_DIFFERENT and not min(by.better, by.worse)
    ]
    return few or ([one for one, _ in rivals] if all(by.is_same for _, by in rivals) else [])


NEAR = 0.005
"""Means that differ by less are as good as each other: half a point of a share."""


def margin_at(mean: float, margin: float) -> float:
    """A margin for means from ½ to 1; in proportion to smaller and to larger ones."""
    return margin * max(min(1.0, 2 * abs(mean)), abs(mean))


def near_best(
    scores: PairedScores,
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
    near: float = NEAR,
    resamples: int = RESAMPLES,
) -> Values:
    """For each configuration the probability that its true mean is the best, or within ``near`` of the best.

    The share of joint resamples of the units in which it is, each resample's strays from the means seen widened as for
    an interval: by √(n / (n - 1)), and by as much as Student's distribution with n - 1 degrees is wider than the normal
    one. The first of many is first by luck too, so those that came close to it are ``_drawn_together``.
    """
    units, sign = scores.units, 1 if higher_is_better else -1
    seen = sign * scores.values.mean(axis=1)
    strays = sign * bootstrap_means(scores.values, units, rng, resamples) - seen
    strays *= np.sqrt(units.count / rng.chisquare(units.count - 1, (resamples, 1)))
    means = seen + strays
    behind = seen.max() - seen
    close = np.flatnonzero(behind <= CLOSE_ERRORS * (strays - strays[:, [behind.argmin()]]).std(axis=0))
    means[:, close] = _drawn_together(seen[close], strays[:, close], max(near, ROUNDING), rng)
    found: Values = (means >= means.max(axis=1, keepdims=True) - near).mean(axis=0)
    return found


CLOSE_ERRORS = 1.5
"""Means come close to the first when they are so many standard errors of the difference below it, or less."""

_SPREADS = np.geomspace(1, 40, 60)


def _drawn_together(seen: Values, strays: Values, near: float, rng: np.random.Generator) -> Values:
    """Draws of true means that are normal around a common centre, given the means seen and how resamples stray.

    Empirical Bayes: along each principal axis of the strays, of variance v, the mean seen is shrunk by τ² / (τ² + v)
    and strays by its root. The spread τ of the true means is drawn by how well it explains those seen, and is no less
    than what counts as near: other configurations are seldom more alike.
    """
    centre, common = seen.mean(), strays.mean(axis=1, keepdims=True)
    apart = strays - common
    variances, axes = np.linalg.eigh(apart.T @ apart / len(apart))
    variances, along = np.maximum(variances, ROUNDING**2), (seen - centre) @ axes
    spreads = (near * _SPREADS) ** 2
    wide = spreads[:, None] + variances
    # One axis, that of all together, is no difference, and says nothing of the spread.
    fit = (np.log(spreads) - (np.log(wide) + along**2 / wide).sum(axis=1)) / 2
    weights = np.exp(fit - fit.max())
    drawn = rng.choice(spreads, len(strays), p=weights / weights.sum())[:, None]
    kept = drawn / (drawn + variances)
    together: Values = centre + common + (kept * along + np.sqrt(kept) * (apart @ axes)) @ axes.T
    return together


def _effect_size(differences: Values) -> float | None:
    mean = float(differences.mean())
    if not differences.any():
        return 0.0
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return mean / spread if spread > ROUNDING else None


DOCUMENT = "document"
"""The key of the slices that are the questions about one document."""

FEWEST_QUESTIONS = 20
"""Fewer questions are too few to tell a kind of them from chance."""

MOST_SLICES = 60
"""Of more slices those with the most questions are looked at: each one looked at makes all others less sure."""


PASSAGES = "relevant passages"
"""The key of the slices by how many passages of the truth a question needs."""

SEVERAL = 3
"""From so many relevant passages on, questions are of one kind: ``3 or more``."""


def passages_kind(count: int) -> str:
    """The kind of a question that needs so many passages."""
    return f"{min(count, SEVERAL)}" + " or more" * (count >= SEVERAL)


LEAKAGE = "words copied from its passages"
"""The key of the slices by how much of a question is copied from what answers it."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some of the questions: those whose ``key`` in their metadata, or whose document, is ``value``."""

    key: str
    value: str
    query_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """Two configurations on the questions of a slice.

    The p-value is adjusted over all slices that were looked at, and the interval holds for all of them together.
    """

    slice: Slice
    comparison: Comparison


def slices_of(scores: PairedScores, metadata: Mapping[str, Mapping[str, object]]) -> list[Slice]:
    """The slices by document and by every key of the questions' metadata, those with the most questions first.

    A text, number or truth value is a value, each entry of a list one. Left out are slices of fewer than
    ``FEWEST_QUESTIONS`` questions and of all of them, and those beyond ``MOST_SLICES``.
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for query_id, document in zip(scores.query_ids, scores.documents, strict=True):
        for key, value in {**metadata.get(query_id, {}), DOCUMENT: document}.items():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | int | float):
                    found.setdefault((key, str(one)), {})[query_id] = None
    sizes = range(FEWEST_QUESTIONS, len(scores.query_ids))
    slices = [Slice(*name, tuple(ids)) for name, ids in found.items() if len(ids) in sizes]
    return sorted(slices, key=lambda one: -len(one.query_ids))[:MOST_SLICES]


def compare_slices(
    before: PairedScores,
    after: PairedScores,
    slices: list[Slice],
    rng: np.random.Generator,
    *,
    higher_is_better: bool = True,
) -> list[SliceComparison]:
    """Compare two configurations, one row each, in every slice; the largest differences first.

    A slice is tested by the documents that its questions are about, or by its questions where those are too few
    (``PairedScores.units``), and Holm's correction is over the slices in which a question differs; the others are left
    out. Where there is no difference anywhere, one is shown in 5 % of comparisons at most.
    Raises ``TableError`` as ``compare`` does.
    """
    changed = dict(zip(before.query_ids, (before.values != after.values).any(axis=0).tolist(), strict=True))
    slices = [one for one in slices if any(changed[query_id] for query_id in one.query_ids)]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(slices))
    found = []
    for one in slices:
        sides = before.on(one.query_ids), after.on(one.query_ids)
        found += compare(*sides, rng, higher_is_better=higher_is_better, confidence=confidence)
    adjusted = holm(np.array([one.p for one in found])).tolist()
    told = []
    for one, compared, p in zip(slices, found, adjusted, strict=True):
        verdict = compared.verdict if is_significant(p) else "no difference shown"
        told.append(SliceComparison(one, replace(compared, p_adjusted=p, verdict=verdict)))
    return sorted(told, key=lambda one: -abs(one.comparison.difference))
