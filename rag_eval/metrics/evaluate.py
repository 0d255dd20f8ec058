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
    refuse_repeated(metric.name for metric in metrics)
    pairs = [(one.retrieved, one.ground_truth) for one in map(_chunk_level, results)]
    return {metric.name: _mean(metric.name, _values(metric, pairs)) for metric in metrics}


def evaluate_token_level(
    results: Sequence[TokenLevelResult | TokenLevelRecord], metrics: Sequence[TokenLevelMetric]
) -> dict[str, float]:
    """The mean of each metric over the results, by the metric's name; 0 for each when there are no results.

    Raises ``ConfigurationError`` when two metrics share a name or one gives no finite number, when a record lacks a
    side, or when a side is not a sequence of character spans.
    """
    refuse_repeated(metric.name for metric in metrics)
    pairs = [(one.retrieved, one.ground_truth) for one in map(_token_level, results)]
    return {metric.name: _mean(metric.name, _values(metric, pairs)) for metric in metrics}


def _chunk_level(result: ChunkLevelResult | ChunkLevelRecord) -> ChunkLevelResult:
    if not isinstance(result, ChunkLevelResult):
        _check_sides(result)
        result = ChunkLevelResult(result["retrieved"], result["ground_truth"])
    for side in (result.retrieved, result.ground_truth):
        _check_items(side, str, "chunk-level", "chunk ids")
    return result


def _token_level(result: TokenLevelResult | TokenLevelRecord) -> TokenLevelResult:
    if not isinstance(result, TokenLevelResult):
        _check_sides(result)
        result = TokenLevelResult(result["retrieved"], result["ground_truth"])
    for side in (result.retrieved, result.ground_truth):
        _check_items(side, CharacterSpan, "token-level", "character spans")
    return result


def _check_sides(record: object) -> None:
    if not isinstance(record, Mapping) or not {"retrieved", "ground_truth"} <= record.keys():
        raise ConfigurationError(f"a result needs retrieved and ground_truth, this one is {preview(repr(record))}")


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
