"""Chunk-level metrics for LangSmith's ``evaluate``: a calculation, and where its two sides are read from.

The evaluator of a metric extracts what was retrieved from a run and what is relevant from its example, cuts the
retrieved at k and gives back ``{"key": "recall@5", "score": 0.5}``. What cannot be scored is recorded without a
score, never as 0: a run that failed, an example that is declared unanswerable and, for the built-in metrics, one
without ground truth. An error in ``calculate`` or in an extraction is raised, and recorded so by ``evaluate``.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Set
from typing import TYPE_CHECKING, TypeVar

from rag_eval.errors import ConfigurationError, preview
from rag_eval.evaluation.metrics.feedback import LangSmithMetric
from rag_eval.metrics.base import refuse_repeated
from rag_eval.publishing.langsmith_records import RELEVANT_CHUNK_IDS, relevant_chunk_ids, retrieved_chunk_ids

if TYPE_CHECKING:
    from langsmith.schemas import Example, Run

    from rag_eval.evaluation.metrics.evaluator import MetricEvaluator

__all__ = ["Metrics", "get_langsmith_evaluators"]

Item = TypeVar("Item")


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
) -> "list[MetricEvaluator]":
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
