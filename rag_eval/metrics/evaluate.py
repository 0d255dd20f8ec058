"""Evaluate results in memory, and score with users' metrics: objects and functions that score one query at a time.

A user's metric is called as ``calculate(retrieved, ground_truth)`` for every query and cut. ``retrieved`` has the hits
within the cut, best first. ``ground_truth`` has one span (or chunk id) for each piece of evidence; of a group, of which
any member will do, the member of which these hits cover the largest share, the first of equal ones. So a metric that
knows nothing of groups counts each once, by its best covered member; hits on other members are not relevant to it.
"""

import functools
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices
from rag_eval.metrics import METRIC
from rag_eval.metrics.coverage import SpanRows
from rag_eval.metrics.metric import (
    AnyChunkLevelMetric,
    AnyTokenLevelMetric,
    ChunkLevelMetric,
    Counts,
    MetricAtCut,
    RetrievalMetric,
    TokenLevelMetric,
    Values,
    built_in_metric,
    metric_of,
    refuse_repeated,
)
from rag_eval.parts.definition import shown
from rag_eval.parts.objects import ForeignFunction, Origin, is_reference
from rag_eval.types.chunks import CharacterSpan, span_of
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId, EvaluationType, mixed_ids

_TRUTH = ("ground_truth", "groundTruth")

Result = Mapping[str, Sequence[Any]]
"""What was ``retrieved`` for one query, best first, and its ``ground_truth`` (or ``groundTruth``)."""


def evaluate_chunk_level(results: Sequence[Result], metrics: Sequence[AnyChunkLevelMetric]) -> dict[str, float]:
    """Return the mean of each metric over the results, by the metric's name; 0 for each without results.

    Args:
        results: For each query, what was ``retrieved`` and the ``ground_truth``: lists of chunk ids.
        metrics: Objects, classes, or names of built-in metrics, such as ``chunk_recall@5``.

    Raises:
        ConfigurationError: Two metrics share a name, one returns no finite number, a result lacks a side or has a side
            that is not a sequence of chunk ids, or one side has ``chunk_`` ids and the other ``pa_chunk_``.
    """
    return _means(results, metrics, "chunk-level", str, "chunk ids")


def evaluate_token_level(results: Sequence[Result], metrics: Sequence[AnyTokenLevelMetric]) -> dict[str, float]:
    """Return the mean of each metric over the results, by the metric's name; 0 for each without results.

    Like ``evaluate_chunk_level``, for character spans: ``CharacterSpan`` objects, or records with ``doc_id`` (or
    ``docId``), ``start``, ``end`` and ``text``.
    """
    return _means(results, metrics, "token-level", CharacterSpan, "character spans")


def _means(
    results: Sequence[Result], metrics: Sequence[object], level: EvaluationType, kind: type, what: str
) -> dict[str, float]:
    taken = [
        built_in_metric(metric, level)
        if isinstance(metric, str) and not is_reference(metric)
        else taken_metric(metric, level)
        for metric in listed_metrics(metrics)
    ]
    refuse_repeated(metric.name for metric in taken)
    pairs = [_checked_pair(result, kind, level, what) for result in results]
    means = {}
    for metric in taken:
        # A subclass of a built-in metric may calculate differently, so it is called query by query.
        is_built_in = metric_of(metric.name) is type(metric)
        values = metric.calculate_many(pairs).tolist() if is_built_in else [metric.calculate(*pair) for pair in pairs]
        for value in values:
            if not _is_finite(value):
                raise ConfigurationError(f"the metric {metric.name!r} returned {value!r}: return a finite number")
        means[metric.name] = fmean(values) if values else 0.0
    return means


def _checked_pair(result: object, kind: type, level: str, what: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return what was retrieved and what is relevant."""
    if not isinstance(result, Mapping) or "retrieved" not in result or not result.keys() & _TRUTH:
        raise ConfigurationError(f"a result needs retrieved and ground_truth, found {preview(repr(result))}")
    truth = result[_TRUTH[0] if _TRUTH[0] in result else _TRUTH[1]]
    retrieved, relevant = (_checked_side(side, kind, level, what) for side in (result["retrieved"], truth))
    if kind is str and (fault := mixed_ids(retrieved, relevant)):
        raise ConfigurationError(fault)
    return retrieved, relevant


def _checked_side(items: object, kind: type, level: str, what: str) -> Sequence[Any]:
    if isinstance(items, str) or not isinstance(items, Sequence):
        raise ConfigurationError(f"{level} evaluation expects a list of {what}, found {preview(repr(items))}")
    if kind is CharacterSpan:
        items = [span_of(item) if isinstance(item, Mapping) else item for item in items]
    for item in items:
        if not isinstance(item, kind):
            raise ConfigurationError(
                f"{level} evaluation expects {what}, found {preview(repr(item))}: "
                "use the evaluation of the other level, or convert"
            )
    return items


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


class ForeignMetric(ForeignFunction):
    """A user's metric: an object with ``calculate(retrieved, ground_truth)``, or such a function.

    Its name is the name of the object, or else of its class or function, with the settings. Its ``higher_is_better`` is
    the attribute of the object (default: True). Raises ``ConfigurationError`` when the object is not a metric.
    """

    kind = "metric"
    methods = ("calculate",)
    wanted = "an object with calculate(retrieved, ground_truth), or such a function"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        if hasattr(source, "to_langsmith_evaluator"):
            raise ConfigurationError(
                f"{preview(repr(source))} is a metric for LangSmith's evaluate: {choices(METRIC.types)}"
            )

    @property
    def name(self) -> str:
        """The name of its scores, without a cut."""
        stated = self._name or getattr(self.source, "name", None)
        if isinstance(stated, str) and stated:
            return stated
        inner = self.source.func if isinstance(self.source, functools.partial) else self.source
        settings = self.origin.settings if self.origin else getattr(self.source, "keywords", {})
        pairs = [f"{key}={shown(value)}" for key, value in settings.items()]
        return " ".join([getattr(inner, "__name__", type(inner).__name__), *pairs])

    @property
    def higher_is_better(self) -> bool:
        """Whether higher values are better."""
        return getattr(self.source, "higher_is_better", True) is not False

    def check_level(self, level: EvaluationType) -> None:
        """Raise ``ConfigurationError`` if the object declares that it is a metric of the other level."""
        levels: dict[type, EvaluationType] = {ChunkLevelMetric: "chunk-level", TokenLevelMetric: "token-level"}
        declared = [levels[base] for base in type(self.source).__mro__ if base in levels]
        declared = list(self.source.levels) if isinstance(self.source, RetrievalMetric) else declared
        if declared and level not in declared:
            raise ConfigurationError(f"{self.name} is a {declared[0]} metric and this is a {level} evaluation")

    def calculate(self, retrieved: Sequence[Any], ground_truth: Sequence[Any]) -> float:
        """Return the value of one query; raises ``ConfigurationError`` when the metric fails."""
        value: float = self.ask(self._call, retrieved, ground_truth)
        return value


def taken_metric(metric: Any, level: EvaluationType) -> Any:
    """Return an object, a class, a function or a ``module:Name`` as a metric.

    Built-in metrics, and objects with a name and a synchronous ``calculate``, are returned unchanged. Raises
    ``ConfigurationError`` if it is not a metric, or is one of the other level.
    """
    if isinstance(metric, type):
        try:
            metric = metric()
        except TypeError as error:
            raise ConfigurationError(f"{metric.__name__} needs settings ({error}): pass an object of it") from None
    made = METRIC.make(metric) if isinstance(metric, str | Mapping) else METRIC.take(metric)
    if isinstance(made, RetrievalMetric):
        if level not in made.levels:
            raise ConfigurationError(
                f"{made.name} is a {made.levels[0]} metric and this is a {level} evaluation: use a {level} metric"
            )
        return made
    made.check_level(level)
    is_plain = not inspect.iscoroutinefunction(getattr(metric, "calculate", None))
    has_name = isinstance(getattr(metric, "name", None), str) and hasattr(metric, "calculate")
    return metric if is_plain and has_name else made


def listed_metrics(metrics: Any) -> list[Any]:
    """Return the metrics as a list; raise ``ConfigurationError`` if they are not a collection."""
    if isinstance(metrics, str | Mapping) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: give a list of metrics, such as [SpanRecall()]")
    return list(metrics)


class QueryTexts:
    """Turns rows of tables into the arguments of a metric: spans with their texts, or chunk ids."""

    def __init__(self, level: EvaluationType, ids: Sequence[str], documents: Mapping[str, Document]) -> None:
        self._is_placed, self._ids = level == "token-level", ids
        self._documents = documents
        self._known: dict[tuple[int, int, int], CharacterSpan] = {}

    def of(self, rows: SpanRows, first: int, last: int) -> list[Any]:
        """Return the rows from ``first`` to before ``last``."""
        if not self._is_placed:
            return [self._ids[number] for number in rows.doc[first:last].tolist()]
        places = zip(*(column[first:last].tolist() for column in (rows.doc, rows.start, rows.end)), strict=True)
        return [self._known.get(place) or self._span(place) for place in places]

    def in_groups(self, rows: SpanRows, first: int, last: int) -> list[Any]:
        """Return the same rows, with the members of a larger group as a tuple."""
        members = self.of(rows, first, last)
        if rows.group is None:
            return members
        groups: dict[int, list[Any]] = {}
        for group, member in zip(rows.group[first:last].tolist(), members, strict=True):
            groups.setdefault(group, []).append(member)
        return [group[0] if len(group) == 1 else tuple(group) for group in groups.values()]

    def _span(self, place: tuple[int, int, int]) -> CharacterSpan:
        number, start, end = place
        doc_id = DocumentId(self._ids[number])
        span = self._known[place] = CharacterSpan(doc_id, start, end, self._documents[doc_id].content[start:end])
        return span


def calculate_each(
    metric: MetricAtCut, hits: SpanRows, truth: SpanRows, reach: Counts, texts: QueryTexts, query_ids: pa.Array
) -> Values:
    """Return the value of every query from its first ``reach`` hits; raise ``ConfigurationError`` unless finite."""
    values = np.empty(len(hits.offsets) - 1)
    for query, (first, start, end) in enumerate(
        zip(hits.offsets[:-1].tolist(), truth.offsets[:-1].tolist(), truth.offsets[1:].tolist(), strict=True)
    ):
        retrieved = texts.of(hits, first, first + int(reach[query]))
        value = metric.metric.calculate(retrieved, texts.in_groups(truth, start, end))
        if not _is_finite(value):
            raise ConfigurationError(
                f"{metric.metric.name}.calculate returned {preview(repr(value))} for {query_ids[query].as_py()}: "
                "return a finite number"
            )
        values[query] = float(value)
    return values
