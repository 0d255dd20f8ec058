"""The gate: fail a run whose metric dropped below the baseline's by significantly more than is allowed.

For each configuration the hypothesis is that the metric dropped by no more than is allowed. It is tested one-sided on
what each document's queries lost beyond the allowance (``rise_p_values``), and the p-values are adjusted (Holm) over
the configurations; those that lost the same in every document count as one. The gate fails where p < 0.05: of the runs
in which nothing dropped further than allowed at most 5 % fail by chance, however many configurations there are. A
configuration of the baseline that the run has no scores for fails, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from rag_eval.config.models import AXES, ConfigurationRecord
from rag_eval.errors import ConfigurationError
from rag_eval.formatting import basis, counted, number
from rag_eval.metrics.metric import Values, higher_is_better
from rag_eval.parts.definition import NONE, shown
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
"""How far a metric may drop unless something else is asked for."""

LARGE_SHARE = 0.25
"""An allowance that is this share of a score, or more, is warned of: most of what there is could be lost."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One configuration (of a pair both names): its means, the drop (negative: a rise), and the test's verdict.

    ``changed`` counts the queries with another score. ``p`` is the adjusted p-value of the hypothesis that the drop
    is within the allowance. ``noticed_from`` is about the smallest drop that would fail; None if no query differs from
    the others. ``unsure`` says that it dropped further than allowed, but not significantly.
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
    """The checks of a run against a baseline; ``missing`` says of each configuration without scores why it has none.

    ``changed`` are those of them that the run has with other settings, with their names there. ``can_fail`` is False
    when there are so few units that no drop could be significant; see ``fewest_units``.
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
    changed: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether every configuration is there and none dropped further than allowed."""
        return not self.missing and all(check.passed for check in self.checks)

    @property
    def move(self) -> Literal["drop", "rise"]:
        """What the metric may not do; of a metric of cost, a rise is the drop."""
        return "drop" if higher_is_better(self.metric) else "rise"

    @property
    def moved(self) -> Literal["dropped", "rose"]:
        """What a configuration that fails did."""
        return "dropped" if self.move == "drop" else "rose"

    @property
    def terms(self) -> str:
        """What was tested on what, such as ``60 questions with an answer in both runs, about 12 documents; …``."""
        allowed = f"{self.metric} may {self.move} by {self.max_drop:g}"
        tested = basis(self.queries, self.units, self.unit, " in both runs")
        return f"{tested}; {allowed}" if self.checks else allowed

    @property
    def warning(self) -> str:
        """That the allowance is of the size of the scores, in a sentence; empty where it is not."""
        return large_allowance(self.metric, [check.before for check in self.checks], self.max_drop)

    @property
    def verdict(self) -> str:
        """Whether it is passed, in a sentence that says how many configurations are in the way."""
        far = f"{self.moved} by more than {self.max_drop:g}"
        if self.passed:
            unsure = sum(check.unsure for check in self.checks)
            seen = f": {counted(unsure, 'configurations')} {far}, but not significantly" if unsure else ""
            return f"The gate is passed{seen}."
        failed = sum(not check.passed for check in self.checks)
        reasons = [f"{counted(failed, 'configurations')} {far}"] if failed else []
        without = len(self.missing) - len(self.changed)
        reasons += [f"{counted(without, 'configurations')} without scores"] if without else []
        reasons += [f"{counted(len(self.changed), 'configurations')} with other settings"] if self.changed else []
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
    """Test a run against the baseline: all of the baseline's configurations, or those named.

    One is named by its name, or as ``NAME=NAME``, in the baseline and in the run, where these differ. For a metric of
    cost a rise is the drop. Raises ``ConfigurationError`` when the allowance is negative, when the data differ and that
    is not allowed, and when the metric is not in both or a named configuration not in the baseline.
    """
    if not 0 <= max_drop < float("inf"):
        raise ConfigurationError(f"the largest drop allowed is {max_drop}: use 0 or more, such as 0.02")
    differences = check_comparable(workspace, baseline, run, allow_different=allow_different)
    scores = CommonScores(read_scores(workspace, baseline, metric), read_scores(workspace, run, metric))
    named = name_pairs(baseline, run, configurations or scores.before.configurations, may_lack=True)
    scores.before.paired(metric).subset(list(named))  # says what the baseline has when it lacks one of them
    there = {name: other for name, other in named.items() if other in scores.after.configurations}
    changed = {name: other for name in named if name not in there and (other := counterpart(baseline, run, name))}
    missing = {name: _why_missing(baseline, run, name, changed.get(name)) for name in named if name not in there}
    checks: list[GateCheck] = []
    queries, units, can_fail = 0, 0, True
    unit: Unit = "queries"
    if there:
        before, after = scores.paired(metric, there)
        checks = _checks(before, after, max_drop, 1 if higher_is_better(metric) else -1)
        queries, units, unit = len(before.query_ids), before.units.count, before.units.kind
        can_fail = units >= fewest_units(len(there))
    return Gate(
        metric=metric,
        max_drop=max_drop,
        baseline=baseline.run,
        run=run.run,
        differences=differences,
        queries=queries,
        units=units,
        unit=unit,
        can_fail=can_fail,
        checks=checks,
        missing=missing,
        changed=changed,
    )


def _checks(before: PairedScores, after: PairedScores, max_drop: float, sign: int) -> list[GateCheck]:
    """Test each configuration; ``sign`` is -1 for a metric of cost, of which a rise is the drop."""
    units = before.units
    drops = without_rounding((before.values - after.values) * sign)
    beyond = units.sums(without_rounding(drops - max_drop))
    rng = np.random.default_rng(SEED)
    intervals = estimates_of(drops, units, rng)
    # Configurations that lost the same are one hypothesis: to count it twice would only hide a drop.
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


def large_allowance(metric: str, means: Sequence[float], allowed: float) -> str:
    """Return a warning if an allowed drop is a quarter of a configuration's mean score, or more; else empty."""
    small = [mean for mean in means if allowed and allowed >= LARGE_SHARE * mean]
    if not small or not higher_is_better(metric):
        return ""
    of = f"{number(min(small))} to {number(max(small))}" if len(small) > 1 else f"{number(small[0])}"
    which = f"that {counted(len(small), 'configurations')} of {len(means):,} {'has' if len(small) == 1 else 'have'}"
    instead = f"; allow less, such as --max-drop {MAX_DROP * max(means):.1g}" if max(means) > 0 else ""
    return f"A drop of {allowed:g} is large beside the {metric} of {of} {which}{instead}."


def fewest_units(configurations: int) -> int:
    """Compute how many documents (or queries) it takes for a drop in one of so many configurations to fail the gate.

    Where every unit dropped, one of the 2ⁿ sign patterns is as bad, so p is 1 / 2ⁿ, and the smallest of m p-values is
    multiplied by m (Holm): the fewest are the smallest n with m / 2ⁿ < 0.05.
    """
    units = 1
    while not is_significant(configurations * 0.5**units):
        units += 1
    return units


def most_configurations(units: int) -> int:
    """Compute how many configurations can be gated together so that a drop can fail with so many units; 0 for none."""
    return ((1 << units) - 1) // round(1 / SIGNIFICANCE)


def gate_units(workspace: Workspace, baseline: BenchmarkOutcome) -> Units:
    """Read the units whose signs a gate against this baseline flips, by its ranking metric.

    Raises ``ArtifactError`` when the scores cannot be read.
    """
    metric = baseline.ranking_metric
    return read_scores(workspace, baseline, metric).paired(metric).units


def counterpart(baseline: BenchmarkOutcome, run: BenchmarkOutcome, name: str) -> str | None:
    """Return what the run calls the configuration that differs from this one of the baseline in the fewest settings.

    None where it failed under its own name, and where all others have other types of parts, or are in the baseline.
    """
    if name in run.failures:
        return None
    before = _record(baseline, name)
    known = {one.name for one in baseline.configurations}
    others = [one for one in run.configurations if one.name not in known]
    changes = {one.name: len(found) for one in others if (found := _changes(before, one.configuration))}
    return min(changes, key=lambda other: changes[other], default=None)


def _changes(before: ConfigurationRecord, after: ConfigurationRecord) -> list[str]:
    """Return the settings that differ, in words; none where the types of the parts differ."""
    found = []
    for section in AXES:
        old, new = section.of(before), section.of(after)
        if (old.type if old else NONE) != (new.type if new else NONE):
            return []
        for name in dict.fromkeys([*old.settings, *new.settings] if old and new else []):
            left, right = old.settings.get(name), new.settings.get(name)
            if left != right:
                types = [one["type"] for one in (left, right) if isinstance(one, Mapping)]
                if len({*types, NONE}) == 3:  # two parts of other types need no settings to be told apart
                    left, right = types
                found.append(f"{name} {_setting(right)} instead of {_setting(left)}")
    return found


def _setting(value: object) -> str:
    """Return a setting in words; a part within a part, such as the index of a store, as its type and its settings."""
    if not isinstance(value, Mapping):
        return NONE if value is None else shown(value)
    others = (f"{name} {_setting(inner)}" for name, inner in value.items() if name != "type" and inner is not None)
    return " ".join(filter(None, (value.get("type"), *others)))


def _record(outcome: BenchmarkOutcome, name: str) -> ConfigurationRecord:
    return next(one.configuration for one in outcome.configurations if one.name == name)


def _why_missing(baseline: BenchmarkOutcome, run: BenchmarkOutcome, name: str, changed: str | None) -> str:
    failure = run.failures.get(name)
    if changed is None:
        if run.search is not None and name in run.search.estimated:
            return "the search of the run left it out: name the others with --configuration, or use search: full"
        return f"it failed: {failure.reason}" if failure else "the run does not have it"
    told = changed_settings(baseline, run, name, changed)
    return f"the run has it with {told}: gate the two with --configuration '{name}={changed}'"


def changed_settings(baseline: BenchmarkOutcome, run: BenchmarkOutcome, name: str, changed: str) -> str:
    """Return the settings in which a configuration of the run differs from one of the baseline, in words."""
    return ", ".join(_changes(_record(baseline, name), _record(run, changed)))


def _noticed_from(units: Units, drops: Values, max_drop: float, tests: int) -> float | None:
    """Return the allowance and as many standard errors (over units) as the strictest of the tests asks for."""
    strays = units.sums((drops - drops.mean())[None])[0]
    if units.count < 2 or not np.abs(strays).max() > ROUNDING:
        return None
    error = float(np.sqrt((strays**2).sum() * units.count / (units.count - 1))) / len(drops)
    return max_drop + float(stdtrit(units.count - 1, 1 - SIGNIFICANCE / tests)) * error
