"""Every score of a run: by metric, configuration and query."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.choices import choices, suggestion
from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.table import score_name
from rag_eval.stats.comparison import Placed, rank
from rag_eval.stats.directions import higher_is_better
from rag_eval.stats.estimates import Estimate, estimates_of
from rag_eval.stats.scores import PairedScores

SEED = 0
"""Of every resampling: the same scores give the same intervals and p-values."""


@dataclass(frozen=True, slots=True)
class ScoredQuery:
    """A query that has scores, and the document it belongs to."""

    query_id: str
    text: str
    document: str


@dataclass(frozen=True)
class RunScores:
    """The scores of a run: ``values[i, j, l]`` is that of configuration j by metric i on query l.

    ``cuts`` are the metrics, each with its k (0: not cut at a number of hits). Recall at equal token budgets is among
    them, the budget standing as k.
    """

    run: str
    cuts: tuple[tuple[str, int], ...]
    configurations: tuple[str, ...]
    queries: tuple[ScoredQuery, ...]
    values: NDArray[np.float64]

    @property
    def metrics(self) -> list[str]:
        """The full names of the metrics, such as ``span_recall@5``."""
        return [score_name(metric, k) for metric, k in self.cuts]

    @property
    def query_texts(self) -> dict[str, str]:
        """The text of each query, by its id."""
        return {query.query_id: query.text for query in self.queries}

    def paired(self, metric: str) -> PairedScores:
        """The scores of all configurations by one metric.

        Raises ``ConfigurationError`` when the run was not scored by it, or has no scores.
        """
        known = self.metrics
        if metric not in known:
            has = choices(known, metric) if known else "every configuration failed"
            raise ConfigurationError(f"{self.run} has no scores by {preview(metric)}{suggestion(metric, known)}: {has}")
        query_ids = tuple(query.query_id for query in self.queries)
        documents = tuple(query.document for query in self.queries)
        return PairedScores(self.configurations, query_ids, documents, self.values[known.index(metric)])

    def mean(self, configuration: str, metric: str) -> float:
        """The mean of one configuration; raises ``ConfigurationError`` when there is none such."""
        return float(self.paired(metric).subset([configuration]).means()[0])

    def estimates(self, metrics: Sequence[str] | None = None) -> dict[str, dict[str, Estimate]]:
        """``estimates()[configuration][metric]``, for all metrics or those named; one resampling serves all.

        Raises ``ConfigurationError`` on a metric that the run was not scored by.
        """
        chosen = self.metrics if metrics is None else list(metrics)
        if not chosen or not self.configurations:
            return {name: {} for name in self.configurations}
        paired = [self.paired(metric) for metric in chosen]
        rows = np.concatenate([scores.values for scores in paired])
        found = iter(estimates_of(rows, paired[0].units, np.random.default_rng(SEED)))
        by_metric = {metric: {name: next(found) for name in self.configurations} for metric in chosen}
        return {name: {metric: by_metric[metric][name] for metric in chosen} for name in self.configurations}

    def ranking(self, metric: str, order: Sequence[str] | None = None) -> list[Placed]:
        """The configurations, best first, with intervals and the group of those that may be the best.

        Equal ones stand as in ``order``, or else as in the run. Raises as ``paired`` does.
        """
        paired = self.paired(metric).subset(order or self.configurations)
        return rank(paired, np.random.default_rng(SEED), higher_is_better=higher_is_better(metric))
