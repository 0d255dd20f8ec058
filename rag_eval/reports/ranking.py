"""The ranked table of a report."""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_eval.metrics.base import MetricName
from rag_eval.pipeline.outcome import BenchmarkOutcome, ConfigurationOutcome
from rag_eval.reports.wording import significance
from rag_eval.results.scores import RunScores
from rag_eval.stats.comparison import Placed
from rag_eval.stats.ranks import place_labels


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
