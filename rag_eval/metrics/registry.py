"""The built-in metrics by name."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from rag_eval.errors import ConfigurationError
from rag_eval.formatting import choices, suggestion
from rag_eval.metrics.chroma import (
    ChromaIoU,
    ChromaMetric,
    ChromaPrecision,
    ChromaRecall,
    ChunkedCorpus,
    PrecisionOmega,
)
from rag_eval.metrics.chunk_metrics import (
    ChunkF1,
    ChunkHitRate,
    ChunkMAP,
    ChunkMetric,
    ChunkMRR,
    ChunkNDCG,
    ChunkPrecision,
    ChunkRecall,
)
from rag_eval.metrics.metric import ChunkLevelMetric, MetricName, TokenLevelMetric
from rag_eval.metrics.span_metrics import (
    CHARACTERS,
    DEFAULT_ENCODING,
    SpanHitRate,
    SpanIoU,
    SpanMAP,
    SpanMetric,
    SpanMRR,
    SpanNDCG,
    SpanPrecision,
    SpanRecall,
    TokensRetrieved,
    TokenUnit,
)
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document

CHUNK_LEVEL_METRICS: dict[str, type[ChunkMetric]] = {
    "chunk_recall": ChunkRecall,
    "chunk_precision": ChunkPrecision,
    "chunk_f1": ChunkF1,
    "chunk_hit_rate": ChunkHitRate,
    "chunk_mrr": ChunkMRR,
    "chunk_map": ChunkMAP,
    "chunk_ndcg": ChunkNDCG,
}

T = TypeVar("T")

TokenLevelClass = type[SpanMetric] | type[ChromaMetric] | type[PrecisionOmega] | type[TokensRetrieved]

TOKEN_LEVEL_METRICS: dict[str, TokenLevelClass] = {
    "span_recall": SpanRecall,
    "span_precision": SpanPrecision,
    "span_iou": SpanIoU,
    "span_hit_rate": SpanHitRate,
    "span_mrr": SpanMRR,
    "span_map": SpanMAP,
    "span_ndcg": SpanNDCG,
    "chroma_recall": ChromaRecall,
    "chroma_precision": ChromaPrecision,
    "chroma_iou": ChromaIoU,
    "precision_omega": PrecisionOmega,
    "tokens_retrieved": TokensRetrieved,
}


def parse_metric_name(text: str, known: Mapping[str, object]) -> MetricName:
    """The name, checked against the registry ``known``.

    Raises ``ConfigurationError`` when it cannot be read, when the metric is not in the registry, and when the metric
    has no such unit or cut: a tokenizer is for the span metrics and ``tokens_retrieved``, ``@min`` for Chroma's.
    """
    name = MetricName.parse(text)
    metric = known.get(name.base)
    if not isinstance(metric, type):
        hint = suggestion(name.base, known)
        raise ConfigurationError(f"there is no metric {name.base!r} here{hint}: {choices(known, name.base)}")
    if name.unit is not None and not issubclass(metric, SpanMetric | TokensRetrieved):
        raise ConfigurationError(f"{name.base} is not counted in tokens: leave out ({name.unit})")
    if name.k == "min" and not issubclass(metric, ChromaMetric):
        raise ConfigurationError(f"{name.base} has no @min: use a number, or one of Chroma's metrics")
    if name.k is not None and issubclass(metric, PrecisionOmega):
        raise ConfigurationError(f"{name.base} does not depend on what was retrieved: leave out @{name.k}")
    return name


def chunk_level_metric(text: str) -> ChunkLevelMetric:
    """The built-in chunk-level metric of that name; raises ``ConfigurationError`` when there is none."""
    name = parse_metric_name(text, CHUNK_LEVEL_METRICS)
    return CHUNK_LEVEL_METRICS[name.base](_number(name))


def token_level_metric(
    text: str,
    documents: Iterable[Document] | None = None,
    chunks: Iterable[PositionAwareChunk] | None = None,
) -> TokenLevelMetric:
    """The built-in token-level metric of that name.

    ``documents`` are needed to count spans in tokens, ``chunks`` (all of the corpus) for ``precision_omega`` and for
    ``@min``. Raises ``ConfigurationError`` when there is no such metric or when what it needs is not given.
    """
    name = parse_metric_name(text, TOKEN_LEVEL_METRICS)
    metric = TOKEN_LEVEL_METRICS[name.base]
    if issubclass(metric, SpanMetric):
        if name.unit is None:
            return metric(_number(name), CHARACTERS)
        return metric(_number(name), TokenUnit(name.unit, needed(documents, text, "documents")))
    if issubclass(metric, TokensRetrieved):
        return metric(_number(name), name.unit or DEFAULT_ENCODING)
    if issubclass(metric, PrecisionOmega):
        return metric(ChunkedCorpus(needed(chunks, text, "chunks")))
    return metric(name.k, ChunkedCorpus(needed(chunks, text, "chunks")) if name.k == "min" else None)


def needed(given: T | None, metric: str, what: str) -> T:
    """What was given; raises ``ConfigurationError`` when it was not."""
    if given is None:
        raise ConfigurationError(f"the metric {metric} needs the {what} of the corpus: give {what}=…")
    return given


def _number(name: MetricName) -> int | None:
    return None if name.k == "min" else name.k
