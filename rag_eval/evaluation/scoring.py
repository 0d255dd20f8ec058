"""Scores from metric objects: built-in ones in one sweep over the tables, others query by query."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.base import refuse_repeated
from rag_eval.metrics.chroma import ChromaMetric
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS
from rag_eval.metrics.table import NO_CUT, score_name
from rag_eval.tables import SCORES, table_of
from rag_eval.types.ids import EvaluationType, QueryId

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# These need more than hits and truth: all chunks, or the documents' tokens.
_NOT_SWEPT = {"precision_omega", "tokens_retrieved"}
_OWN_CUT = re.compile(r"(?P<label>.+)@(?P<k>[1-9][0-9]*)", re.DOTALL)
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


@dataclass(frozen=True, slots=True)
class MetricAtCut(Generic[T]):
    """A metric on the first ``cut`` hits (None: as many as it wants), its label and k in the scores, and its key."""

    metric: Metric[T]
    label: str
    k: int
    cut: int | None
    key: str

    def depth(self, truth: Iterable[Sequence[Any]]) -> int:
        """How many hits it needs, given what is relevant to each query."""
        if isinstance(self.metric, ChromaMetric) and self.metric.k == "min" and self.metric.chunks is not None:
            return max(map(self.metric.chunks.min_k, truth), default=0)
        return self.cut or 0


def metrics_at_cuts(
    evaluation_type: EvaluationType, metrics: Sequence[Metric[T]], ks: Sequence[int], *, several: bool
) -> list[MetricAtCut[T]]:
    """Each metric at each k, or at the cut that its own name states: ``span_recall@10`` sees ten hits at any k.

    With ``several`` ks the keys have ``@k``; a metric with a cut of its own keeps its name.
    Raises ``ConfigurationError`` without metrics, on what is not a metric of this level, and when two would have the
    same rows.
    """
    columns: list[MetricAtCut[T]] = []
    for metric in _checked(evaluation_type, metrics):
        name = metric.name
        stated = _OWN_CUT.fullmatch(name)
        if name == "precision_omega" or name.endswith("@min"):
            columns.append(MetricAtCut(metric, name, NO_CUT, None, name))
        elif stated is not None:
            columns.append(MetricAtCut(metric, stated["label"], int(stated["k"]), int(stated["k"]), name))
        else:
            columns += [MetricAtCut(metric, name, k, k, score_name(name, k) if several else name) for k in ks]
    refuse_repeated(score_name(column.label, column.k) for column in columns)
    return columns


def score_cases(
    evaluation_type: EvaluationType,
    columns: Sequence[MetricAtCut[T]],
    cases: Sequence[Case[T]],
    sweep: Callable[[list[str], list[int]], pa.Table],
) -> pa.Table:
    """A ``SCORES`` row for each metric at its cut and case, in this order; ``sweep`` scores built-in ones by name.

    Raises ``ConfigurationError`` when a metric gives anything but a finite number.
    """
    swept = [column for column in columns if _is_swept(column, REGISTRIES[evaluation_type])]
    names, ks = dict.fromkeys(column.label for column in swept), dict.fromkeys(column.k for column in swept)
    scores = sweep(list(names), list(ks)) if swept else None
    parts = []
    for column in columns:
        if scores is not None and column in swept:
            rows = pc.and_(pc.equal(scores.column("metric"), column.label), pc.equal(scores.column("k"), column.k))
            parts.append(scores.filter(rows))
        else:
            values = ((case.query_id, column.label, column.k, _score(column, case)) for case in cases)
            parts.append(table_of(SCORES, list(values)))
    return pa.concat_tables(parts)


def _checked(evaluation_type: EvaluationType, metrics: Sequence[Metric[T]]) -> list[Metric[T]]:
    if isinstance(metrics, str | Mapping) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: give a list of metrics, such as [SpanRecall()]")
    given = list(metrics)
    if not given:
        raise ConfigurationError("there is no metric to compute: name at least one, or leave metrics out")
    other: EvaluationType = "chunk-level" if evaluation_type == "token-level" else "token-level"
    for metric in given:
        told = metric.__name__ if isinstance(metric, type) else preview(repr(metric))
        if isinstance(metric, type):
            raise ConfigurationError(f"{told} is a class, not a metric: write {told}()")
        if hasattr(metric, "to_langsmith_evaluator"):
            raise ConfigurationError(
                f"{told} is a metric for LangSmith's evaluate: use one of {', '.join(REGISTRIES[evaluation_type])}"
            )
        if not isinstance(getattr(metric, "name", None), str) or not callable(getattr(metric, "calculate", None)):
            raise ConfigurationError(
                f"{told} is not a metric: give an object with name and calculate(retrieved, ground_truth)"
            )
        if isinstance(metric, tuple(REGISTRIES[other].values())):
            raise ConfigurationError(
                f"{metric.name} is a {other} metric and this is a {evaluation_type} evaluation: "
                f"use one of {', '.join(REGISTRIES[evaluation_type])}, or a {other} evaluation"
            )
    return given


def _is_swept(column: MetricAtCut[T], registry: Mapping[str, type]) -> bool:
    """Whether the metric is a built-in one, to the letter: a subclass may calculate otherwise."""
    return column.label not in _NOT_SWEPT and registry.get(column.metric.name) is type(column.metric)


def _score(column: MetricAtCut[T], case: Case[T]) -> float:
    value: object = column.metric.calculate(case.retrieved[: column.cut], case.relevant)
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ConfigurationError(
            f"{column.metric.name}.calculate gave {preview(repr(value))} for {case.query_id}: return a finite number"
        )
    return float(value)
