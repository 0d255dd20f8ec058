"""Scores for what was retrieved, from spans or from chunk ids."""

from rag_eval.metrics.chroma import ChromaIoU, ChromaPrecision, ChromaRecall, ChunkedCorpus, PrecisionOmega
from rag_eval.metrics.chunk_metrics import (
    ChunkF1,
    ChunkHitRate,
    ChunkMAP,
    ChunkMRR,
    ChunkNDCG,
    ChunkPrecision,
    ChunkRecall,
)
from rag_eval.metrics.evaluate import (
    ChunkLevelRecord,
    ChunkLevelResult,
    TokenLevelRecord,
    TokenLevelResult,
    evaluate_chunk_level,
    evaluate_token_level,
)
from rag_eval.metrics.intervals import calculate_overlap, merge_overlapping_spans
from rag_eval.metrics.metric import ChunkLevelMetric, MetricName, TokenLevelMetric
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS, chunk_level_metric, token_level_metric
from rag_eval.metrics.score_tables import AVERAGES, average_scores, score_chunk_level, score_name, score_token_level
from rag_eval.metrics.span_metrics import (
    CHARACTERS,
    SpanHitRate,
    SpanIoU,
    SpanMAP,
    SpanMRR,
    SpanNDCG,
    SpanPrecision,
    SpanRecall,
    TokensRetrieved,
    TokenUnit,
)

__all__ = [
    "AVERAGES",
    "CHARACTERS",
    "CHUNK_LEVEL_METRICS",
    "TOKEN_LEVEL_METRICS",
    "ChromaIoU",
    "ChromaPrecision",
    "ChromaRecall",
    "ChunkF1",
    "ChunkHitRate",
    "ChunkLevelMetric",
    "ChunkLevelRecord",
    "ChunkLevelResult",
    "ChunkMAP",
    "ChunkMRR",
    "ChunkNDCG",
    "ChunkPrecision",
    "ChunkRecall",
    "ChunkedCorpus",
    "MetricName",
    "PrecisionOmega",
    "SpanHitRate",
    "SpanIoU",
    "SpanMAP",
    "SpanMRR",
    "SpanNDCG",
    "SpanPrecision",
    "SpanRecall",
    "TokenLevelMetric",
    "TokenLevelRecord",
    "TokenLevelResult",
    "TokenUnit",
    "TokensRetrieved",
    "average_scores",
    "calculate_overlap",
    "chunk_level_metric",
    "evaluate_chunk_level",
    "evaluate_token_level",
    "merge_overlapping_spans",
    "score_chunk_level",
    "score_name",
    "score_token_level",
    "token_level_metric",
]
