"""Base classes of metrics for LangSmith's ``evaluate``: ``Metrics`` on chunk ids, ``TokenLevelMetrics`` on spans."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.metric import check_cut, split_name
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

    from rag_eval.evaluation.metrics.langsmith_evaluators import Feedback, LangSmithEvaluator

Item = TypeVar("Item")

ERROR_CHARACTERS = 300
# LangSmith stores a target's result that is not a dict under "output".
RETRIEVED_CHUNK_IDS = ("retrieved_chunk_ids", "retrievedChunkIds", "chunk_ids", "retrieved_ids", "output", "outputs")
RETRIEVED_SPANS = ("retrieved_spans", "retrievedSpans", "spans", "output", "outputs")


class LangSmithMetric(ABC, Generic[Item]):
    """The base of ``Metrics`` and ``TokenLevelMetrics``; derive from one of these.

    With ``needs_ground_truth`` an example without ground truth has no score; otherwise ``calculate`` gets an empty
    list. ``metric`` is the metric of rag-eval behind a built-in one.
    """

    level: ClassVar[EvaluationType]
    truth_keys: ClassVar[tuple[str, ...]]
    retrieved_keys: ClassVar[tuple[str, ...]]
    needs_ground_truth: ClassVar[bool] = False
    metric: ClassVar[Any] = None

    @abstractmethod
    def calculate(self, retrieved: list[Item], ground_truth: list[Item], /) -> float:
        """Return the score of a query."""

    @abstractmethod
    def _retrieved(self, run: "Run") -> list[Item]: ...

    @abstractmethod
    def _ground_truth(self, example: "Example | None") -> list[Item]: ...

    @abstractmethod
    def _alternatives(self, example: "Example | None") -> Mapping[Item, Sequence[Item]]:
        """Return the alternatives of each relevant item that has some."""

    @abstractmethod
    def _covered(self, item: Item, retrieved: list[Item]) -> float:
        """Return the share of an item that the retrieved items cover."""

    def to_langsmith_evaluator(self, metric_name: str | None = None, k: int | None = None) -> "LangSmithEvaluator":
        """Return an evaluator for LangSmith's ``evaluate``: a callable of (run, example) that returns the feedback.

        Args:
            metric_name: The name, to which ``@k`` is appended. Default: the name of the class.
            k: How many of the retrieved items count. Default: 5 for a name that ends in ``@5``, otherwise all.

        Raises:
            ConfigurationError: k is not a positive integer, or differs from the one in the name.
        """
        from rag_eval.evaluation.metrics.langsmith_evaluators import LangSmithEvaluator  # imports langsmith

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
        value = self._score(retrieved, truth, self._alternatives(example))
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ConfigurationError(
                f"{type(self).__name__}.calculate returned {preview(repr(value))} for {name}: return a finite number"
            )
        return {"key": name, "score": float(value)}

    def _score(self, retrieved: list[Item], truth: list[Item], alternatives: Mapping[Item, Sequence[Item]]) -> float:
        """Return the score against the best covered member of each group; of equal ones, the first."""
        if not alternatives:
            return self.calculate(retrieved, truth)
        groups = [(item, *alternatives.get(item, ())) for item in truth]
        if self.metric is not None:  # this metric takes groups itself
            return float(self.metric.calculate(retrieved, groups))
        best = [max(group, key=lambda member: self._covered(member, retrieved)) for group in groups]
        return self.calculate(retrieved, best)

    def _truth_of(self, example: "Example | None") -> list[Item]:
        """Return the extracted ground truth; the extraction sees it under every spelling of its key."""
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
        """Return the extracted items; the extraction sees them as a list, then under every spelling of their key.

        A user's extraction may expect a list, LangSmith's record of a list, or another spelling. What it misses would
        count as nothing retrieved.
        """
        outputs: object = run.outputs
        try:
            listed = _list_in(outputs, self.retrieved_keys)[1]
        except ConfigurationError:  # only the user's extraction knows this shape
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
            f"the extraction of {type(self).__name__} finds nothing in the outputs of the {where}, which have "
            f"{preview(', '.join(outputs) or 'a list')}: read these, or leave the extraction to the base class"
        )


def _list_in(outputs: object, keys: Sequence[str]) -> tuple[str, object]:
    """Return the first of the keys found in the outputs of a run, with its value; or the outputs if they are a list."""
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
    """Return the name with ``@k``, and k; raises ``ConfigurationError``."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"a metric has the name {name!r}: use a text such as 'recall'")
    check_cut(k, name)
    cut = split_name(name)[1].hits
    if cut is None:
        return (name, None) if k is None else (f"{name}@{k}", k)
    if k not in (None, cut):
        raise ConfigurationError(f"the metric {name!r} is requested at k = {k}: leave out @{cut}, or use k = {cut}")
    return name, cut


def _not_scored(name: str, comment: str) -> "Feedback":
    return {"key": name, "score": None, "comment": comment, "extra": {"error": True}}


class Metrics(LangSmithMetric[str]):
    """Base of metrics on chunk ids: define ``calculate``, and an extraction if your dataset has another shape.

    An extraction sees the items as a list and under every spelling of their key. If it finds none of them, that is an
    error and not a score of 0.

    Example:
        class Found(Metrics):
            def calculate(self, retrieved_chunk_ids, ground_truth_chunk_ids):
                return float(bool(set(retrieved_chunk_ids) & set(ground_truth_chunk_ids)))
    """

    level = "chunk-level"
    truth_keys = RELEVANT_CHUNK_IDS
    retrieved_keys = RETRIEVED_CHUNK_IDS

    @abstractmethod
    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """Return the score of a query; the retrieved items are best first and cut at k."""

    def extract_ground_truth_chunks_ids(self, example: "Example | None") -> list[str]:
        """Return the example's output ``relevant_chunk_ids``, ``relevantChunkIds`` or ``chunk_ids``, or [].

        Raises:
            GroundTruthError: It is not a list of ids.
        """
        return relevant_items(example, self.truth_keys, as_chunk_id)

    def extract_retrieved_chunks_ids(self, run: "Run") -> list[str]:
        """Return the run's outputs if they are a list of ids, the list under one of ``retrieved_keys``, or [].

        Raises:
            ConfigurationError: The outputs have no list of ids.
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


class TokenLevelMetrics(LangSmithMetric[CharacterSpan]):
    """Base of metrics on character spans: define ``calculate``, and an extraction if your dataset has another shape."""

    level = "token-level"
    truth_keys = RELEVANT_SPANS
    retrieved_keys = RETRIEVED_SPANS

    @abstractmethod
    def calculate(self, retrieved_spans: list[CharacterSpan], ground_truth_spans: list[CharacterSpan]) -> float:
        """Return the score of a query; the retrieved items are best first and cut at k."""

    def extract_ground_truth_spans(self, example: "Example | None") -> list[CharacterSpan]:
        """Return the example's output ``relevant_spans`` or ``relevantSpans``, or [].

        Raises:
            GroundTruthError: It is not a list of spans.
        """
        return relevant_items(example, self.truth_keys, as_span)

    def extract_retrieved_spans(self, run: "Run") -> list[CharacterSpan]:
        """Return the run's outputs if they are a list of spans, the list under one of ``retrieved_keys``, or [].

        Raises:
            ConfigurationError: The outputs have no list of spans.
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
