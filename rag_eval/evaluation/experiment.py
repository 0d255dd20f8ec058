"""One experiment: a corpus, the truth about it, a retriever, and metrics."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal, TypeVar, cast, overload

import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.evaluation.hit_tables import chunk_hits_table, span_hits_table
from rag_eval.evaluation.preparation import checked_truth, index_chunk_level, index_token_level
from rag_eval.evaluation.scoring import Case, MetricAtCut, metrics_at_cuts, score_cases
from rag_eval.metrics.base import ChunkLevelMetric, TokenLevelMetric
from rag_eval.metrics.chunk_metrics import ChunkF1, ChunkPrecision, ChunkRecall
from rag_eval.metrics.span_metrics import SpanIoU, SpanPrecision, SpanRecall
from rag_eval.metrics.table import average_scores, score_chunk_level, score_token_level
from rag_eval.retrieval.base import Hit, Retriever
from rag_eval.retrieval.checks import checked_hits
from rag_eval.tables import chunk_truth_to_tables, token_truth_to_tables
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth
from rag_eval.types.ids import ChunkId, EvaluationType, QueryId
from rag_eval.types.result import EvaluationResult
from rag_eval.types.span import CharacterSpan

T = TypeVar("T")

DEFAULT_TOKEN_LEVEL_METRICS: tuple[TokenLevelMetric, ...] = (SpanRecall(), SpanPrecision(), SpanIoU())
DEFAULT_CHUNK_LEVEL_METRICS: tuple[ChunkLevelMetric, ...] = (ChunkRecall(), ChunkPrecision(), ChunkF1())


@dataclass(frozen=True)
class ExperimentTables:
    """The rows behind the averages: every hit, and a score for each metric, k and answerable query.

    The queries declared unanswerable are named apart; they have hits and no scores.
    """

    hits: pa.Table
    scores: pa.Table
    unanswerable: tuple[QueryId, ...]


@dataclass(frozen=True, slots=True)
class ExperimentResult(EvaluationResult):
    """The averages of an experiment by metric name, and the rows they come from."""

    raw_results: ExperimentTables = field(kw_only=True)


@overload
def run_experiment(
    *,
    evaluation_type: Literal["token-level"],
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk],
    metrics: Sequence[TokenLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> ExperimentResult: ...


@overload
def run_experiment(
    *,
    evaluation_type: Literal["chunk-level"],
    corpus: Corpus,
    ground_truth: Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[Chunk],
    metrics: Sequence[ChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> ExperimentResult: ...


def run_experiment(
    *,
    evaluation_type: EvaluationType,
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk] | Retriever[Chunk],
    metrics: Sequence[TokenLevelMetric] | Sequence[ChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> ExperimentResult:
    """Index the corpus, retrieve for every query, score.

    ``result.metrics`` has the averages over the answerable queries: ``span_recall`` for one k, ``span_recall@5`` for
    each of several. A metric with a cut of its own (``SpanRecall(k=10)``, or any whose name ends in ``@10``) is scored
    on so many hits, whatever k is, and keeps its name. Metrics, unless given: recall, precision and IoU of spans, or
    recall, precision and F1 of chunks.

    There is one retrieval, as deep as the largest k needs. Retrievers that look at more candidates than they keep
    (hybrids, and whatever has a reranker) take their depth from it unless they have a ``fetch_k``, so that the first
    five hits at k = [5, 20] need not be those at k = 5: set ``fetch_k`` where they are to be compared.

    Raises ``ConfigurationError`` on a k, a metric or a retriever that does not fit the evaluation type,
    ``GroundTruthError`` on truth that does not fit it, the corpus or the chunker, and what the parts raise.
    """
    several = isinstance(k, Iterable)
    ks = _checked_ks(k)
    if evaluation_type == "token-level":
        spans_at = metrics_at_cuts(
            evaluation_type,
            cast("Sequence[TokenLevelMetric]", metrics) if metrics is not None else DEFAULT_TOKEN_LEVEL_METRICS,
            ks,
            several=several,
        )
        truth = checked_truth(ground_truth, TokenLevelGroundTruth)
        tables = _run_token_level(corpus, truth, cast("Retriever[PositionAwareChunk]", retriever), spans_at, ks)
        keys = _keys(spans_at)
    elif evaluation_type == "chunk-level":
        ids_at = metrics_at_cuts(
            evaluation_type,
            cast("Sequence[ChunkLevelMetric]", metrics) if metrics is not None else DEFAULT_CHUNK_LEVEL_METRICS,
            ks,
            several=several,
        )
        chunk_truth = checked_truth(ground_truth, ChunkLevelGroundTruth)
        tables = _run_chunk_level(corpus, chunk_truth, cast("Retriever[Chunk]", retriever), ids_at, ks)
        keys = _keys(ids_at)
    else:
        raise ConfigurationError(f"there is no evaluation type {evaluation_type!r}: use 'token-level' or 'chunk-level'")
    averages = average_scores(tables.scores).to_pylist()
    return ExperimentResult({keys[row["metric"], row["k"]]: row["mean"] for row in averages}, raw_results=tables)


def _run_token_level(
    corpus: Corpus,
    truth: list[TokenLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk],
    metrics: Sequence[MetricAtCut[CharacterSpan]],
    ks: Sequence[int],
) -> ExperimentTables:
    index_token_level(corpus, truth, retriever)
    queries = [item.query for item in truth]
    depth = max(*ks, *(metric.depth(item.relevant_spans for item in truth) for metric in metrics))
    found: list[list[Hit[PositionAwareChunk]]] = checked_hits(
        retriever.retrieve(queries, depth), len(queries), retriever.name, PositionAwareChunk
    )
    hits = span_hits_table(queries, found, corpus)
    tables = token_truth_to_tables(truth)
    cases: list[Case[CharacterSpan]] = [
        Case(item.query.id, [hit.chunk.to_span() for hit in found_hits], item.relevant_spans)
        for item, found_hits in zip(truth, found, strict=True)
        if not item.unanswerable
    ]
    scores = score_cases(
        "token-level", metrics, cases, lambda names, cuts: score_token_level(hits, tables, names, cuts)
    )
    return ExperimentTables(hits, scores, _unanswerable(truth))


def _run_chunk_level(
    corpus: Corpus,
    truth: list[ChunkLevelGroundTruth],
    retriever: Retriever[Chunk],
    metrics: Sequence[MetricAtCut[ChunkId]],
    ks: Sequence[int],
) -> ExperimentTables:
    index_chunk_level(corpus, truth, retriever)
    queries = [item.query for item in truth]
    depth = max(*ks, *(metric.depth(item.relevant_chunk_ids for item in truth) for metric in metrics))
    found: list[list[Hit[Chunk]]] = checked_hits(
        retriever.retrieve(queries, depth), len(queries), retriever.name, Chunk
    )
    hits = chunk_hits_table(queries, found)
    tables = chunk_truth_to_tables(truth)
    cases: list[Case[ChunkId]] = [
        Case(item.query.id, [hit.chunk.id for hit in found_hits], item.relevant_chunk_ids)
        for item, found_hits in zip(truth, found, strict=True)
        if not item.unanswerable
    ]
    scores = score_cases(
        "chunk-level", metrics, cases, lambda names, cuts: score_chunk_level(hits, tables, names, cuts)
    )
    return ExperimentTables(hits, scores, _unanswerable(truth))


def _checked_ks(k: object) -> list[int]:
    given = list(k) if isinstance(k, Iterable) and not isinstance(k, str) else [k]
    ks = [int(one) for one in given if isinstance(one, Integral) and not isinstance(one, bool) and int(one) > 0]
    if not ks or len(set(ks)) < len(given):
        raise ConfigurationError(f"k = {k!r} must be a whole number of 1 or more, or several different ones")
    return ks


def _keys(metrics: Sequence[MetricAtCut[T]]) -> dict[tuple[str, int], str]:
    return {(metric.label, metric.k): metric.key for metric in metrics}


def _unanswerable(truth: Sequence[TokenLevelGroundTruth | ChunkLevelGroundTruth]) -> tuple[QueryId, ...]:
    return tuple(item.query.id for item in truth if item.unanswerable)
