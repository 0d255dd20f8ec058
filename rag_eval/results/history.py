"""Show the history of a workspace: a metric of each run's best configuration, or of one that is followed."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.errors import ArtifactError, ConfigurationError, preview
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.metric import higher_is_better
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.outcome import SUMMARY, BenchmarkOutcome, ConfigurationOutcome
from rag_eval.results.run_scores import read_scores
from rag_eval.results.runs import baseline_runs, data_differences, find_run, read_summary, run_names
from rag_eval.stats.comparison import best_first
from rag_eval.stats.intervals import Estimate, mean_estimates

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A run and the estimate of its best configuration by the metric, or of the one that is followed.

    Attributes:
        benchmark: The name of the benchmark, of which several may share a workspace.
        data: A letter: runs with the same letter were measured on the same documents and the same truth.
        grid: A number: runs with the same number have the same configurations; None if one is followed.
        metric: That of the history, or the run's objective if none was asked for and the run lacks the former.
        configuration: None if the run has no score by the metric, as ``estimate``.
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
        """Data, grid and metric: entries with equal values can be compared."""
        return self.data, self.grid, self.metric


@dataclass(frozen=True, slots=True)
class History:
    """Runs, oldest first; ``unreadable`` explains which other runs or baselines cannot be read."""

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
    """Read the last runs by a metric (default: what the latest is ranked by).

    Each entry has the best configuration of a run, or ``configuration``. Runs that cannot be read are skipped and
    named. Raises ``ConfigurationError`` if there is no run, no run has the metric or the configuration, or ``last`` is
    not positive.
    """
    if last < 1:
        raise ConfigurationError(f"the number of runs to show is {last}: use 1 or more")
    names = run_names(workspace)
    if not names:
        find_run(workspace)  # raises an error that says what to do
    outcomes, baselines, unreadable = _read_runs(workspace, names[-last:])
    chosen = metric or next((run.ranking_metric for run in reversed(outcomes) if run.configurations), "")
    entries = []
    for outcome, letter, grid in zip(outcomes, _letters(outcomes), _grids(outcomes), strict=True):
        metrics = [chosen] if metric else [chosen, outcome.ranking_metric]
        by, followed, estimate = _followed(workspace, outcome, metrics, configuration)
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
    return History(chosen, entries, max(0, len(names) - last), unreadable)


def _read_runs(workspace: Workspace, names: Sequence[str]) -> tuple[list[BenchmarkOutcome], set[str], list[str]]:
    """Return the outcomes of runs, the names of the baselines, and errors about unreadable ones."""
    outcomes, baselines, unreadable = list[BenchmarkOutcome](), set[str](), list[str]()
    for name in names:
        try:
            outcomes.append(read_summary(workspace.fetch(workspace.runs / name / SUMMARY)))
        except ArtifactError as error:
            unreadable.append(str(error))
    try:
        baselines = baseline_runs(workspace)
    except ArtifactError as error:
        unreadable.append(str(error))
    return outcomes, baselines, unreadable


def sparkline(values: Sequence[float]) -> str:
    """Draw the values as bars, from the lowest to the highest of them; at half height when all are equal."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if high - low < 1e-12:
        return BARS[len(BARS) // 2] * len(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def _followed(
    workspace: Workspace, outcome: BenchmarkOutcome, metrics: Sequence[str], configuration: str | None
) -> tuple[str, str | None, Estimate | None]:
    """Return the first of the metrics with a score, the configuration (by default the best) and its estimate."""
    for metric in metrics:
        ranked = [run for run in outcome.ranked() if metric in run.metrics and configuration in (None, run.name)]
        if ranked:
            means = [run.metrics[metric] for run in ranked]
            best = ranked[best_first(means, higher_is_better=higher_is_better(metric))[0]]
            return metric, best.name, _estimate(workspace, outcome, best, metric)
    return metrics[0], None, None


def _estimate(workspace: Workspace, outcome: BenchmarkOutcome, best: ConfigurationOutcome, metric: str) -> Estimate:
    try:
        paired = read_scores(workspace, outcome, metric).paired(metric)
    except ArtifactError:  # without the scores of single queries there is no interval
        return Estimate(best.metrics[metric], None, None, best.queries, 0, "documents")
    # Of all configurations, as in the ranking: an interval takes the variance of the nearest means into account.
    return mean_estimates(paired.values, paired.units)[paired.names.index(best.name)]


def _letters(outcomes: Sequence[BenchmarkOutcome]) -> list[str]:
    """Return a letter for each run, A for the data of the first, and Z1, Z2, and so on after Z."""
    kinds: list[BenchmarkOutcome] = []
    letters = []
    for outcome in outcomes:
        place = next((n for n, kind in enumerate(kinds) if not data_differences(kind, outcome)), len(kinds))
        kinds += [outcome] * (place == len(kinds))
        letters.append(chr(ord("A") + place) if place < 26 else f"Z{place - 25}")
    return letters


def _grids(outcomes: Sequence[BenchmarkOutcome]) -> list[int]:
    """Return a number for each run, 1 for the configurations of the first, including failed ones."""
    numbers: dict[frozenset[str], int] = {}
    grids = [frozenset([*(run.name for run in outcome.configurations), *outcome.failures]) for outcome in outcomes]
    return [numbers.setdefault(grid, len(numbers) + 1) for grid in grids]


def _nothing_found(outcomes: Sequence[BenchmarkOutcome], metric: str | None, configuration: str | None) -> str:
    configurations = [run for outcome in outcomes for run in outcome.configurations]
    metrics = dict.fromkeys(name for run in configurations for name in run.metrics)
    names = dict.fromkeys(run.name for run in configurations)
    problems = [
        f"no run shown has {what} {preview(wanted)}{suggestion(wanted, known)}: {choices(known, wanted, '; ')}"
        for what, wanted, known in (("scores by", metric, metrics), ("the configuration", configuration, names))
        if wanted and wanted not in known
    ]
    return "; ".join(problems) or f"no run shown has scores of {configuration} by {metric}: show more with --last"
