"""The gate: does a metric drop below the baseline's by more than is allowed?

There are three answers for each configuration. The hypothesis is always that the metric dropped by no more than is
allowed, tested one-sided on what each document's queries lost beyond the allowance. The p-values are adjusted (Holm)
over the configurations; those that lost the same in every document count as one.

- FAIL: a larger drop is certified, whatever the differences look like (``certified_p_values``).
- WARN: a larger drop is suspected. ``rise_p_values`` rejects, which is sensitive with few documents and errs more often
  than in 5 % of the runs where a few documents decide.
- PASS: neither.

A configuration of the baseline that the run has no scores for fails, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import basis, counted, number
from rag_eval.metrics.metric import Counts, Values, higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import CommonScores, name_pairs
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import SEED, read_scores
from rag_eval.results.runs import check_comparable
from rag_eval.stats.intervals import difference_estimates
from rag_eval.stats.paired_scores import PairedScores, Unit, Units
from rag_eval.stats.significance import (
    ROUNDING,
    certified_p_values,
    flips_for,
    holm,
    is_significant,
    least_certified,
    rise_p_values,
    without_rounding,
)

MAX_DROP = 0.02
"""Default of the largest allowed drop."""

MOST_GAINED = 0.3
"""No document of average size is assumed to gain more than this beyond the allowance: unseen ones might."""

Answer = Literal["FAIL", "WARN", "PASS"]

LARGE_SHARE = 0.25
"""Share of a score from which an allowance is warned of, because most of the score could be lost."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One configuration in the gate, or a pair with both names.

    Attributes:
        before, after: Its mean in the baseline and in the run.
        drop: How far it dropped; negative if it rose.
        low, high: The 95 % interval of the drop.
        changed: How many queries score differently.
        p_certified: The adjusted p-value of the certified test of a drop within the allowance.
        p_suspected: The same of the sensitive test.
    """

    configuration: str
    before: float
    after: float
    drop: float
    low: float | None
    high: float | None
    changed: int
    p_certified: float
    p_suspected: float

    @property
    def answer(self) -> Answer:
        if is_significant(self.p_certified):
            return "FAIL"
        return "WARN" if is_significant(self.p_suspected) else "PASS"


@dataclass(frozen=True, slots=True)
class Gate:
    """The checks of a run against a baseline.

    Attributes:
        differences: How the data of the two runs differ.
        most_gained: What the certified test assumes that no unit of average size gains beyond the allowance.
        least_certified: The least drop that can fail a configuration, if all units drop alike.
        fail_on_warn: Whether WARN fails the gate.
        checks: The configurations that both runs have scores of.
        missing: Why the run has no score of a configuration, by its name.
    """

    metric: str
    max_drop: float
    baseline: str
    run: str
    differences: list[str]
    queries: int
    units: int
    unit: Unit
    most_gained: float
    least_certified: float
    fail_on_warn: bool
    checks: list[GateCheck]
    missing: dict[str, str]

    @property
    def answer(self) -> Answer:
        """The worst answer of the configurations."""
        answers = {check.answer for check in self.checks}
        if self.missing or "FAIL" in answers:
            return "FAIL"
        return "WARN" if "WARN" in answers else "PASS"

    @property
    def passed(self) -> bool:
        """Whether the build may go on."""
        return self.answer == "PASS" or (self.answer == "WARN" and not self.fail_on_warn)

    @property
    def move(self) -> Literal["drop", "rise"]:
        """What the metric must not do: drop, or rise if it is a cost."""
        return "drop" if higher_is_better(self.metric) else "rise"

    @property
    def moved(self) -> Literal["dropped", "rose"]:
        """What a failing configuration did: dropped or rose."""
        return "dropped" if self.move == "drop" else "rose"

    @property
    def terms(self) -> str:
        """What was tested on which data, such as ``60 questions with an answer in both runs, …``."""
        allowed = f"{self.metric} may {self.move} by {self.max_drop:g}"
        tested = basis(self.queries, self.units, self.unit, " in both runs")
        return f"{tested}; {allowed}" if self.checks else allowed

    @property
    def warning(self) -> str:
        """A warning if the allowance is large compared with the scores; else empty."""
        return large_allowance(self.metric, [check.before for check in self.checks], self.max_drop)

    @property
    def power(self) -> str:
        """What the gate can certify, and on what that rests; empty if nothing was tested."""
        if not self.checks:
            return ""
        configurations = counted(len(self.checks), "configurations")
        largest = max(check.before for check in self.checks) if self.move == "drop" else float("inf")
        return certifiable(self.units, self.unit, configurations, self.least_certified, largest, self.move)

    @property
    def assumption(self) -> str:
        """What FAIL rests on."""
        unit = "document of average size" if self.unit == "documents" else "question"
        gains = "gains" if self.move == "drop" else "saves"
        assumed = f"no {unit} {gains} more than {number(self.most_gained)} beyond the allowance"
        return f"FAIL rests on Gaffke's bound, which is conjectured, not proven, and assumes that {assumed}."

    @property
    def verdict(self) -> str:
        """The answer in a sentence that counts the configurations behind it."""
        far = f"{self.moved} by more than {self.max_drop:g}"
        counts = {answer: sum(check.answer == answer for check in self.checks) for answer in ("FAIL", "WARN")}
        if self.answer == "FAIL":
            reasons = [f"{counted(counts['FAIL'], 'configurations')} {far}"] if counts["FAIL"] else []
            reasons += [f"{counted(len(self.missing), 'configurations')} without scores"] if self.missing else []
            return f"FAIL: {' and '.join(reasons)}."
        if self.answer == "WARN":
            effect = "this fails the build (--fail-on-warn)" if self.fail_on_warn else "this does not fail the build"
            return f"WARN: {counted(counts['WARN'], 'configurations')} probably {far}, which is not certain; {effect}."
        unsure = sum(check.drop - self.max_drop > ROUNDING for check in self.checks)
        note = f": {counted(unsure, 'configurations')} {far}, but not significantly" if unsure else ""
        return f"PASS{note}."


def run_gate(
    workspace: Workspace,
    baseline: BenchmarkOutcome,
    run: BenchmarkOutcome,
    metric: str,
    max_drop: float = MAX_DROP,
    *,
    configurations: Sequence[str] | None = None,
    allow_different: bool = False,
    fail_on_warn: bool = False,
) -> Gate:
    """Test a run against the baseline.

    Args:
        workspace: Where both runs are.
        baseline: The run to compare with.
        run: The run to test.
        metric: What may not drop; of a metric of cost, what may not rise.
        max_drop: How far it may.
        configurations: The configurations to test, as ``NAME`` or ``NAME=NAME`` (in the baseline and in the run);
            default: all of the baseline.
        allow_different: Compare runs on different data, on the queries they share.
        fail_on_warn: Fail on a suspected drop, too.

    Raises:
        ConfigurationError: The allowance is negative, the data differ and that is not allowed, a run was not scored
            by the metric, or the baseline does not have a named configuration.
    """
    if not 0 <= max_drop < float("inf"):
        raise ConfigurationError(f"the largest drop allowed is {max_drop}: use 0 or more, such as 0.02")
    differences = check_comparable(workspace, baseline, run, allow_different=allow_different)
    scores = CommonScores(read_scores(workspace, baseline, metric), read_scores(workspace, run, metric))
    pairs = name_pairs(baseline, run, configurations or scores.before.configurations, allow_missing=True)
    scores.before.paired(metric).subset(list(pairs))  # raises an error that names the configurations of the baseline
    scored = {name: other for name, other in pairs.items() if other in scores.after.configurations}
    checks: list[GateCheck] = []
    queries, units, gained, least = 0, Units("queries", np.zeros(0, np.int64), 0), 0.0, 0.0
    if scored:
        before, after = scores.paired(metric, scored)
        queries, units = len(before.query_ids), before.units
        gained = _most_gained(before)
        lost = _Lost.of(before, after, max_drop, 1 if higher_is_better(metric) else -1)
        checks = _checks(before, after, lost, gained)
        least = max_drop + least_certified(units.count, len(lost.distinct), gained)
    return Gate(
        metric=metric,
        max_drop=max_drop,
        baseline=baseline.run,
        run=run.run,
        differences=differences,
        queries=queries,
        units=units.count,
        unit=units.kind,
        most_gained=gained,
        least_certified=least,
        fail_on_warn=fail_on_warn,
        checks=checks,
        missing={name: _why_missing(run, name) for name in pairs if name not in scored},
    )


def _most_gained(scores: PairedScores) -> float:
    """Return what no unit of average size is assumed to gain: a share of the scale, and all of it for single queries.

    The scale of scores that exceed 1, such as tokens, is their mean.
    """
    scale = 1.0 if np.abs(scores.values).max() <= 1 else float(np.abs(scores.values).mean())
    return scale * (MOST_GAINED if scores.units.kind == "documents" else 1.0)


@dataclass(frozen=True)
class _Lost:
    """What each configuration lost: by query, and beyond the allowance by unit.

    Configurations that lost the same are one hypothesis, because to count it twice would only hide a drop: ``distinct``
    has its row once, ``which`` the row of each configuration.
    """

    drops: Values
    distinct: Values
    which: Counts

    @classmethod
    def of(cls, before: PairedScores, after: PairedScores, max_drop: float, sign: int) -> "_Lost":
        """Subtract; ``sign`` is -1 for a metric of cost, of which a rise is the drop."""
        drops = without_rounding((before.values - after.values) * sign)
        beyond = before.units.sums(without_rounding(drops - max_drop))
        distinct, which = np.unique(beyond, axis=0, return_inverse=True)
        return cls(drops, distinct, which.ravel())


def _checks(before: PairedScores, after: PairedScores, lost: _Lost, gained: float) -> list[GateCheck]:
    rng, units = np.random.default_rng(SEED), before.units
    draws = flips_for(len(lost.distinct))
    per_unit = lost.distinct * units.count / len(before.query_ids)
    certified = holm(certified_p_values(per_unit, gained, rng, draws))[lost.which].tolist()
    suspected = holm(rise_p_values(lost.distinct, rng, draws))[lost.which].tolist()
    intervals = difference_estimates(lost.drops, units)
    return [
        GateCheck(
            configuration=name if name == other else f"{name} → {other}",
            before=float(before.values[row].mean()),
            after=float(after.values[row].mean()),
            drop=interval.mean,
            low=interval.low,
            high=interval.high,
            changed=int(np.count_nonzero(lost.drops[row])),
            p_certified=certified[row],
            p_suspected=suspected[row],
        )
        for row, (name, other, interval) in enumerate(zip(before.names, after.names, intervals, strict=True))
    ]


def _why_missing(run: BenchmarkOutcome, name: str) -> str:
    if run.search is not None and name in run.search.estimated:
        return "the guided search left it out: name the others with --configuration, or use search: full"
    if failure := run.failures.get(name):
        return f"it failed: {failure.reason}"
    return "it is not in the run: if its settings changed, gate the pair with --configuration NAME=NEW_NAME"


def large_allowance(metric: str, means: Sequence[float], allowed: float) -> str:
    """Return a warning if an allowed drop is a quarter or more of a configuration's mean score; else empty."""
    small = [mean for mean in means if allowed and allowed >= LARGE_SHARE * mean]
    if not small or not higher_is_better(metric):
        return ""
    instead = f": allow less, such as --max-drop {MAX_DROP * max(means):.1g}" if max(means) > 0 else ""
    which = f"{len(small):,} of {counted(len(means), 'configurations')}"
    return f"A drop of {allowed:g} is large beside the {metric} of {which}, the lowest {number(min(small))}{instead}."


def certifiable(units: int, unit: Unit, configurations: str, least: float, largest: float, move: str = "drop") -> str:
    """Say what a gate can certify: a drop from the least on; nothing if that is more than the largest score."""
    together = f"With {counted(units, 'documents' if unit == 'documents' else 'questions')} and {configurations}"
    if least > largest:
        return f"{together} this gate can warn, not certify: no {move} is large enough to fail."
    return f"{together} only a {move} of {number(least)} or more can fail; a smaller one can warn."


def baseline_power(workspace: Workspace, baseline: BenchmarkOutcome) -> str:
    """Say what a gate against this baseline can certify; raises ``ArtifactError`` without scores."""
    metric = baseline.ranking_metric
    scores = read_scores(workspace, baseline, metric).paired(metric)
    units, move = scores.units, "drop" if higher_is_better(metric) else "rise"
    least = MAX_DROP + least_certified(units.count, len(scores.names), _most_gained(scores))
    largest = float(scores.values.mean(axis=1).max()) if move == "drop" else float("inf")
    return certifiable(units.count, units.kind, counted(len(scores.names), "configurations"), least, largest, move)
