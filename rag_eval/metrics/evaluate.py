"""Averages over queries from objects in memory: pure, no reading or writing."""

from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from statistics import fmean
from typing import Any

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.metric import AnyChunkLevelMetric, AnyTokenLevelMetric, metric_of, refuse_repeated
from rag_eval.metrics.own_metrics import given_metrics
from rag_eval.types.chunks import CharacterSpan, span_of
from rag_eval.types.ids import EvaluationType, mixed_ids

BLOCK = 1_000
"""How many results are scored at once, to bound memory."""


Result = Mapping[str, Sequence[Any]]
"""What was ``retrieved`` for one query, best first, and the ``ground_truth`` (or ``groundTruth``), what is relevant."""


def evaluate_chunk_level(results: Sequence[Result], metrics: Sequence[AnyChunkLevelMetric]) -> dict[str, float]:
    """Return the mean of each metric over the results, by the metric's name; 0 for each without results.

    A metric is an object, its class, or the name of a built-in one, such as ``chunk_recall@5``.

    Raises:
        ConfigurationError: Two metrics share a name, one gives no finite number, a record lacks a side, a side is not a
            sequence of chunk ids, or one side has ``chunk_`` ids and the other ``pa_chunk_``.
    """
    return _means(results, metrics, "chunk-level", str, "chunk ids")


def evaluate_token_level(results: Sequence[Result], metrics: Sequence[AnyTokenLevelMetric]) -> dict[str, float]:
    """Return the mean of each metric over the results, by the metric's name; 0 for each without results.

    As ``evaluate_chunk_level``; a side is a sequence of character spans, or of records with ``doc_id`` (or ``docId``),
    ``start``, ``end`` and ``text``.
    """
    return _means(results, metrics, "token-level", CharacterSpan, "character spans")


def _means(
    results: Sequence[Any], metrics: Sequence[Any], level: EvaluationType, kind: type, what: str
) -> dict[str, float]:
    metrics = given_metrics(metrics, level)
    refuse_repeated(metric.name for metric in metrics)
    pairs: list[tuple[Any, Any]] = []
    for result in results:
        if not isinstance(result, Mapping) or "retrieved" not in result or not result.keys() & _TRUTH:
            raise ConfigurationError(f"a result needs retrieved and ground_truth, this one is {preview(repr(result))}")
        sides = result["retrieved"], result[_TRUTH[0] if _TRUTH[0] in result else _TRUTH[1]]
        pairs.append(tuple(map(_read_spans, sides)) if kind is CharacterSpan else sides)
        for side in pairs[-1]:
            _check_items(side, kind, level, what)
        if kind is str and (fault := mixed_ids(*pairs[-1])):
            raise ConfigurationError(fault)
    return {metric.name: _mean(metric.name, _values(metric, pairs)) for metric in metrics}


_TRUTH = ("ground_truth", "groundTruth")


def _read_spans(items: Any) -> Any:
    """The items, with spans in place of records of them."""
    if isinstance(items, str) or not isinstance(items, Sequence) or not any(isinstance(one, Mapping) for one in items):
        return items
    return [span_of(one) if isinstance(one, Mapping) else one for one in items]


def _check_items(items: object, kind: type, level: str, what: str) -> None:
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise ConfigurationError(f"{level} evaluation scores a list of {what}, it was given {preview(repr(items))}")
    for item in items:
        if not isinstance(item, kind):
            raise ConfigurationError(
                f"{level} evaluation scores {what}, it was given {preview(repr(item))}: "
                "use the evaluation of the other level, or convert"
            )


def _values(metric: Any, pairs: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> list[float]:
    # A class that derives from a built-in one may calculate otherwise: it is asked query by query.
    if metric_of(metric.name) is not type(metric):
        return [metric.calculate(*pair) for pair in pairs]
    blocks = (pairs[first : first + BLOCK] for first in range(0, len(pairs), BLOCK))
    return [value for block in blocks for value in metric.calculate_many(block).tolist()]


def _mean(metric: str, values: Sequence[float]) -> float:
    for value in values:
        if not isinstance(value, Real) or not isfinite(value):
            raise ConfigurationError(f"the metric {metric!r} gave {value!r}: a metric must give a finite number")
    return fmean(values) if values else 0.0
