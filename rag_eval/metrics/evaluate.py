"""Averages over queries from objects in memory: pure, no reading or writing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from statistics import fmean
from typing import Any, TypedDict

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.metric import ChunkLevelMetric, TokenLevelMetric, metric_of, refuse_repeated
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId

BLOCK = 1_000
"""How many results are scored at once, to bound memory."""


@dataclass(frozen=True, slots=True)
class ChunkLevelResult:
    """What was retrieved for one query, best first, and what is relevant, as chunk ids."""

    retrieved: Sequence[ChunkId]
    ground_truth: Sequence[ChunkId]


@dataclass(frozen=True, slots=True)
class TokenLevelResult:
    """What was retrieved for one query, best first, and what is relevant, as character spans."""

    retrieved: Sequence[CharacterSpan]
    ground_truth: Sequence[CharacterSpan]


class ChunkLevelRecord(TypedDict):
    """A ``ChunkLevelResult`` as plain data."""

    retrieved: Sequence[ChunkId]
    ground_truth: Sequence[ChunkId]


class TokenLevelRecord(TypedDict):
    """A ``TokenLevelResult`` as plain data."""

    retrieved: Sequence[CharacterSpan]
    ground_truth: Sequence[CharacterSpan]


def evaluate_chunk_level(
    results: Sequence[ChunkLevelResult | ChunkLevelRecord], metrics: Sequence[ChunkLevelMetric]
) -> dict[str, float]:
    """The mean of each metric over the results, by the metric's name; 0 for each when there are no results.

    Raises ``ConfigurationError`` when two metrics share a name or one gives no finite number, when a record lacks a
    side, or when a side is not a sequence of chunk ids.
    """
    return _means(results, metrics, ChunkLevelResult, "chunk-level", str, "chunk ids")


def evaluate_token_level(
    results: Sequence[TokenLevelResult | TokenLevelRecord], metrics: Sequence[TokenLevelMetric]
) -> dict[str, float]:
    """The mean of each metric over the results, by the metric's name; 0 for each when there are no results.

    Raises ``ConfigurationError`` as ``evaluate_chunk_level`` does; a side is a sequence of character spans.
    """
    return _means(results, metrics, TokenLevelResult, "token-level", CharacterSpan, "character spans")


def _means(
    results: Sequence[Any],
    metrics: Sequence[Any],
    form: type[ChunkLevelResult | TokenLevelResult],
    level: str,
    kind: type,
    what: str,
) -> dict[str, float]:
    refuse_repeated(metric.name for metric in metrics)
    pairs: list[tuple[Any, Any]] = []
    for result in results:
        if isinstance(result, form):
            pairs.append((result.retrieved, result.ground_truth))
        elif isinstance(result, Mapping) and {"retrieved", "ground_truth"} <= result.keys():
            pairs.append((result["retrieved"], result["ground_truth"]))
        else:
            raise ConfigurationError(f"a result needs retrieved and ground_truth, this one is {preview(repr(result))}")
        for side in pairs[-1]:
            _check_items(side, kind, level, what)
    return {metric.name: _mean(metric.name, _values(metric, pairs)) for metric in metrics}


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
