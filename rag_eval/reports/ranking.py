"""What configurations take, as columns of the ranked table; a column where nothing took anything is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_eval.benchmark.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.benchmark.scores import RunScores
from rag_eval.metrics.metric import MetricName
from rag_eval.reports.wording import byte_size, significance
from rag_eval.stats.comparison import Placed, place_labels


@dataclass(frozen=True)
class RankingRow:
    """A configuration in the table: its place, how it compares with the best, and what was measured of it.

    A place that others have too is marked, such as ``=1``.
    """

    place: str
    placed: Placed
    outcome: ConfigurationOutcome

    @property
    def verdict(self) -> str:
        """In words: the best, the same on every question, indistinguishable from it, or worse and how surely."""
        comparison = self.placed.against_best
        if comparison is None:
            return "best"
        if comparison.is_same:
            return "the same"
        return "indistinguishable" if self.placed.among_best else f"worse, {significance(comparison)}"


def ranking_of(outcome: BenchmarkOutcome, scores: RunScores) -> list[Placed]:
    """The configurations in the order of ``outcome.ranked()``, and how sure each place is; empty if all failed."""
    names = [one.name for one in outcome.ranked()]
    return scores.ranking(outcome.ranking_metric, names) if names else []


def ranking_rows(outcome: BenchmarkOutcome, ranking: Sequence[Placed]) -> list[RankingRow]:
    """The rows, best first."""
    by_name = {one.name: one for one in outcome.configurations}
    places = place_labels([placed.estimate.mean for placed in ranking])
    return [RankingRow(place, placed, by_name[placed.name]) for place, placed in zip(places, ranking, strict=True)]


def other_metrics(outcome: BenchmarkOutcome) -> list[str]:
    """The metrics beside the ranking metric, at its number of hits or at none."""
    cut = hits_of(outcome.ranking_metric)
    known = outcome.configurations[0].metrics if outcome.configurations else {}
    return [name for name in known if hits_of(name) in (cut, None) and name != outcome.ranking_metric]


def hits_of(metric: str) -> int | None:
    """How many hits a metric looks at, by its name; None where that is no number."""
    k = MetricName.parse(metric).k
    return k if isinstance(k, int) else None


def without_hits(metric: str) -> str:
    """The metric's name without a number of hits: ``span_recall@5`` is ``span_recall``."""
    return metric if hits_of(metric) is None else metric.rpartition("@")[0]


@dataclass(frozen=True)
class CostColumn:
    """A column: its heading, what it means, the value of a configuration or None, and how a value is written."""

    heading: str
    explained: str
    value: Callable[[ConfigurationOutcome], float | None]
    written: Callable[[float], str]

    def cell(self, one: ConfigurationOutcome) -> str:
        """The value as it is written, a dash where there is none."""
        value = self.value(one)
        return "–" if value is None else self.written(value)


COST_COLUMNS = (
    CostColumn(
        "latency ms",
        "Mean time of search and reranking for one question, after a first to warm up; embedding it is left out",
        lambda one: one.latency_ms,
        "{:.2f}".format,
    ),
    CostColumn("cost $", "What models charged when the work was done", lambda one: one.cost, "{:.4f}".format),
    CostColumn("tokens read", "Tokens that models read when the work was done", lambda one: one.tokens, "{:,}".format),
    CostColumn(
        "index",
        "What the vectors and their index take on the disk",
        lambda one: None if one.index is None else one.index.size,
        lambda size: byte_size(int(size)),
    ),
)


def cost_columns(configurations: Sequence[ConfigurationOutcome]) -> list[CostColumn]:
    """The columns in which some configuration has more than nothing."""
    return [column for column in COST_COLUMNS if any(column.value(one) for one in configurations)]
