"""The history of a workspace: a metric of its best configuration, or of one that is followed, run by run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rag_eval.errors import ArtifactError, ConfigurationError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome
from rag_eval.results.run_scores import SEED, read_scores
from rag_eval.results.runs import baseline_runs, data_differences, read_summary, run_names
from rag_eval.stats.comparison import best_first
from rag_eval.stats.intervals import Estimate, estimates_of

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A run: its best configuration by the metric (or the one followed), and the estimate of that.

    ``metric`` is that of the history, or the run's own objective where none was asked for and it was not measured by
    the former. ``configuration`` and ``estimate`` are None when the run has no score by the metric. ``data`` is a
    letter: runs with the same letter were measured on the same documents and the same truth. ``grid`` is a number: the
    best of runs with the same number are of the same configurations; None where one configuration is followed.
    ``benchmark`` is the name of the benchmark, which several files may share a workspace by.
    """

    run: str
    started: str
    benchmark: str | None
    data: str
    grid: int | None
    metric: str
    documents: int
    queries: int
    corpus_digest: str
    truth_digest: str
    configurations: int
    failures: int
    configuration: str | None
    estimate: Estimate | None
    is_baseline: bool

    @property
    def comparable(self) -> tuple[str, int | None, str]:
        """What entries have in common whose estimates can be compared: data, metric, and the grid that has the best."""
        return self.data, self.grid, self.metric


@dataclass(frozen=True, slots=True)
class History:
    """Runs, oldest first, and what is wrong with those that cannot be read, and with the baseline."""

    metric: str
    entries: list[HistoryEntry]
    earlier: int
    unreadable: list[str]

    def trend(self) -> list[HistoryEntry]:
        """Return the entries that have a score by the metric and can be compared with the latest such entry."""
        scored = [entry for entry in self.entries if entry.estimate is not None and entry.metric == self.metric]
        return [entry for entry in scored if entry.comparable == scored[-1].comparable]


def history(
    workspace: Workspace, metric: str | None = None, configuration: str | None = None, last: int = 20
) -> History:
    """Read the last runs by a metric (default: what the latest is ranked by), each with its best configuration.

    With ``configuration`` that one is followed in place of the best.
    Raises ``ConfigurationError`` when there is no run, when no run has the metric or the configuration, or when
    ``last`` is not positive. Runs that cannot be read are named, and passed over.
    """
    if last < 1:
        raise ConfigurationError(f"the number of runs to show is {last}: use 1 or more")
    names = run_names(workspace)
    if not names:
        raise ConfigurationError(
            f"there is no run yet in the workspace {workspace.address!r}: run a benchmark first, or check the path"
        )
    outcomes, unreadable = [], []
    for name in names[-last:]:
        try:
            outcomes.append(read_summary(workspace.fetch(workspace.runs / name / SUMMARY)))
        except ArtifactError as error:
            unreadable.append(str(error))
    baselines = set[str]()
    try:
        baselines = baseline_runs(workspace)
    except ArtifactError as error:
        unreadable.append(str(error))
    chosen = metric or next((run.ranking_metric for run in reversed(outcomes) if run.configurations), "")
    entries = []
    for outcome, letter, grid in zip(outcomes, _letters(outcomes), _grids(outcomes), strict=True):
        by = chosen
        followed, estimate = _followed(workspace, outcome, by, configuration)
        if estimate is None and metric is None and outcome.configurations:
            by = outcome.ranking_metric
            followed, estimate = _followed(workspace, outcome, by, configuration)
        entries.append(
            HistoryEntry(
                run=outcome.run,
                started=outcome.started.isoformat(timespec="seconds"),
                benchmark=outcome.config.name,
                data=letter,
                grid=None if configuration else grid,
                metric=by,
                documents=outcome.documents,
                queries=outcome.answerable,
                corpus_digest=outcome.corpus.digest,
                truth_digest=outcome.ground_truth.digest,
                configurations=len(outcome.configurations),
                failures=len(outcome.failures),
                configuration=followed,
                estimate=estimate,
                is_baseline=outcome.run in baselines,
            )
        )
    if outcomes and (metric or configuration) and not any(entry.estimate for entry in entries):
        raise ConfigurationError(_nothing_found(outcomes, metric, configuration))
    return History(chosen, entries, len(names) - len(names[-last:]), unreadable)


def sparkline(values: Sequence[float]) -> str:
    """Draw the values as bars, from the lowest to the highest of them; at half height when all are equal."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if high - low < 1e-12:
        return BARS[len(BARS) // 2] * len(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def _followed(
    workspace: Workspace, outcome: BenchmarkOutcome, metric: str, configuration: str | None
) -> tuple[str | None, Estimate | None]:
    """Return the configuration, or the best by the metric, and its estimate; None twice without such a score."""
    try:
        scores = read_scores(workspace, outcome, metric)
    except ArtifactError:
        return _from_summary(outcome, metric, configuration)
    if metric not in scores.metrics or (configuration and configuration not in scores.configurations):
        return None, None
    paired = scores.paired(metric).subset([one.name for one in outcome.ranked()])
    best = best_first(paired.values.mean(axis=1).tolist(), higher_is_better=higher_is_better(metric))[0]
    name = configuration or paired.names[best]
    return name, estimates_of(paired.subset([name]).values, paired.units, np.random.default_rng(SEED))[0]


def _from_summary(
    outcome: BenchmarkOutcome, metric: str, configuration: str | None
) -> tuple[str | None, Estimate | None]:
    """Do as ``_followed``, without an interval: the scores of single queries are gone."""
    scored = [one for one in outcome.ranked() if metric in one.metrics and configuration in (None, one.name)]
    if not scored:
        return None, None
    means = [one.metrics[metric] for one in scored]
    best = scored[best_first(means, higher_is_better=higher_is_better(metric))[0]]
    return best.name, Estimate(best.metrics[metric], None, None, best.queries, 0, "documents")


def _letters(outcomes: Sequence[BenchmarkOutcome]) -> list[str]:
    """Return a letter for each run, A for the data of the first; after Z come Z1, Z2, …"""
    kinds: list[BenchmarkOutcome] = []
    letters = []
    for outcome in outcomes:
        place = next((n for n, kind in enumerate(kinds) if not data_differences(kind, outcome)), len(kinds))
        if place == len(kinds):
            kinds.append(outcome)
        letters.append(chr(ord("A") + place) if place < 26 else f"Z{place - 25}")
    return letters


def _grids(outcomes: Sequence[BenchmarkOutcome]) -> list[int]:
    """Return a number for each run, 1 for the configurations of the first, those that failed included."""
    known: dict[frozenset[str], int] = {}
    grids = [frozenset([*(one.name for one in outcome.configurations), *outcome.failures]) for outcome in outcomes]
    return [known.setdefault(grid, len(known) + 1) for grid in grids]


def _nothing_found(outcomes: Sequence[BenchmarkOutcome], metric: str | None, configuration: str | None) -> str:
    done = [one for outcome in outcomes for one in outcome.configurations]
    metrics = dict.fromkeys(name for one in done for name in one.metrics)
    names = dict.fromkeys(one.name for one in done)
    wrong = [
        f"no run shown has {what} {preview(given)}{suggestion(given, known)}: {choices(known, given, '; ')}"
        for what, given, known in (("scores by", metric, metrics), ("the configuration", configuration, names))
        if given and given not in known
    ]
    return "; ".join(wrong) or f"no run shown has scores by {metric} of {configuration}: show more runs with --last"
