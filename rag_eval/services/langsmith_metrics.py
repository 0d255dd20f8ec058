"""Metrics for LangSmith's ``evaluate``: the built-in ones of both levels, and the base classes of user-defined ones."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.formulas import ChunkF1, ChunkPrecision, ChunkRecall, SpanIoU, SpanPrecision, SpanRecall
from rag_eval.metrics.metric import check_cut, refuse_repeated, split_name
from rag_eval.metrics.span_sets import calculate_overlap
from rag_eval.services.langsmith_datasets import (
    RELEVANT_CHUNK_IDS,
    RELEVANT_SPANS,
    ChunkGroups,
    as_chunk_id,
    as_span,
    is_unanswerable,
    read_items,
    relevant_items,
    span_and_alternatives,
)
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelRunOutput, TokenLevelRunOutput
from rag_eval.types.ids import EvaluationType, mixed_ids

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run

    from rag_eval.services.langsmith_evaluators import Feedback, LangSmithEvaluator

Item = TypeVar("Item")

ERROR_CHARACTERS = 300
# LangSmith keeps what a target returns as it is when it is a dict, and under "output" otherwise.
RETRIEVED_CHUNK_IDS = ("retrieved_chunk_ids", "retrievedChunkIds", "chunk_ids", "retrieved_ids", "output", "outputs")
RETRIEVED_SPANS = ("retrieved_spans", "retrievedSpans", "spans", "output", "outputs")


class LangSmithMetric(ABC, Generic[Item]):
    """The base of ``Metrics`` and ``TokenLevelMetrics``; derive from one of these.

    With ``needs_ground_truth`` an example without ground truth is recorded without a score; otherwise ``calculate`` is
    called with an empty list.
    """

    level: ClassVar[EvaluationType]
    truth_keys: ClassVar[tuple[str, ...]]
    retrieved_keys: ClassVar[tuple[str, ...]]
    needs_ground_truth: ClassVar[bool] = False
    metric: ClassVar[Any] = None
    """The built-in metric, if it is one."""

    @abstractmethod
    def calculate(self, retrieved: list[Item], ground_truth: list[Item], /) -> float:
        """Return the score of a query."""

    @abstractmethod
    def _retrieved(self, run: "Run") -> list[Item]: ...

    @abstractmethod
    def _ground_truth(self, example: "Example | None") -> list[Item]: ...

    @abstractmethod
    def _alternatives(self, example: "Example | None") -> Mapping[Item, Sequence[Item]]:
        """Return the alternatives of each relevant item."""

    @abstractmethod
    def _covered(self, item: Item, retrieved: list[Item]) -> float:
        """Return the share of an item that the retrieved items cover."""

    def _score_groups(self, retrieved: list[Item], groups: Sequence[tuple[Item, ...]]) -> float:
        """Return the score against groups: the best covered member of each, of equal ones the first."""
        if self.metric is not None:  # which takes groups
            return float(self.metric.calculate(retrieved, groups))
        best = [max(group, key=lambda member: self._covered(member, retrieved)) for group in groups]
        return self.calculate(retrieved, best)

    def to_langsmith_evaluator(self, metric_name: str | None = None, k: int | None = None) -> "LangSmithEvaluator":
        """Return an evaluator for LangSmith's ``evaluate``; called with (run, example) it returns the feedback.

        Its name is ``metric_name``, or the class's name, with ``@k`` appended unless it is there. Without k a name
        that ends in ``@5`` cuts at 5, any other counts everything retrieved.
        Raises ``ConfigurationError`` when k is not a whole number of 1 or more, or the name says another.
        """
        from rag_eval.services.langsmith_evaluators import LangSmithEvaluator  # here, because it imports langsmith

        name, cut = name_and_cut(type(self).__name__ if metric_name is None else metric_name, k)

        def score(run: "Run", example: "Example | None" = None) -> "Feedback":
            return self._feedback(name, cut, run, example)

        return LangSmithEvaluator(name, score)

    def _feedback(self, name: str, k: int | None, run: "Run", example: "Example | None") -> "Feedback":
        if isinstance(run.error, str) and run.error:
            return _not_scored(name, f"not scored, the run failed: {preview(run.error, ERROR_CHARACTERS)}")
        truth = self._truth_of(example)
        if not truth and is_unanswerable(example):
            return {"key": name, "score": None, "comment": "not scored, the query is declared unanswerable"}
        if not truth and self.needs_ground_truth:
            return _not_scored(
                name,
                f"not scored, the example has no {self.level} ground truth ({', '.join(self.truth_keys)}): "
                "add it, or declare the example unanswerable",
            )
        retrieved = self._retrieved_by(run)[:k]
        if self.level == "chunk-level" and (fault := mixed_ids(map(str, retrieved), map(str, truth))):
            raise ConfigurationError(fault)
        alternatives = self._alternatives(example)
        groups = [(item, *alternatives.get(item, ())) for item in truth]
        value = self._score_groups(retrieved, groups) if alternatives else self.calculate(retrieved, truth)
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ConfigurationError(
                f"{type(self).__name__}.calculate returned {preview(repr(value))} for {name}: return a finite number"
            )
        return {"key": name, "score": float(value)}

    def _truth_of(self, example: "Example | None") -> list[Item]:
        """Return what the extraction reads from the example, which it sees under every spelling of its key."""
        outputs = None if example is None else example.outputs
        listed = next((outputs[key] for key in self.truth_keys if key in outputs), None) if outputs else None
        if example is None or not outputs or not listed or not isinstance(listed, list):
            return self._ground_truth(example)
        spelled = {**dict.fromkeys(self.truth_keys, listed), **outputs}
        truth = self._ground_truth(example.model_copy(update={"outputs": spelled}))
        if not truth and outputs.keys() <= {*self.truth_keys, "metadata"}:
            raise self._overlooked("example", outputs)
        return truth

    def _retrieved_by(self, run: "Run") -> list[Item]:
        """Return what the extraction reads from the run, which it sees as a list and under every spelling of its key.

        An extraction may be written for a list, for what LangSmith records of a list, or for another spelling: what it
        overlooks would count as nothing retrieved.
        """
        outputs: object = run.outputs
        try:
            listed = _list_in(outputs, self.retrieved_keys)[1]
        except ConfigurationError:  # of a shape that only the extraction knows
            listed = None
        if not listed or not isinstance(listed, list | tuple):
            return self._retrieved(run)
        with suppress(AttributeError, KeyError, TypeError):
            if retrieved := self._retrieved(run.model_copy(update={"outputs": listed})):
                return retrieved
        recorded = outputs if isinstance(outputs, Mapping) else {}
        spelled = {**dict.fromkeys(self.retrieved_keys, listed), **recorded}
        retrieved = self._retrieved(run.model_copy(update={"outputs": spelled}))
        if not retrieved and recorded.keys() <= set(self.retrieved_keys):
            raise self._overlooked("run", recorded)
        return retrieved

    def _overlooked(self, where: str, outputs: Mapping[str, object]) -> ConfigurationError:
        return ConfigurationError(
            f"the extraction of {type(self).__name__} finds nothing in the outputs of the {where}, which hold "
            f"{preview(', '.join(outputs) or 'a list')}: read that, or leave the extraction to the base class"
        )


def _list_in(outputs: object, keys: Sequence[str]) -> tuple[str, object]:
    """Return what the outputs of a run hold under the first of the keys, with the key; or outputs that are a list."""
    value, where = outputs, "outputs"
    while isinstance(value, Mapping) and value:
        key = next((key for key in keys if key in value), None)
        if key is None:
            raise ConfigurationError(
                f"the {where} of the run have {preview(', '.join(map(str, value)))}, and none of {', '.join(keys)}: "
                "return a list or one of these, or override the extraction"
            )
        value, where = value[key], key
    if isinstance(value, ChunkLevelRunOutput):
        value = value.retrieved_chunk_ids
    elif isinstance(value, TokenLevelRunOutput):
        value = value.retrieved_spans
    return where, value


def _retrieved_items(run: "Run", keys: Sequence[str], read: Callable[[object], Item]) -> list[Item]:
    where, values = _list_in(run.outputs, keys)
    return read_items(values, where, read, ConfigurationError) if run.outputs else []


def name_and_cut(name: str, k: int | None) -> tuple[str, int | None]:
    """Return the name with ``@k``, and its cut; raises ``ConfigurationError`` on a bad k, or one that differs."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a metric has the name {name!r}: use a text such as 'recall'")
    check_cut(k, name)
    cut = split_name(name)[1].hits
    if cut is None:
        return (name, None) if k is None else (f"{name}@{k}", k)
    if k not in (None, cut):
        raise ConfigurationError(f"the metric {name!r} is asked for at k = {k}: leave out @{cut}, or use k = {cut}")
    return name, cut


def _not_scored(name: str, comment: str) -> "Feedback":
    return {"key": name, "score": None, "comment": comment, "extra": {"error": True}}


class Metrics(LangSmithMetric[str]):
    """A metric on chunk ids: write ``calculate``, and an extraction where dataset or target has its own shape.

    Within ``evaluate`` an extraction sees the same items as a list and under every spelling of their key. An extraction
    that finds none of them is an error: it would score 0 in silence.
    """

    level = "chunk-level"
    truth_keys = RELEVANT_CHUNK_IDS
    retrieved_keys = RETRIEVED_CHUNK_IDS

    @abstractmethod
    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """Return the score of a query; what was retrieved is best first and cut at k."""

    def extract_ground_truth_chunks_ids(self, example: "Example | None") -> list[str]:
        """Return the output ``relevant_chunk_ids``, ``relevantChunkIds`` or ``chunk_ids`` of the example.

        [] without an example or without any of these. Raises ``GroundTruthError`` when they are not a list of ids.
        """
        return relevant_items(example, self.truth_keys, as_chunk_id)

    def extract_retrieved_chunks_ids(self, run: "Run") -> list[str]:
        """Return the retrieved ids, best first: outputs that are a list of ids, or that hold one.

        As ``retrieved_chunk_ids``, ``retrievedChunkIds``, ``chunk_ids``, ``retrieved_ids``, ``output`` or ``outputs``.
        [] without outputs. Raises ``ConfigurationError`` when the outputs hold no list of ids.
        """
        return _retrieved_items(run, self.retrieved_keys, as_chunk_id)

    def _retrieved(self, run: "Run") -> list[str]:
        return self.extract_retrieved_chunks_ids(run)

    def _ground_truth(self, example: "Example | None") -> list[str]:
        return self.extract_ground_truth_chunks_ids(example)

    def _alternatives(self, example: "Example | None") -> Mapping[str, Sequence[str]]:
        return ChunkGroups.of(example).alternatives

    def _covered(self, item: str, retrieved: list[str]) -> float:
        return float(item in retrieved)


def get_langsmith_evaluators(
    metrics: Mapping[str, LangSmithMetric[Item] | type | str] | Collection[LangSmithMetric[Item] | type | str],
    k: int | None = None,
) -> "list[LangSmithEvaluator]":
    """Return the evaluators of metrics given by name, or as a list or set and named by their classes.

    A metric is an object, its class, or the name of a built-in one such as ``chunk_recall``.

    They come in the order of the metrics, those of a set by name. Raises ``ConfigurationError`` when two end up with
    one name, when chunk-level and token-level metrics are mixed, and when something is not a metric.
    """
    if not isinstance(metrics, Collection) or isinstance(metrics, str):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: use a mapping by name, a list or a set")
    pairs: list[tuple[str | None, object]]
    pairs = list(metrics.items()) if isinstance(metrics, Mapping) else [(None, metric) for metric in metrics]
    named = [_named(name, value) for name, value in pairs]
    levels = {metric.level: type(metric).__name__ for _, metric in reversed(named)}
    if len(levels) > 1:
        both = " and ".join(f"{name} is {level}" for level, name in sorted(levels.items()))
        raise ConfigurationError(f"{both}: evaluate the two levels apart, each against its own ground truth")
    evaluators = [metric.to_langsmith_evaluator(name, k) for name, metric in named]
    if isinstance(metrics, Set):
        evaluators.sort(key=lambda evaluator: evaluator.name)
    refuse_repeated(evaluator.name for evaluator in evaluators)
    return evaluators


def _named(name: str | None, value: object) -> tuple[str | None, LangSmithMetric[Any]]:
    """Return a metric with its name."""
    if isinstance(value, str):
        if value not in BUILT_IN:
            raise ConfigurationError(f"there is no metric {preview(value)} for LangSmith: use {', '.join(BUILT_IN)}")
        return name or value, BUILT_IN[value]()
    if isinstance(value, type):
        if not issubclass(value, LangSmithMetric):
            raise ConfigurationError(f"{value.__name__} is no metric for LangSmith: derive it from Metrics")
        return name, value()
    if not isinstance(value, LangSmithMetric):
        raise ConfigurationError(f"{preview(repr(value))} is not a metric: derive its class from Metrics")
    return name, value


class TokenLevelMetrics(LangSmithMetric[CharacterSpan]):
    """A metric on character spans: write ``calculate``, and an extraction where dataset or target has its own shape."""

    level = "token-level"
    truth_keys = RELEVANT_SPANS
    retrieved_keys = RETRIEVED_SPANS

    @abstractmethod
    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """Return the score of a query; what was retrieved is best first and cut at k."""

    def extract_ground_truth_spans(self, example: "Example | None") -> list[CharacterSpan]:
        """Return the relevant spans: the output ``relevant_spans`` or ``relevantSpans`` of the example.

        [] without an example or without either. Raises ``GroundTruthError`` when they are not a list of spans.
        """
        return relevant_items(example, self.truth_keys, as_span)

    def extract_retrieved_spans(self, run: "Run") -> list[CharacterSpan]:
        """Return the retrieved spans, best first: outputs that are a list of spans, or that hold one.

        As ``retrieved_spans``, ``retrievedSpans``, ``spans``, ``output`` or ``outputs``. [] without outputs.
        Raises ``ConfigurationError`` when the outputs hold no list of spans.
        """
        return _retrieved_items(run, self.retrieved_keys, as_span)

    def _retrieved(self, run: "Run") -> list[CharacterSpan]:
        return self.extract_retrieved_spans(run)

    def _ground_truth(self, example: "Example | None") -> list[CharacterSpan]:
        return self.extract_ground_truth_spans(example)

    def _alternatives(self, example: "Example | None") -> Mapping[CharacterSpan, Sequence[CharacterSpan]]:
        groups = relevant_items(example, self.truth_keys, span_and_alternatives)
        return {group[0]: group[1:] for group in groups if group}

    def _covered(self, item: CharacterSpan, retrieved: list[CharacterSpan]) -> float:
        return calculate_overlap([item], retrieved) / item.length


class SpanLevelMetrics(TokenLevelMetrics):
    """A built-in metric; an example without ground truth is not scored."""

    needs_ground_truth = True

    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """Return the metric of a query, counted in characters; a character counts once."""
        return float(self.metric.calculate(retrieved_spans, ground_truth_spans))


class TokenLevelRecall(SpanLevelMetrics):
    """|retrieved ∩ truth| / |truth|; ``calculate`` gives 0 on empty truth."""

    metric = SpanRecall()


class TokenLevelPrecision(SpanLevelMetrics):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    metric = SpanPrecision()


class TokenLevelIoU(SpanLevelMetrics):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; ``calculate`` gives 1 when both are empty, 0 when one is."""

    metric = SpanIoU()


class ChunkLevelMetrics(Metrics):
    """A built-in metric; an example without ground truth is not scored."""

    needs_ground_truth = True

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """Return the metric of a query; a repeated id counts once."""
        return float(self.metric.calculate(retrieved_chunk_ids, ground_truth_chunk_ids))


class ChunkLevelRecall(ChunkLevelMetrics):
    """|retrieved ∩ relevant| / |relevant|; ``calculate`` gives 0 on empty truth."""

    metric = ChunkRecall()


class ChunkLevelPrecision(ChunkLevelMetrics):
    """|retrieved ∩ relevant| / |retrieved|; 0 on empty retrieval."""

    metric = ChunkPrecision()


class ChunkLevelF1(ChunkLevelMetrics):
    """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|); 0 on empty truth or retrieval."""

    metric = ChunkF1()


BUILT_IN: dict[str, type[SpanLevelMetrics | ChunkLevelMetrics]] = {
    "chunk_recall": ChunkLevelRecall,
    "chunk_precision": ChunkLevelPrecision,
    "chunk_f1": ChunkLevelF1,
    "span_recall": TokenLevelRecall,
    "span_precision": TokenLevelPrecision,
    "span_iou": TokenLevelIoU,
}
"""The built-in metrics by name."""
