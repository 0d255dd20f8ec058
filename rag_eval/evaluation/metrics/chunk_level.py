"""The built-in chunk-level metrics, for LangSmith."""

from typing import ClassVar

from rag_eval.evaluation.metrics.base import Metrics
from rag_eval.metrics.chunk_metrics import ChunkF1, ChunkMetric, ChunkPrecision, ChunkRecall
from rag_eval.types.ids import ChunkId


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
