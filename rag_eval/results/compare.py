"""Compare two runs query by query: what became better, what worse, and what cannot be told apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import MOST, suggestion
from rag_eval.metrics.metric import higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import SEED, RunScores, read_scores
from rag_eval.results.runs import check_comparable
from rag_eval.stats.comparison import Comparison, best_first, compare
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.stats.significance import ROUNDING

Presence = Literal["scored", "failed", "not there"]
"""Whether a run has scores of a configuration."""


@dataclass(frozen=True, slots=True)
class ComparedConfigurations:
    """A configuration of the run before and one of the run after, by one metric."""

    before: str
    after: str
    metric: str
    comparison: Comparison

    @property
    def name(self) -> str:
        """What is compared: one name, or both where they differ."""
        return self.after if self.before == self.after else f"{self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query by one metric; ``gain`` is positive where it became better."""

    query_id: str
    text: str
    document: str
    before: float
    after: float
    gain: float


@dataclass(frozen=True)
class RunComparison:
    """Two runs on the queries they share; the p-values of one metric are adjusted over the configurations.

    ``differences`` says what of their data differs.
    """

    before: BenchmarkOutcome
    after: BenchmarkOutcome
    differences: list[str]
    metrics: list[str]
    rows: list[ComparedConfigurations]
    scores: "CommonScores"

    @property
    def queries(self) -> int:
        """How many queries were compared on."""
        return len(self.scores.query_ids)

    def by_metric(self, metric: str) -> list[ComparedConfigurations]:
        """Return the configurations by one metric, the one that is best now first."""
        rows = [row for row in self.rows if row.metric == metric]
        order = best_first([row.comparison.after for row in rows], higher_is_better=higher_is_better(metric))
        return [rows[place] for place in order]

    def to_open_with(self, first: str) -> ComparedConfigurations | None:
        """Return what to show first: this configuration, or, if it stayed the same, what fell furthest.

        By the first metric; None where the one named was not compared.
        """
        metric = self.metrics[0]
        rows, sign = self.by_metric(metric), 1 if higher_is_better(metric) else -1
        own = next((row for row in rows if row.after == first), None)
        if own is None or not own.comparison.is_same:
            return own
        return min([own, *rows], key=lambda row: min(0.0, sign * row.comparison.difference))

    @property
    def left_out(self) -> dict[str, str]:
        """The configurations that only one run has scores of, or none, and why."""
        return {
            name: f"{before} in {self.before.run}, {after} in {self.after.run}"
            for name, (before, after) in self.unpaired().items()
        }

    def unpaired(self) -> dict[str, tuple[Presence, Presence]]:
        """Return the configurations that were not compared because a run has no scores of them, and what each has."""
        compared = {name for row in self.rows for name in (row.before, row.after)}
        names = [
            name
            for run in (self.before, self.after)
            for name in (*(scored.name for scored in run.configurations), *run.failures)
            if name not in compared
        ]
        both = {name: (_presence(self.before, name), _presence(self.after, name)) for name in names}
        return {name: presence for name, presence in both.items() if presence != ("scored", "scored")}

    def query_changes(self, row: ComparedConfigurations) -> list[QueryChange]:
        """Return every query that changed, the worst first."""
        before, after = self.scores.paired(row.metric, {row.before: row.after})
        sign = 1 if higher_is_better(row.metric) else -1
        texts = {query.query_id: query.text for query in self.scores.after.queries}
        places = zip(after.query_ids, after.documents, before.values[0].tolist(), after.values[0].tolist(), strict=True)
        changes = [
            QueryChange(query_id, texts[query_id], document, old, new, sign * (new - old))
            for query_id, document, old, new in places
            if abs(new - old) > ROUNDING
        ]
        return sorted(changes, key=lambda change: (change.gain, change.query_id))


@dataclass(frozen=True)
class CommonScores:
    """The scores of two runs on the queries that both have."""

    before: RunScores
    after: RunScores

    @property
    def metrics(self) -> list[str]:
        """The metrics that both runs were scored by."""
        return [metric for metric in self.after.metrics if metric in self.before.metrics]

    @property
    def query_ids(self) -> list[str]:
        """The queries that both have; raises ``ConfigurationError`` when there is none."""
        known = {query.query_id for query in self.before.queries}
        common = [query.query_id for query in self.after.queries if query.query_id in known]
        if not common:
            raise ConfigurationError("the runs have no query in common: compare runs on the same ground truth")
        return common

    def paired(self, metric: str, pairs: Mapping[str, str]) -> tuple[PairedScores, PairedScores]:
        """Return the scores of pairs of configurations, before and after, row by row.

        Raises ``ConfigurationError`` when one of the runs lacks the metric or a configuration.
        """
        common = self.query_ids
        before = self.before.paired(metric).subset(list(pairs)).on(common)
        return before, self.after.paired(metric).subset(list(pairs.values())).on(common)


def compare_runs(
    workspace: Workspace,
    before: BenchmarkOutcome,
    after: BenchmarkOutcome,
    *,
    pairs: Mapping[str, str] | None = None,
    metrics: Sequence[str] | None = None,
    allow_different: bool = False,
) -> RunComparison:
    """Compare ``pairs`` of configurations (default: those of the same name) by ``metrics``.

    The default metrics are the objective of the run after and those shown beside it.
    Raises ``ConfigurationError`` when the data differ and that is not allowed, when there is nothing to compare, and
    on an unknown metric or configuration; ``ArtifactError`` when scores cannot be read.
    """
    differences = check_comparable(workspace, before, after, allow_different=allow_different)
    scores = CommonScores(read_scores(workspace, before), read_scores(workspace, after))
    known = scores.after.configurations
    chosen = dict(pairs) if pairs else {name: name for name in scores.before.configurations if name in known}
    if not chosen:
        raise ConfigurationError(
            f"{before.run} and {after.run} have no configuration of the same name: rag-eval compare compares two of "
            "other names, as --configuration BEFORE=AFTER"
        )
    shown = [name for name in (after.ranking_metric, *after.beside) if name in scores.metrics]
    names = list(metrics or shown)
    rows = []
    for metric in names:
        old, new = scores.paired(metric, chosen)
        compared = compare(old, new, np.random.default_rng(SEED), higher_is_better=higher_is_better(metric))
        rows += [
            ComparedConfigurations(name, other, metric, comparison)
            for (name, other), comparison in zip(chosen.items(), compared, strict=True)
        ]
    return RunComparison(before, after, differences, names, rows, scores)


def name_pairs(
    before: BenchmarkOutcome, after: BenchmarkOutcome, given: Sequence[str], *, may_lack: bool = False
) -> dict[str, str]:
    """Return pairs of configurations from texts like ``NAME`` or ``NAME=NAME``, the name before and the name after.

    A text that names none that both runs have scores of stands for itself where one ``may_lack``. Raises
    ``ConfigurationError`` on it where not, and when a configuration is named twice.
    """
    old, new = ([one.name for one in outcome.configurations] for outcome in (before, after))
    both = [name for name in new if name in old]
    pairs: dict[str, str] = {}
    for text in dict.fromkeys(given):
        # A name may itself have an equals sign: every place to split is tried.
        ways = [(text, text), *((text[:place], text[place + 1 :]) for place, sign in enumerate(text) if sign == "=")]
        known = [(left, right) for left, right in ways if left in old and right in new]
        if may_lack and (text in old or not known):
            known = [(text, text)]
        if not known:
            raise ConfigurationError(
                f"{text!r} is no configuration of both runs{suggestion(text, both)}: both have "
                f"{'; '.join(both[:MOST]) or 'none'}{' …' if both[MOST:] else ''}; two are named as NAME=NAME"
            )
        left, right = known[0]
        if left in pairs or right in pairs.values():
            raise ConfigurationError(f"{text!r} names a configuration that was named before: name each once")
        pairs[left] = right
    return pairs


def _presence(run: BenchmarkOutcome, configuration: str) -> Presence:
    if configuration in run.failures:
        return "failed"
    return "scored" if configuration in [one.name for one in run.configurations] else "not there"
