"""Metrics that run in LangSmith's ``evaluate``, ours and your own; importing this does not import langsmith."""

from rag_eval.evaluation.metrics.base import Metrics, get_langsmith_evaluators
from rag_eval.evaluation.metrics.chunk_level import ChunkLevelF1, ChunkLevelPrecision, ChunkLevelRecall
from rag_eval.evaluation.metrics.feedback import Feedback
from rag_eval.evaluation.metrics.token_level import (
    TokenLevelIoU,
    TokenLevelMetrics,
    TokenLevelPrecision,
    TokenLevelRecall,
)

__all__ = [
    "ChunkLevelF1",
    "ChunkLevelPrecision",
    "ChunkLevelRecall",
    "Feedback",
    "Metrics",
    "TokenLevelIoU",
    "TokenLevelMetrics",
    "TokenLevelPrecision",
    "TokenLevelRecall",
    "get_langsmith_evaluators",
]
