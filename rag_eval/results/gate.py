"""The gate: fail a run whose metric dropped below the baseline's by significantly more than is allowed.

For each configuration the hypothesis is that the metric dropped by no more than is allowed. It is tested one-sided on
what each document's queries lost beyond the allowance (``rise_p_values``), and the p-values are adjusted (Holm) over
the configurations; those that lost the same in every document count as one. The gate fails if p < 0.05: of the runs in
which nothing dropped further than allowed at most 5 % fail by chance, however many configurations there are. A
configuration of the baseline that the run has no scores for fails, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import basis, counted, number
from rag_eval.metrics.metric import Values, higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.compare import CommonScores, name_pairs
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import SEED, read_scores
from rag_eval.results.runs import check_comparable
from rag_eval.stats.intervals import estimates_of
from rag_eval.stats.paired_scores import PairedScores, Unit, Units
from rag_eval.stats.significance import (
    ROUNDING,
    SIGNIFICANCE,
    flips_for,
    holm,
    is_significant,
    rise_p_values,
    without_rounding,
)

MAX_DROP = 0.02
"""Default of the largest allowed drop."""

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
        p: The adjusted p-value of the hypothesis that the drop is within the allowance.
        noticed_from: About the smallest drop that would fail; None if every query changed by the same.
        passed: Whether it did not drop by significantly more than allowed.
        unsure: Whether it dropped by more than allowed, but not significantly.
    """

    configuration: str
    before: float
    after: float
    drop: float
    low: float | None
    high: float | None
    changed: int
    p: float
    noticed_from: float | None
    passed: bool
    unsure: bool


@dataclass(frozen=True, slots=True)
class Gate:
    """The checks of a run against a baseline.

    Attributes:
        differences: How the data of the two runs differ.
        can_fail: False if there are too few units for any drop to be significant; see ``fewest_units``.
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
    can_fail: bool
    checks: list[GateCheck]
    missing: dict[str, str]

    @property
    def passed(self) -> bool:
        return not self.missing and all(check.passed for check in self.checks)

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
    def verdict(self) -> str:
        """The result in one sentence, which counts the failing configurations."""
        far = f"{self.moved} by more than {self.max_drop:g}"
        if self.passed:
            unsure = sum(check.unsure for check in self.checks)
            note = f": {counted(unsure, 'configurations')} {far}, but not significantly" if unsure else ""
            return f"The gate passed{note}."
        failed = sum(not check.passed for check in self.checks)
        reasons = [f"{counted(failed, 'configurations')} {far}"] if failed else []
        reasons += [f"{counted(len(self.missing), 'configurations')} without scores"] if self.missing else []
        return f"The gate failed: {' and '.join(reasons)}."


def run_gate(
    workspace: Workspace,
    baseline: BenchmarkOutcome,
    run: BenchmarkOutcome,
    metric: str,
    max_drop: float = MAX_DROP,
    *,
    configurations: Sequence[str] | None = None,
    allow_different: bool = False,
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
    queries, units = 0, Units("queries", np.zeros(0, np.int64), 0)
    if scored:
        before, after = scores.paired(metric, scored)
        checks = _checks(before, after, max_drop, 1 if higher_is_better(metric) else -1)
        queries, units = len(before.query_ids), before.units
    return Gate(
        metric=metric,
        max_drop=max_drop,
        baseline=baseline.run,
        run=run.run,
        differences=differences,
        queries=queries,
        units=units.count,
        unit=units.kind,
        can_fail=not scored or units.count >= fewest_units(len(scored)),
        checks=checks,
        missing={name: _why_missing(run, name) for name in pairs if name not in scored},
    )


def _checks(before: PairedScores, after: PairedScores, max_drop: float, sign: int) -> list[GateCheck]:
    """Test each configuration; ``sign`` is -1 for a cost, for which a rise counts as a drop."""
    units = before.units
    drops = without_rounding((before.values - after.values) * sign)
    beyond = units.sums(without_rounding(drops - max_drop))
    rng = np.random.default_rng(SEED)
    intervals = estimates_of(drops, units, rng)
    # Configurations with the same losses are one hypothesis: counting it twice would only hide a drop.
    distinct, which = np.unique(beyond, axis=0, return_inverse=True)
    p_values = holm(rise_p_values(distinct, rng, flips_for(len(distinct))))[which.ravel()].tolist()
    return [
        GateCheck(
            configuration=name if name == other else f"{name} → {other}",
            before=float(before.values[row].mean()),
            after=float(after.values[row].mean()),
            drop=interval.mean,
            low=interval.low,
            high=interval.high,
            changed=int(np.count_nonzero(drops[row])),
            p=p,
            noticed_from=_noticed_from(units, drops[row], max_drop, len(distinct)),
            passed=not is_significant(p),
            unsure=not is_significant(p) and interval.mean - max_drop > ROUNDING,
        )
        for row, (name, other, interval, p) in enumerate(
            zip(before.names, after.names, intervals, p_values, strict=True)
        )
    ]


def _noticed_from(units: Units, drops: Values, max_drop: float, tests: int) -> float | None:
    """Return the smallest drop that would fail: the allowance plus the standard errors of the strictest test."""
    strays = units.sums((drops - drops.mean())[None])[0]
    if units.count < 2 or not np.abs(strays).max() > ROUNDING:
        return None
    error = float(np.sqrt((strays**2).sum() * units.count / (units.count - 1))) / len(drops)
    return max_drop + float(stdtrit(units.count - 1, 1 - SIGNIFICANCE / tests)) * error


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


def fewest_units(configurations: int) -> int:
    """Return how many documents (or queries) are needed for a drop in one of this many configurations to fail the gate.

    If every unit dropped, one of the 2ⁿ sign patterns is as bad, so p is 1 / 2ⁿ, and the smallest of m p-values is
    multiplied by m (Holm): the fewest are the smallest n with m / 2ⁿ < 0.05.
    """
    units = 1
    while not is_significant(configurations * 0.5**units):
        units += 1
    return units


def most_configurations(units: int) -> int:
    """Return how many configurations can be gated together so that a drop can fail with so many units; 0 for none."""
    return ((1 << units) - 1) // round(1 / SIGNIFICANCE)


def gate_units(workspace: Workspace, baseline: BenchmarkOutcome) -> Units:
    """Read the units that a gate against this baseline tests; raises ``ArtifactError`` without scores."""
    metric = baseline.ranking_metric
    return read_scores(workspace, baseline, metric).paired(metric).units
