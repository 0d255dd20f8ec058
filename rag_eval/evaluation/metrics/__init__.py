"""Metrics for LangSmith's ``evaluate``. The base classes of user-defined metrics are in ``base``."""

from collections.abc import Collection, Mapping, Set
from typing import TYPE_CHECKING

from rag_eval.errors import ConfigurationError, preview
from rag_eval.evaluation.metrics.base import Item, LangSmithMetric, Metrics, TokenLevelMetrics
from rag_eval.metrics.formulas import ChunkF1, ChunkPrecision, ChunkRecall, SpanIoU, SpanPrecision, SpanRecall
from rag_eval.metrics.metric import refuse_repeated
from rag_eval.types.chunks import CharacterSpan

if TYPE_CHECKING:
    from rag_eval.evaluation.metrics.langsmith_evaluators import LangSmithEvaluator


class SpanLevelMetrics(TokenLevelMetrics):
    """Base of the built-in span metrics, which do not score an example without ground truth."""

    needs_ground_truth = True

    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """Return the metric of a query in characters, counting each character once."""
        return float(self.metric.calculate(retrieved_spans, ground_truth_spans))


class TokenLevelRecall(SpanLevelMetrics):
    """|retrieved ∩ truth| / |truth|; ``calculate`` is 0 on empty ground truth."""

    metric = SpanRecall()


class TokenLevelPrecision(SpanLevelMetrics):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    metric = SpanPrecision()


class TokenLevelIoU(SpanLevelMetrics):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; ``calculate`` is 1 if both are empty, 0 if one is."""

    metric = SpanIoU()


class ChunkLevelMetrics(Metrics):
    """Base of the built-in chunk-id metrics, which do not score an example without ground truth."""

    needs_ground_truth = True

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """Return the metric of a query; a repeated id counts once."""
        return float(self.metric.calculate(retrieved_chunk_ids, ground_truth_chunk_ids))


class ChunkLevelRecall(ChunkLevelMetrics):
    """|retrieved ∩ relevant| / |relevant|; ``calculate`` is 0 on empty ground truth."""

    metric = ChunkRecall()


class ChunkLevelPrecision(ChunkLevelMetrics):
    """|retrieved ∩ relevant| / |retrieved|; 0 on empty retrieval."""

    metric = ChunkPrecision()


class ChunkLevelF1(ChunkLevelMetrics):
    """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|); 0 on empty ground truth or retrieval."""

    metric = ChunkF1()


def get_langsmith_evaluators(
    metrics: Mapping[str, LangSmithMetric[Item]] | Collection[LangSmithMetric[Item]], k: int | None = None
) -> "list[LangSmithEvaluator]":
    """Return evaluators for LangSmith's ``evaluate``, in the order of the metrics or, for a set, by name.

    Example:
        evaluate(retrieve, data="ferry", evaluators=get_langsmith_evaluators({"recall": ChunkLevelRecall()}, k=5))

    Args:
        metrics: Metrics by name, or a list or set of metrics, which are named after their classes.
        k: How many of the retrieved items count. Default: the cut in the metric's name, or all.

    Raises:
        ConfigurationError: Something is not a metric, two metrics have one name, or the levels are mixed.
    """
    if not isinstance(metrics, Collection) or isinstance(metrics, str):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: use a mapping by name, a list or a set")
    named = _named(metrics)
    levels = {metric.level: type(metric).__name__ for _, metric in reversed(named)}
    if len(levels) > 1:
        both = " and ".join(f"{name} is {level}" for level, name in sorted(levels.items()))
        raise ConfigurationError(f"{both}: evaluate each level on its own, against its own ground truth")
    evaluators = [metric.to_langsmith_evaluator(name, k) for name, metric in named]
    if isinstance(metrics, Set):
        evaluators.sort(key=lambda evaluator: evaluator.name)
    refuse_repeated(evaluator.name for evaluator in evaluators)
    return evaluators


def _named(
    metrics: Mapping[str, LangSmithMetric[Item]] | Collection[LangSmithMetric[Item]],
) -> list[tuple[str, LangSmithMetric[Item]]]:
    pairs = metrics.items() if isinstance(metrics, Mapping) else [(type(metric).__name__, metric) for metric in metrics]
    for _, metric in pairs:
        if not isinstance(metric, LangSmithMetric):
            raise ConfigurationError(
                f"{preview(repr(metric))} is not a metric for LangSmith: derive its class from Metrics"
            )
    return list(pairs)
