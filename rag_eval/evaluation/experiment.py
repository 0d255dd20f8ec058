"""One experiment: a corpus, the truth about it, a retriever, and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast, overload

import pyarrow as pa

from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.evaluation.chunker_match import HasChunks, check_chunk_ids, check_chunker
from rag_eval.evaluation.hit_tables import chunk_hits_table, span_hits_table
from rag_eval.evaluation.scoring import Case, check_metrics, score_cases
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.metrics.base import ChunkLevelMetric, TokenLevelMetric, check_cut
from rag_eval.metrics.chunk_metrics import ChunkF1, ChunkPrecision, ChunkRecall
from rag_eval.metrics.span_metrics import SpanIoU, SpanPrecision, SpanRecall
from rag_eval.metrics.table import average_scores, score_chunk_level, score_name, score_token_level
from rag_eval.retrieval.base import Retriever
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


@overload
def run_experiment(
    *,
    evaluation_type: Literal["token-level"],
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk],
    metrics: Sequence[TokenLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> EvaluationResult: ...


@overload
def run_experiment(
    *,
    evaluation_type: Literal["chunk-level"],
    corpus: Corpus,
    ground_truth: Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[Chunk],
    metrics: Sequence[ChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> EvaluationResult: ...


def run_experiment(
    *,
    evaluation_type: EvaluationType,
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk] | Retriever[Chunk],
    metrics: Sequence[TokenLevelMetric] | Sequence[ChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> EvaluationResult:
    """Index the corpus, retrieve for every query, score.

    ``result.metrics`` has the averages over the answerable queries: ``span_recall`` for one k, ``span_recall@5`` for
    each of several. ``result.raw_results`` is an ``ExperimentTables``. Metrics, unless given: recall, precision and
    IoU of spans, or recall, precision and F1 of chunks.
    Raises ``ConfigurationError`` on a k, a metric or a retriever that does not fit the evaluation type,
    ``GroundTruthError`` on truth that does not fit it, the corpus or the chunker, and what the parts raise.
    """
    ks = _checked_ks(k)
    if not ground_truth:
        raise GroundTruthError("there is no query to evaluate: give ground truth")
    if evaluation_type == "token-level":
        tables = _run_token_level(
            corpus,
            _of_type(ground_truth, TokenLevelGroundTruth, evaluation_type),
            cast("Retriever[PositionAwareChunk]", retriever),
            cast("Sequence[TokenLevelMetric]", metrics) if metrics is not None else DEFAULT_TOKEN_LEVEL_METRICS,
            ks,
        )
    elif evaluation_type == "chunk-level":
        tables = _run_chunk_level(
            corpus,
            _of_type(ground_truth, ChunkLevelGroundTruth, evaluation_type),
            cast("Retriever[Chunk]", retriever),
            cast("Sequence[ChunkLevelMetric]", metrics) if metrics is not None else DEFAULT_CHUNK_LEVEL_METRICS,
            ks,
        )
    else:
        raise ConfigurationError(f"there is no evaluation type {evaluation_type!r}: use 'token-level' or 'chunk-level'")
    averages = average_scores(tables.scores).to_pylist()
    one_k = isinstance(k, int)
    named = {row["metric"] if one_k and row["k"] == k else score_name(row["metric"], row["k"]): row for row in averages}
    return EvaluationResult({name: row["mean"] for name, row in named.items()}, raw_results=tables)


def _run_token_level(
    corpus: Corpus,
    truth: Sequence[TokenLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk],
    metrics: Sequence[TokenLevelMetric],
    ks: Sequence[int],
) -> ExperimentTables:
    check_metrics("token-level", metrics)
    check_against_corpus(truth, corpus)
    queries = [item.query for item in truth]
    retriever.index(corpus)
    found = retriever.retrieve(queries, max(ks))
    hits = span_hits_table(queries, found, corpus)
    truth_tables = token_truth_to_tables(truth)
    cases: list[Case[CharacterSpan]] = [
        Case(item.query.id, [hit.chunk.to_span() for hit in found_hits], item.relevant_spans)
        for item, found_hits in zip(truth, found, strict=True)
        if not item.unanswerable
    ]
    scores = score_cases(
        "token-level", metrics, ks, cases, lambda names: score_token_level(hits, truth_tables, names, ks)
    )
    return ExperimentTables(hits, scores, _unanswerable(truth))


def _run_chunk_level(
    corpus: Corpus,
    truth: Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[Chunk],
    metrics: Sequence[ChunkLevelMetric],
    ks: Sequence[int],
) -> ExperimentTables:
    check_metrics("chunk-level", metrics)
    queries = [item.query for item in truth]
    if isinstance(retriever, HasChunks):
        check_chunker(truth, retriever.chunker_name)
    _check_truth_is_given(truth)
    retriever.index(corpus)
    if isinstance(retriever, HasChunks):
        check_chunk_ids(truth, retriever.indexed_chunks())
    found = retriever.retrieve(queries, max(ks))
    hits = chunk_hits_table(queries, found)
    truth_tables = chunk_truth_to_tables(truth)
    cases: list[Case[ChunkId]] = [
        Case(item.query.id, [hit.chunk.id for hit in found_hits], item.relevant_chunk_ids)
        for item, found_hits in zip(truth, found, strict=True)
        if not item.unanswerable
    ]
    scores = score_cases(
        "chunk-level", metrics, ks, cases, lambda names: score_chunk_level(hits, truth_tables, names, ks)
    )
    return ExperimentTables(hits, scores, _unanswerable(truth))


def _checked_ks(k: int | Sequence[int]) -> list[int]:
    ks = [k] if isinstance(k, int) else list(k)
    if not ks or len(set(ks)) != len(ks):
        raise ConfigurationError(f"k = {k!r} must be one whole number, or several different ones")
    for value in ks:
        check_cut(value, "the run")
    return ks


def _of_type(truth: Sequence[object], kind: type[T], evaluation_type: EvaluationType) -> Sequence[T]:
    for item in truth:
        if not isinstance(item, kind):
            raise GroundTruthError(
                f"this is a {evaluation_type} evaluation and needs {kind.__name__}, it was given a "
                f"{type(item).__name__}: use the ground truth, or the evaluation, of the other type"
            )
    return cast("Sequence[T]", truth)


def _check_truth_is_given(truth: Sequence[ChunkLevelGroundTruth]) -> None:
    for item in truth:
        if not item.relevant_chunk_ids and not item.unanswerable:
            raise GroundTruthError(
                f"{item.query.id} has no relevant chunk ids: add them, or declare the query unanswerable"
            )


def _unanswerable(truth: Sequence[TokenLevelGroundTruth | ChunkLevelGroundTruth]) -> tuple[QueryId, ...]:
    return tuple(item.query.id for item in truth if item.unanswerable)
