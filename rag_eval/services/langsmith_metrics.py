"""Metrics for LangSmith's ``evaluate``: the built-in ones of both levels, and the classes to derive one's own from."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Set
from numbers import Real
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.chunk_metrics import ChunkF1, ChunkMetric, ChunkPrecision, ChunkRecall
from rag_eval.metrics.metric import check_cut, refuse_repeated, split_name
from rag_eval.metrics.span_metrics import SpanIoU, SpanMetric, SpanPrecision, SpanRecall
from rag_eval.services.langsmith_datasets import (
    RELEVANT_CHUNK_IDS,
    RELEVANT_SPANS,
    is_unanswerable,
    relevant_chunk_ids,
    relevant_spans,
    retrieved_chunk_ids,
    retrieved_spans,
)
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.ids import ChunkId, EvaluationType

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run

    from rag_eval.services.langsmith_evaluators import Feedback, LangSmithEvaluator

Item = TypeVar("Item")

ERROR_CHARACTERS = 300


class LangSmithMetric(ABC, Generic[Item]):
    """What ``Metrics`` and ``TokenLevelMetrics`` share; derive from one of these.

    ``needs_ground_truth`` says that an example without ground truth is recorded without a score; otherwise
    ``calculate`` is called with an empty list.
    """

    level: ClassVar[EvaluationType]
    truth_keys: ClassVar[tuple[str, ...]]
    needs_ground_truth: ClassVar[bool] = False

    @abstractmethod
    def calculate(self, retrieved: list[Item], ground_truth: list[Item], /) -> float:
        """The score of one query."""

    @abstractmethod
    def _retrieved(self, run: "Run") -> list[Item]: ...

    @abstractmethod
    def _ground_truth(self, example: "Example | None") -> list[Item]: ...

    def to_langsmith_evaluator(self, metric_name: str | None = None, k: int | None = None) -> "LangSmithEvaluator":
        """An evaluator for LangSmith's ``evaluate``; called with (run, example) it gives the feedback.

        Its name is ``metric_name``, or the class's name, with ``@k`` appended unless it is there. Without k a name
        that ends in ``@5`` cuts at 5, any other counts all that was retrieved.
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
        truth = self._ground_truth(example)
        if not truth and is_unanswerable(example):
            return {"key": name, "score": None, "comment": "not scored, the query is declared unanswerable"}
        if not truth and self.needs_ground_truth:
            return _not_scored(
                name,
                f"not scored, the example has no {self.level} ground truth ({', '.join(self.truth_keys)}): "
                "add it, or declare the example unanswerable",
            )
        value = self.calculate(self._as_returned(run)[:k], truth)
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ConfigurationError(
                f"{type(self).__name__}.calculate gave {preview(repr(value))} for {name}: return a finite number"
            )
        return {"key": name, "score": float(value)}

    def _as_returned(self, run: "Run") -> list[Item]:
        """What was retrieved; a target's list is shown to the extraction as a list first, then as it was recorded."""
        outputs = run.outputs
        # LangSmith records a list as {"output": [...]}; an extraction may be written for the one or for the other.
        if isinstance(outputs, dict) and outputs.keys() == {"output"} and isinstance(outputs["output"], list):
            returned = copy.copy(run)
            returned.outputs = outputs["output"]  # type: ignore[assignment]  # what the target returned
            try:
                retrieved = self._retrieved(returned)
            except (AttributeError, KeyError, TypeError):
                retrieved = []
            if retrieved:
                return retrieved
        return self._retrieved(run)


def name_and_cut(name: str, k: int | None) -> tuple[str, int | None]:
    """The name with ``@k`` at its end, and the cut it states.

    Raises ``ConfigurationError`` when k is not a whole number of 1 or more, and when the name states another cut.
    """
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
    """A metric on chunk ids: write ``calculate``, and an extraction where the dataset or the target has its own shape.

    Within ``evaluate``, ``run.outputs`` of a target that returns a list is shown to the extraction as that list.
    """

    level = "chunk-level"
    truth_keys = RELEVANT_CHUNK_IDS

    @abstractmethod
    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """The score of one query: what was retrieved, best first and cut at k, against what is relevant."""

    def extract_ground_truth_chunks_ids(self, example: "Example | None") -> list[str]:
        """The relevant ids: the output ``relevant_chunk_ids``, ``relevantChunkIds`` or ``chunk_ids`` of the example.

        [] without an example or without any of these. Raises ``GroundTruthError`` when they are not a list of ids.
        """
        return relevant_chunk_ids(example)

    def extract_retrieved_chunks_ids(self, run: "Run") -> list[str]:
        """The retrieved ids, best first: outputs that are a list of ids, or that hold one.

        As ``retrieved_chunk_ids``, ``retrievedChunkIds``, ``chunk_ids``, ``output`` or ``outputs``. [] without
        outputs. Raises ``ConfigurationError`` when the outputs hold no list of ids.
        """
        return retrieved_chunk_ids(run)

    def _retrieved(self, run: "Run") -> list[str]:
        return self.extract_retrieved_chunks_ids(run)

    def _ground_truth(self, example: "Example | None") -> list[str]:
        return self.extract_ground_truth_chunks_ids(example)


def get_langsmith_evaluators(
    metrics: Mapping[str, LangSmithMetric[Item]] | Collection[LangSmithMetric[Item]], k: int | None = None
) -> "list[LangSmithEvaluator]":
    """The evaluators of metrics given by name, or as a list or set and named by their classes.

    They come in the order of the metrics, those of a set by name. Raises ``ConfigurationError`` when two end up with
    one name, when chunk-level and token-level metrics are mixed, and when something is not a metric.
    """
    if not isinstance(metrics, Collection) or isinstance(metrics, str):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: use a mapping by name, a list or a set")
    named: list[tuple[str | None, LangSmithMetric[Item]]]
    named = list(metrics.items()) if isinstance(metrics, Mapping) else [(None, metric) for metric in metrics]
    _check_metrics([metric for _, metric in named])
    evaluators = [metric.to_langsmith_evaluator(name, k) for name, metric in named]
    if isinstance(metrics, Set):
        evaluators.sort(key=lambda evaluator: evaluator.name)
    refuse_repeated(evaluator.name for evaluator in evaluators)
    return evaluators


def _check_metrics(metrics: Collection[object]) -> None:
    levels: dict[str, str] = {}
    for metric in metrics:
        if isinstance(metric, type):
            raise ConfigurationError(f"{metric.__name__} is a class, not a metric: write {metric.__name__}()")
        if not isinstance(metric, LangSmithMetric):
            raise ConfigurationError(f"{preview(repr(metric))} is not a metric: derive its class from Metrics")
        levels.setdefault(metric.level, type(metric).__name__)
    if len(levels) > 1:
        both = " and ".join(f"{name} is {level}" for level, name in sorted(levels.items()))
        raise ConfigurationError(f"{both}: evaluate the two levels apart, each against its own ground truth")


class TokenLevelMetrics(LangSmithMetric[CharacterSpan]):
    """A metric on character spans: write ``calculate``, and an extraction where the dataset or the target differs."""

    level = "token-level"
    truth_keys = RELEVANT_SPANS

    @abstractmethod
    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """The score of one query: what was retrieved, best first and cut at k, against what is relevant."""

    def extract_ground_truth_spans(self, example: "Example | None") -> list[CharacterSpan]:
        """The relevant spans: the output ``relevant_spans`` or ``relevantSpans`` of the example.

        [] without an example or without either. Raises ``GroundTruthError`` when they are not a list of spans.
        """
        return relevant_spans(example)

    def extract_retrieved_spans(self, run: "Run") -> list[CharacterSpan]:
        """The retrieved spans, best first: outputs that are a list of spans, or that hold one.

        As ``retrieved_spans``, ``retrievedSpans``, ``spans``, ``output`` or ``outputs``. [] without outputs.
        Raises ``ConfigurationError`` when the outputs hold no list of spans.
        """
        return retrieved_spans(run)

    def _retrieved(self, run: "Run") -> list[CharacterSpan]:
        return self.extract_retrieved_spans(run)

    def _ground_truth(self, example: "Example | None") -> list[CharacterSpan]:
        return self.extract_ground_truth_spans(example)


class SpanLevelMetrics(TokenLevelMetrics):
    """A built-in metric; an example without ground truth is not scored."""

    needs_ground_truth = True
    metric: ClassVar[SpanMetric]

    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """The metric of one query, counted in characters; a character counts once."""
        return self.metric.calculate(retrieved_spans, ground_truth_spans)


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
    metric: ClassVar[ChunkMetric]

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """The metric of one query; a repeated id counts once."""
        return self.metric.calculate(
            [ChunkId(chunk_id) for chunk_id in retrieved_chunk_ids],
            [ChunkId(chunk_id) for chunk_id in ground_truth_chunk_ids],
        )


class ChunkLevelRecall(ChunkLevelMetrics):
    """|retrieved ∩ relevant| / |relevant|; ``calculate`` gives 0 on empty truth."""

    metric = ChunkRecall()


class ChunkLevelPrecision(ChunkLevelMetrics):
    """|retrieved ∩ relevant| / |retrieved|; 0 on empty retrieval."""

    metric = ChunkPrecision()


class ChunkLevelF1(ChunkLevelMetrics):
    """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|); 0 on empty truth or retrieval."""

    metric = ChunkF1()
