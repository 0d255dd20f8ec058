"""Scores from metric objects: built-in ones in one sweep over the tables, others query by query."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.base import MetricName
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS
from rag_eval.metrics.table import NO_CUT
from rag_eval.tables import SCORES, table_of
from rag_eval.types.ids import EvaluationType, QueryId

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# These need more than hits and truth: all chunks, or the documents' tokens.
_NOT_SWEPT = {"precision_omega", "tokens_retrieved"}
REGISTRIES: Mapping[EvaluationType, Mapping[str, type]] = {
    "token-level": TOKEN_LEVEL_METRICS,
    "chunk-level": CHUNK_LEVEL_METRICS,
}


class Metric(Protocol[T_contra]):
    """A metric of either level."""

    @property
    def name(self) -> str:
        """The key of the metric in every result."""

    def calculate(self, retrieved: Sequence[T_contra], ground_truth: Sequence[T_contra]) -> float:
        """The score of one query."""


@dataclass(frozen=True, slots=True)
class Case(Generic[T]):
    """One answerable query: what was retrieved, best first, and what is relevant."""

    query_id: QueryId
    retrieved: Sequence[T]
    relevant: Sequence[T]


def score_cases(
    evaluation_type: EvaluationType,
    metrics: Sequence[Metric[T]],
    ks: Sequence[int],
    cases: Sequence[Case[T]],
    sweep: Callable[[list[str]], pa.Table],
) -> pa.Table:
    """A ``SCORES`` row for each metric, k and case, in this order; ``sweep`` scores built-in metrics by name.

    Raises ``ConfigurationError`` when a metric belongs to the other level or two share a name.
    """
    check_metrics(evaluation_type, metrics)
    swept = [metric.name for metric in metrics if _is_swept(metric, REGISTRIES[evaluation_type])]
    scores = sweep(swept) if swept else None
    parts = []
    for metric in metrics:
        if scores is not None and metric.name in swept:
            parts.append(scores.filter(pc.equal(scores.column("metric"), metric.name)))
        else:
            parts.append(_score_one_by_one(metric, ks, cases))
    return pa.concat_tables(parts)


def check_metrics(evaluation_type: EvaluationType, metrics: Sequence[Metric[T]]) -> None:
    """Raise ``ConfigurationError`` without metrics, when one is of the other level, or when two share a name."""
    if not metrics:
        raise ConfigurationError("there is no metric to compute: name at least one, or leave metrics out")
    other: EvaluationType = "chunk-level" if evaluation_type == "token-level" else "token-level"
    for metric in metrics:
        if isinstance(metric, tuple(REGISTRIES[other].values())):
            raise ConfigurationError(
                f"{metric.name} is a {other} metric and this is a {evaluation_type} evaluation: "
                f"use one of {', '.join(REGISTRIES[evaluation_type])}, or a {other} evaluation"
            )
    names = [metric.name for metric in metrics]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ConfigurationError(f"two metrics have the name {repeated[0]!r}: give each its own")


def _is_swept(metric: Metric[T], registry: Mapping[str, type]) -> bool:
    """Whether the metric is a built-in one, to the letter: a subclass may calculate otherwise."""
    return metric.name not in _NOT_SWEPT and registry.get(metric.name) is type(metric)


def _score_one_by_one(metric: Metric[T], ks: Sequence[int], cases: Sequence[Case[T]]) -> pa.Table:
    base, own_cut = _own_cut(metric.name)
    rows = [
        (case.query_id, base, row_k, float(metric.calculate(case.retrieved[:k], case.relevant)))
        for k, row_k in ([(max(ks), own_cut)] if own_cut is not None else [(k, k) for k in ks])
        for case in cases
    ]
    return table_of(SCORES, rows)


def _own_cut(name: str) -> tuple[str, int | None]:
    """The name without a cut of its own, and that cut; metrics without one are computed at every k of the run."""
    if name == "precision_omega":
        return name, NO_CUT
    try:
        parsed = MetricName.parse(name)
    except ConfigurationError:  # a custom metric may be called anything
        return name, None
    if isinstance(parsed.k, int):
        return str(MetricName(parsed.base, parsed.unit)), parsed.k
    return name, NO_CUT if parsed.k == "min" else None
