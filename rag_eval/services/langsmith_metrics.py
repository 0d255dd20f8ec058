"""Metrics for LangSmith's ``evaluate``: the built-in ones on chunk ids, and the class to derive one's own from."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.chunk_metrics import ChunkF1, ChunkPrecision, ChunkRecall
from rag_eval.metrics.metric import check_cut, refuse_repeated, split_name
from rag_eval.services.langsmith_datasets import (
    RELEVANT_CHUNK_IDS,
    ChunkGroups,
    as_chunk_id,
    is_unanswerable,
    read_items,
    relevant_items,
)
from rag_eval.types.ground_truth import ChunkLevelRunOutput
from rag_eval.types.ids import mixed_ids

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run

    from rag_eval.services.langsmith_evaluators import Feedback, LangSmithEvaluator

ERROR_CHARACTERS = 300
# LangSmith keeps what a target returns as it is when it is a dict, and under "output" otherwise.
RETRIEVED_CHUNK_IDS = ("retrieved_chunk_ids", "retrievedChunkIds", "chunk_ids", "retrieved_ids", "output", "outputs")


class Metrics(ABC):
    """A metric on chunk ids: write ``calculate``, and an extraction where the dataset or the target has its own shape.

    Within ``evaluate`` an extraction is shown the same items as a list and under every spelling of their key. One that
    finds none of them all the same is an error: it would score 0 in silence. ``needs_ground_truth`` says that an
    example without ground truth is recorded without a score; otherwise ``calculate`` is called with an empty list.
    """

    needs_ground_truth: ClassVar[bool] = False
    metric: ClassVar[Any] = None
    """The built-in metric that it is, if it is one."""

    @abstractmethod
    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """The score of one query: what was retrieved, best first and cut at k, against what is relevant."""

    def extract_ground_truth_chunks_ids(self, example: "Example | None") -> list[str]:
        """The relevant ids: the output ``relevant_chunk_ids``, ``relevantChunkIds`` or ``chunk_ids`` of the example.

        [] without an example or without any of these. Raises ``GroundTruthError`` when they are not a list of ids.
        """
        return relevant_items(example, RELEVANT_CHUNK_IDS, as_chunk_id)

    def extract_retrieved_chunks_ids(self, run: "Run") -> list[str]:
        """The retrieved ids, best first: outputs that are a list of ids, or that hold one.

        As ``retrieved_chunk_ids``, ``retrievedChunkIds``, ``chunk_ids``, ``retrieved_ids``, ``output`` or ``outputs``.
        [] without outputs. Raises ``ConfigurationError`` when the outputs hold no list of ids.
        """
        where, found = _list_in(run.outputs)
        return read_items(found, where, as_chunk_id, ConfigurationError) if run.outputs else []

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
        truth = self._truth_of(example)
        if not truth and is_unanswerable(example):
            return {"key": name, "score": None, "comment": "not scored, the query is declared unanswerable"}
        if not truth and self.needs_ground_truth:
            return _not_scored(
                name,
                f"not scored, the example has no chunk-level ground truth ({', '.join(RELEVANT_CHUNK_IDS)}): "
                "add it, or declare the example unanswerable",
            )
        retrieved = self._retrieved_by(run)[:k]
        if fault := mixed_ids(map(str, retrieved), map(str, truth)):
            raise ConfigurationError(fault)
        alternatives = ChunkGroups.of(example).alternatives
        groups = [(item, *alternatives.get(item, ())) for item in truth]
        if alternatives and self.metric is not None:  # which knows groups itself
            value = float(self.metric.calculate(retrieved, groups))
        else:  # of each group a member that was retrieved, else the first
            best = [next((one for one in group if one in retrieved), group[0]) for group in groups]
            value = self.calculate(retrieved, best)
        if not isinstance(value, Real) or not math.isfinite(value):
            raise ConfigurationError(
                f"{type(self).__name__}.calculate gave {preview(repr(value))} for {name}: return a finite number"
            )
        return {"key": name, "score": float(value)}

    def _truth_of(self, example: "Example | None") -> list[str]:
        """What the extraction finds in the example, which is shown to it under every spelling of its key."""
        outputs = None if example is None else example.outputs
        found = next((outputs[key] for key in RELEVANT_CHUNK_IDS if key in outputs), None) if outputs else None
        if example is None or not outputs or not found or not isinstance(found, list):
            return self.extract_ground_truth_chunks_ids(example)
        spelled = {**dict.fromkeys(RELEVANT_CHUNK_IDS, found), **outputs}
        truth = self.extract_ground_truth_chunks_ids(example.model_copy(update={"outputs": spelled}))
        if not truth and outputs.keys() <= {*RELEVANT_CHUNK_IDS, "metadata"}:
            raise self._overlooked("example", outputs)
        return truth

    def _retrieved_by(self, run: "Run") -> list[str]:
        """What the extraction finds in the run, which is shown to it as a list and under every spelling of its key.

        An extraction may be written for a list, for what LangSmith records of one, or for another spelling: what it
        looks past would count as nothing retrieved.
        """
        outputs: object = run.outputs
        try:
            found = _list_in(outputs)[1]
        except ConfigurationError:  # of a shape that only the extraction knows
            found = None
        if not found or not isinstance(found, list | tuple):
            return self.extract_retrieved_chunks_ids(run)
        with suppress(AttributeError, KeyError, TypeError):
            if retrieved := self.extract_retrieved_chunks_ids(run.model_copy(update={"outputs": found})):
                return retrieved
        recorded = outputs if isinstance(outputs, Mapping) else {}
        spelled = {**dict.fromkeys(RETRIEVED_CHUNK_IDS, found), **recorded}
        retrieved = self.extract_retrieved_chunks_ids(run.model_copy(update={"outputs": spelled}))
        if not retrieved and recorded.keys() <= set(RETRIEVED_CHUNK_IDS):
            raise self._overlooked("run", recorded)
        return retrieved

    def _overlooked(self, where: str, outputs: Mapping[str, object]) -> ConfigurationError:
        return ConfigurationError(
            f"the extraction of {type(self).__name__} finds nothing in the outputs of the {where}, which hold "
            f"{preview(', '.join(outputs) or 'a list')}: read that, or leave the extraction to the base class"
        )


def _list_in(outputs: object) -> tuple[str, object]:
    """What the outputs of a run hold under the first key of ids, and that key; the outputs themselves as a list."""
    found, where = outputs, "outputs"
    while isinstance(found, Mapping) and found:
        key = next((key for key in RETRIEVED_CHUNK_IDS if key in found), None)
        if key is None:
            raise ConfigurationError(
                f"the {where} of the run have {preview(', '.join(map(str, found)))}, and none of "
                f"{', '.join(RETRIEVED_CHUNK_IDS)}: return a list or one of these, or override the extraction"
            )
        found, where = found[key], key
    return where, found.retrieved_chunk_ids if isinstance(found, ChunkLevelRunOutput) else found


def name_and_cut(name: str, k: int | None) -> tuple[str, int | None]:
    """The name with ``@k`` at its end, and its cut; raises ``ConfigurationError`` on a bad k, or one that differs."""
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


def get_langsmith_evaluators(
    metrics: Mapping[str, Metrics | type | str] | Collection[Metrics | type | str],
    k: int | None = None,
) -> "list[LangSmithEvaluator]":
    """The evaluators of metrics given by name, or as a list or set and named by their classes.

    A metric is an object, its class, or the name of a built-in one such as ``chunk_recall``.

    They come in the order of the metrics, those of a set by name. Raises ``ConfigurationError`` when two end up with
    one name, and when something is not a metric.
    """
    if not isinstance(metrics, Collection) or isinstance(metrics, str):
        raise ConfigurationError(f"metrics is {preview(repr(metrics))}: use a mapping by name, a list or a set")
    named: list[tuple[str | None, Any]]
    named = list(metrics.items()) if isinstance(metrics, Mapping) else [(None, metric) for metric in metrics]
    named = [_given(name, metric) for name, metric in named]
    evaluators = [metric.to_langsmith_evaluator(name, k) for name, metric in named]
    if isinstance(metrics, Set):
        evaluators.sort(key=lambda evaluator: evaluator.name)
    refuse_repeated(evaluator.name for evaluator in evaluators)
    return evaluators


def _given(name: str | None, given: Any) -> tuple[str | None, Any]:
    """A metric that may be its class or the name of a built-in one, and the name it goes by."""
    if isinstance(given, str):
        if given not in BUILT_IN:
            raise ConfigurationError(f"there is no metric {preview(given)} for LangSmith: use {', '.join(BUILT_IN)}")
        return name or given, BUILT_IN[given]()
    made = given() if isinstance(given, type) and issubclass(given, Metrics) else given
    if not isinstance(made, Metrics):
        shown = made.__name__ if isinstance(made, type) else preview(repr(made))
        raise ConfigurationError(f"{shown} is no metric for LangSmith: derive its class from Metrics")
    return name, made


class ChunkLevelMetrics(Metrics):
    """A built-in metric; an example without ground truth is not scored."""

    needs_ground_truth = True

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        """The metric of one query; a repeated id counts once."""
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


BUILT_IN: dict[str, type[ChunkLevelMetrics]] = {
    "chunk_recall": ChunkLevelRecall,
    "chunk_precision": ChunkLevelPrecision,
    "chunk_f1": ChunkLevelF1,
}
"""The built-in metrics by name."""
