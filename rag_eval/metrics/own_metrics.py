"""Metrics that are not built in: a user's objects and functions, which score one query at a time.

Such a metric is asked ``calculate(retrieved, ground_truth)`` for every query and cut. ``retrieved`` are the hits within
the cut, best first. ``ground_truth`` has one span (or chunk id) for each piece of evidence. Where that is a group, of
which any member will do, it is the member of which these hits cover the largest share, of equal ones the first. So a
metric that knows nothing of groups counts each once, by its best covered member; hits on others are no truth to it.
"""

import functools
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import choices
from rag_eval.metrics import METRIC
from rag_eval.metrics.coverage import SpanRows
from rag_eval.metrics.metric import (
    ChunkLevelMetric,
    MetricAtCut,
    RetrievalMetric,
    TokenLevelMetric,
    Values,
    chunk_level_metric,
    token_level_metric,
)
from rag_eval.parts.definition import shown
from rag_eval.parts.objects import ForeignFunction, Origin, is_reference
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId, EvaluationType


class ForeignMetric(ForeignFunction):
    """A metric that is not built in: an object with ``calculate(retrieved, ground_truth)``, or such a function.

    Its name is that of the object, or else of its class or function, with the settings given. ``higher_is_better`` of
    the object says whether it is, else it is. Raises ``ConfigurationError`` when the object is no metric.
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
        """What its scores are called, without a cut."""
        own = self._name or getattr(self.source, "name", None)
        if isinstance(own, str) and own:
            return own
        inner = self.source.func if isinstance(self.source, functools.partial) else self.source
        settings = self.origin.settings if self.origin else getattr(self.source, "keywords", {})
        given = [f"{key}={shown(value)}" for key, value in settings.items()]
        return " ".join([getattr(inner, "__name__", type(inner).__name__), *given])

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is the better one."""
        return getattr(self.source, "higher_is_better", True) is not False

    def check_level(self, level: EvaluationType) -> None:
        """Raise ``ConfigurationError`` when the object says that it is a metric of the other level."""
        levels: dict[type, EvaluationType] = {ChunkLevelMetric: "chunk-level", TokenLevelMetric: "token-level"}
        declared = [levels[base] for base in type(self.source).__mro__ if base in levels]
        declared = list(self.source.levels) if isinstance(self.source, RetrievalMetric) else declared
        if declared and level not in declared:
            raise ConfigurationError(f"{self.name} is a {declared[0]} metric and this is a {level} evaluation")

    def calculate(self, retrieved: Sequence[Any], ground_truth: Sequence[Any]) -> float:
        """Return the value of one query; raises ``ConfigurationError`` when the metric fails."""
        value: float = self.ask(self._call, retrieved, ground_truth)
        return value


def taken_metric(given: Any, level: EvaluationType) -> Any:
    """Return an object, a class, a function or a ``module:Name`` as a metric; built-in ones as they are.

    An object with a name and a ``calculate`` that is no coroutine is itself. Raises ``ConfigurationError`` on what is
    no metric, or one of the other level.
    """
    if isinstance(given, type):
        try:
            given = given()
        except TypeError as error:
            raise ConfigurationError(f"{given.__name__} cannot be made without settings ({error}): make it") from None
    made = METRIC.make(given) if isinstance(given, str | Mapping) else METRIC.take(given)
    if isinstance(made, RetrievalMetric):
        if level not in made.levels:
            raise ConfigurationError(
                f"{made.name} is a {made.levels[0]} metric and this is a {level} evaluation: use one of its own"
            )
        return made
    made.check_level(level)
    is_plain = not inspect.iscoroutinefunction(getattr(given, "calculate", None))
    return given if is_plain and isinstance(getattr(given, "name", None), str) and hasattr(given, "calculate") else made


def given_metrics(metrics: Iterable[Any], level: EvaluationType) -> list[Any]:
    """Return metrics from objects, classes, functions, ``module:Name`` or names; raises ``ConfigurationError``."""
    of_level = token_level_metric if level == "token-level" else chunk_level_metric
    return [
        of_level(given) if isinstance(given, str) and not is_reference(given) else taken_metric(given, level)
        for given in listed_metrics(metrics)
    ]


def listed_metrics(metrics: Any) -> list[Any]:
    """Return the list; raises ``ConfigurationError`` on what is none."""
    if isinstance(metrics, str | Mapping) or not isinstance(metrics, Iterable):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: give a list of metrics, such as [SpanRecall()]")
    return list(metrics)


class QueryTexts:
    """What a metric is given for a query: spans with their texts, or the ids of chunks."""

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
        """Return the same, the members of a group of several as a tuple."""
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
    asked: MetricAtCut, hits: SpanRows, truth: SpanRows, reach: Any, texts: QueryTexts, ids: Any
) -> Values:
    """Return the value of every query from its first ``reach`` hits; raises ``ConfigurationError`` unless finite."""
    values = np.empty(len(hits.offsets) - 1)
    for query, (first, start, end) in enumerate(
        zip(hits.offsets[:-1].tolist(), truth.offsets[:-1].tolist(), truth.offsets[1:].tolist(), strict=True)
    ):
        retrieved = texts.of(hits, first, first + int(reach[query]))
        value: object = asked.metric.calculate(retrieved, texts.in_groups(truth, start, end))
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ConfigurationError(
                f"{asked.metric.name}.calculate gave {preview(repr(value))} for {ids[query].as_py()}: "
                "return a finite number"
            )
        values[query] = float(value)
    return values
