"""Compare two runs query by query: what improved, what worsened, and what did not change significantly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import SEED, RunScores, read_scores
from rag_eval.results.runs import check_comparable
from rag_eval.stats.comparison import Comparison, best_first, compare, corrected
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.stats.significance import ROUNDING

Presence = Literal["scored", "failed", "not there"]
"""Whether a run has scores for a configuration."""


@dataclass(frozen=True, slots=True)
class ComparedConfigurations:
    """A configuration of the earlier and one of the later run, by one metric."""

    before: str
    after: str
    metric: str
    comparison: Comparison

    @property
    def name(self) -> str:
        """Its name, or both names if they differ."""
        return self.after if self.before == self.after else f"{self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query by one metric; ``gain`` is positive if the query improved."""

    query_id: str
    text: str
    document: str
    before: float
    after: float
    gain: float


@dataclass(frozen=True)
class CommonScores:
    """The scores of two runs on the queries that both have."""

    before: RunScores
    after: RunScores

    @property
    def query_ids(self) -> list[str]:
        """The queries that both runs have; raises ``ConfigurationError`` if there is none."""
        known = {query.query_id for query in self.before.queries}
        common = [query.query_id for query in self.after.queries if query.query_id in known]
        if not common:
            raise ConfigurationError("the runs have no query in common: compare runs on the same ground truth")
        return common

    def paired(self, metric: str, pairs: Mapping[str, str]) -> tuple[PairedScores, PairedScores]:
        """Return the scores of pairs of configurations, before and after, row by row.

        Raises ``ConfigurationError`` if one of the runs lacks the metric or a configuration.
        """
        common = self.query_ids
        before = self.before.paired(metric).subset(list(pairs)).on(common)
        return before, self.after.paired(metric).subset(list(pairs.values())).on(common)


@dataclass(frozen=True)
class RunComparison:
    """Two runs on the queries they share.

    The p-values of the first metric are adjusted over the configurations, those of the others over configurations and
    metrics together: the runs are judged by the first, and so many others may differ by chance.

    ``differences`` says how their data differ.
    """

    before: BenchmarkOutcome
    after: BenchmarkOutcome
    differences: list[str]
    metrics: list[str]
    rows: list[ComparedConfigurations]
    scores: CommonScores

    @property
    def queries(self) -> int:
        """The number of queries that both runs have."""
        return len(self.scores.query_ids)

    def by_metric(self, metric: str) -> list[ComparedConfigurations]:
        """Return the configurations by one metric, the best current one first."""
        rows = [row for row in self.rows if row.metric == metric]
        order = best_first([row.comparison.after for row in rows], higher_is_better=higher_is_better(metric))
        return [rows[place] for place in order]

    def to_open_with(self, first: str) -> ComparedConfigurations | None:
        """Return what to show first: this configuration or, if it stayed the same, the one that dropped the most."""
        metric = self.metrics[0]
        rows, sign = self.by_metric(metric), 1 if higher_is_better(metric) else -1
        chosen = next((row for row in rows if row.after == first), None)
        if chosen is None or not chosen.comparison.is_same:
            return chosen
        return min([chosen, *rows], key=lambda row: min(0.0, sign * row.comparison.difference))

    def unpaired(self) -> dict[str, tuple[Presence, Presence]]:
        """Return the configurations that lack scores in one of the runs, and what each run has."""
        compared = {name for row in self.rows for name in (row.before, row.after)}
        before, after = presences = _presences(self.before), _presences(self.after)
        names = [name for known in presences for name in known if name not in compared]
        both = {name: (before.get(name, "not there"), after.get(name, "not there")) for name in names}
        return {name: presence for name, presence in both.items() if presence != ("scored", "scored")}

    def query_changes(self, row: ComparedConfigurations) -> list[QueryChange]:
        """Return every query that changed, the worst first."""
        before, after = self.scores.paired(row.metric, {row.before: row.after})
        sign = 1 if higher_is_better(row.metric) else -1
        texts = {query.query_id: query.text for query in self.scores.after.queries}
        values = before.values[0].tolist(), after.values[0].tolist()
        changes = [
            QueryChange(query_id, texts[query_id], document, old, new, sign * (new - old))
            for query_id, document, old, new in zip(after.query_ids, after.documents, *values, strict=True)
            if abs(new - old) > ROUNDING
        ]
        return sorted(changes, key=lambda change: (change.gain, change.query_id))


def _presences(run: BenchmarkOutcome) -> dict[str, Presence]:
    scored: dict[str, Presence] = {configuration.name: "scored" for configuration in run.configurations}
    return scored | dict.fromkeys(run.failures, "failed")


def compare_runs(
    workspace: Workspace,
    before: BenchmarkOutcome,
    after: BenchmarkOutcome,
    *,
    pairs: Mapping[str, str] | None = None,
    metrics: Sequence[str] | None = None,
    allow_different: bool = False,
) -> RunComparison:
    """Compare two runs.

    Args:
        workspace: Where both runs are.
        before: The earlier run.
        after: The later run.
        pairs: The configurations to compare, before and after; default: those of the same name.
        metrics: Default: the objective of the later run, and the metrics shown beside it.
        allow_different: Compare runs on different data, on the queries they share.

    Raises:
        ConfigurationError: The data differ and that is not allowed, there is nothing to compare, or a metric or
            configuration is unknown.
        ArtifactError: Scores cannot be read.
    """
    differences = check_comparable(workspace, before, after, allow_different=allow_different)
    scores = CommonScores(read_scores(workspace, before), read_scores(workspace, after))
    known, measured = scores.after.configurations, {*scores.before.metrics} & {*scores.after.metrics}
    chosen = dict(pairs) if pairs else {name: name for name in scores.before.configurations if name in known}
    if not chosen:
        raise ConfigurationError(
            f"{before.run} and {after.run} have no configuration of the same name: name a pair with "
            "--configuration BEFORE=AFTER"
        )
    names = list(metrics or [name for name in (after.ranking_metric, *after.beside) if name in measured])
    by_metric = []
    for metric in names:
        old, new = scores.paired(metric, chosen)
        by_metric.append(compare(old, new, np.random.default_rng(SEED), higher_is_better=higher_is_better(metric)))
    leading, *others = by_metric
    comparisons = [*leading, *corrected([comparison for row in others for comparison in row])]
    pairs_by_metric = [(name, other, metric) for metric in names for name, other in chosen.items()]
    rows = [
        ComparedConfigurations(*pair, comparison) for pair, comparison in zip(pairs_by_metric, comparisons, strict=True)
    ]
    return RunComparison(before, after, differences, names, rows, scores)


def name_pairs(
    before: BenchmarkOutcome, after: BenchmarkOutcome, texts: Sequence[str], *, allow_missing: bool = False
) -> dict[str, str]:
    """Parse pairs of configurations, written as ``NAME`` or ``BEFORE=AFTER``.

    With ``allow_missing`` a name that not both runs have scores of stands for itself; else ``ConfigurationError`` is
    raised, as when a configuration is named twice.
    """
    old, new = ([configuration.name for configuration in run.configurations] for run in (before, after))
    pairs: dict[str, str] = {}
    for text in dict.fromkeys(texts):
        pair = _parsed_pair(text, old, new)
        if allow_missing and (text in old or pair is None):
            pair = (text, text)
        if pair is None:
            both = [name for name in new if name in old]
            hint = f"{suggestion(text, both)}: {choices(both, text, '; ')}" if both else ""
            raise ConfigurationError(f"not both runs have the configuration {text!r}{hint}, or BEFORE=AFTER for a pair")
        if pair[0] in pairs or pair[1] in pairs.values():
            raise ConfigurationError(f"{text!r} names a configuration twice: name each once")
        pairs[pair[0]] = pair[1]
    return pairs


def _parsed_pair(text: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, str] | None:
    """Return the pair in a text, split at any equals sign, because a name may contain one."""
    splits = [(text, text), *((text[:at], text[at + 1 :]) for at, sign in enumerate(text) if sign == "=")]
    return next(((left, right) for left, right in splits if left in old and right in new), None)
