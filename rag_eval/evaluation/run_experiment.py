"""Evaluate a retriever, or parts of one, on a corpus with its ground truth, in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, Protocol, overload, runtime_checkable

import pyarrow as pa

from rag_eval.config.models import Configuration, check_fetch_k, check_level
from rag_eval.config.objective import DEFAULT_METRICS
from rag_eval.errors import ConfigurationError, GroundTruthError, preview
from rag_eval.evaluation.in_memory import EvaluatedTables, InMemoryInputs, evaluate
from rag_eval.ground_truth.check import check_against_corpus, check_chunk_ids, check_chunker
from rag_eval.ground_truth.copies import credit_copies, read_copies
from rag_eval.ground_truth.plain_data import truth_from
from rag_eval.metrics.evaluate import listed_metrics, taken_metric
from rag_eval.metrics.metric import (
    MAX_MIN_K,
    MIN,
    AnyChunkLevelMetric,
    AnyTokenLevelMetric,
    Asked,
    at_cuts,
    largest_budget,
    refuse_repeated,
    score_name,
    split_name,
)
from rag_eval.metrics.score_tables import average_scores
from rag_eval.parts.objects import is_reference
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.retrieval.retriever import Hit, Retriever, candidates_for, check_part
from rag_eval.tables import ResultTable, documents_to_table, truth_to_tables
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, check_corpus
from rag_eval.types.evidence import (
    TRUTH_KINDS,
    ChunkLevelGroundTruth,
    EvaluationResult,
    Query,
    TokenLevelGroundTruth,
)
from rag_eval.types.ids import EvaluationType, QueryId


@runtime_checkable
class ChunkedRetriever(Protocol):
    """A retriever that knows its chunker and the chunks of the indexed corpus."""

    @property
    def chunker_name(self) -> str:
        """The name of the chunker."""

    def indexed_chunks(self) -> list[Chunk]:
        """Return the chunks."""


def checked_truth(level: EvaluationType, ground_truth: Iterable[object], corpus: Corpus) -> list[Any]:
    """Read ground truth from items, records or a data frame, and check it against the corpus.

    Raises:
        GroundTruthError: There is no ground truth, it has the other evaluation type, an id repeats, a span differs from
            the corpus, or a query has no evidence and is not declared unanswerable.
    """
    kind = TRUTH_KINDS[level]
    truth: list[Any] = []
    texts: dict[str, str] = {}
    for item in truth_from(ground_truth, level, corpus.by_id):
        if not isinstance(item, kind):
            raise GroundTruthError(
                f"this is a {level} evaluation and needs {kind.__name__}, not {type(item).__name__}: "
                "use the ground truth, or the evaluation, of the other type"
            )
        if item.query.id in texts:
            raise GroundTruthError(
                f"two queries have the id {item.query.id!r}, {preview(texts[item.query.id])} and "
                f"{preview(item.query.text)}: merge them into one, or give each its own id"
            )
        texts[item.query.id] = item.query.text
        truth.append(item)
    if not truth:
        raise GroundTruthError("there is no query to evaluate: give ground truth")
    if level == "token-level":
        return check_against_corpus(truth, corpus)
    for item in truth:
        if not item.relevant_chunk_ids and not item.unanswerable:
            raise GroundTruthError(
                f"{item.query.id} has no relevant chunk ids: add them, or declare the query unanswerable"
            )
    return truth


@dataclass(frozen=True)
class CheckedSystem:
    """A retriever that checks chunk-level ground truth against its chunks when it indexes.

    Raises:
        GroundTruthError: The ground truth was made with another chunker or on other documents.
    """

    retriever: Retriever[Any]
    truth: Sequence[ChunkLevelGroundTruth]

    @property
    def name(self) -> str:
        return self.retriever.name

    def index(self, corpus: Corpus) -> None:
        chunked = self.retriever if isinstance(self.retriever, ChunkedRetriever) else None
        if chunked is not None:
            check_chunker(self.truth, chunked.chunker_name)
        self.retriever.index(corpus)
        if chunked is not None:
            check_chunk_ids(self.truth, chunked.indexed_chunks())

    def retrieve(self, queries: Sequence[Query], k: int) -> Sequence[Sequence[Hit[Any]]]:
        return self.retriever.retrieve(queries, k)


def metrics_at_cuts(
    level: EvaluationType, metrics: Sequence[object], ks: Sequence[int], *, several: bool
) -> dict[str, Asked]:
    """Return each metric at each k by its key in the averages; a cut in its name, such as ``@10``, takes precedence.

    Raises:
        ConfigurationError: There are no metrics, one is not a metric of this level, or two have the same name and cut.
    """
    listed = listed_metrics(metrics)
    if not listed:
        raise ConfigurationError("there is no metric to compute: name at least one, or leave metrics out")
    by_key: dict[str, Asked] = {}
    names: list[str] = []
    for value in listed:
        is_name = isinstance(value, str) and not is_reference(value)
        metric = value if is_name else taken_metric(value, level)
        name = metric if is_name else metric.name
        for at_cut in at_cuts(metric, ks, level):
            has_cut = split_name(name)[1] == at_cut.cut
            by_key[name if has_cut or not several else name + at_cut.cut.written()] = at_cut
            names.append(str(at_cut))
    refuse_repeated(names)
    return by_key


@dataclass(frozen=True)
class ExperimentTables:
    """The rows behind the averages: every hit, and a score for each metric, k and answerable query.

    ``passages`` are returned for the hits; None if the hits themselves are returned.
    """

    hits: pa.Table
    scores: pa.Table
    unanswerable: tuple[QueryId, ...]
    passages: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class RetrievalResult(EvaluationResult):
    """The averages by metric name, and the rows they come from."""

    raw_results: ExperimentTables = field(kw_only=True)

    @property
    def scores(self) -> ResultTable:
        """A row for each metric, cut and answerable query, for polars, pandas and notebooks."""
        return ResultTable(self.raw_results.scores)

    @property
    def hits(self) -> ResultTable:
        """A row for each hit of each query, for polars, pandas and notebooks."""
        return ResultTable(self.raw_results.hits)


@overload
def run_experiment(
    *,
    evaluation_type: Literal["token-level"],
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth],
    retriever: Retriever[PositionAwareChunk],
    metrics: Sequence[AnyTokenLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> RetrievalResult: ...


@overload
def run_experiment(
    *,
    evaluation_type: Literal["chunk-level"],
    corpus: Corpus,
    ground_truth: Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[Chunk],
    metrics: Sequence[AnyChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
) -> RetrievalResult: ...


@overload
def run_experiment(
    *,
    evaluation_type: EvaluationType,
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    retriever: Configuration,
    metrics: Sequence[AnyTokenLevelMetric] | Sequence[AnyChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
    copies: object = "off",
) -> RetrievalResult: ...


def run_experiment(
    *,
    evaluation_type: EvaluationType,
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    retriever: Retriever[Any] | Configuration,
    metrics: Sequence[AnyTokenLevelMetric] | Sequence[AnyChunkLevelMetric] | None = None,
    k: int | Sequence[int] = 5,
    copies: object = "off",
) -> RetrievalResult:
    """Index the corpus, retrieve for every query, and score.

    There is one retrieval, as deep as the largest k needs. Retrievers that rerank or fuse more candidates than they
    return take that depth from it unless they set ``fetch_k``, so that the first five hits at k = [5, 20] may differ
    from those at k = 5.

    Example:
        result = run_experiment(evaluation_type="token-level", corpus=corpus, ground_truth=truth, retriever=bm25)
        result.metrics["span_recall"]

    Args:
        evaluation_type: "token-level" or "chunk-level".
        corpus: The documents.
        ground_truth: The queries with their evidence.
        retriever: A retriever, or the configuration of one.
        metrics: Metrics or their names. A metric with a cut of its own, such as ``SpanRecall(k=10)``, keeps it at any
            k. Default: recall, precision and IoU of spans, or recall, precision and F1 of chunks.
        k: How many hits are scored. For several, the averages have names such as ``span_recall@5``.
        copies: Which copies of a relevant span count as found, at token level: "off" or "exact".

    Returns:
        The averages over the answerable queries, with all hits and scores.

    Raises:
        ConfigurationError: A k, a metric or the retriever does not fit the evaluation type.
        GroundTruthError: The ground truth does not fit the evaluation type, the corpus or the chunker.
    """
    check_corpus(corpus)
    if not isinstance(retriever, Configuration):
        check_part(retriever, "retriever")
    if evaluation_type not in TRUTH_KINDS:
        raise ConfigurationError(f"there is no evaluation type {evaluation_type!r}: use 'token-level' or 'chunk-level'")
    level = evaluation_type
    ks = _checked_ks(k)
    columns = metrics_at_cuts(
        level, DEFAULT_METRICS[level] if metrics is None else metrics, ks, several=isinstance(k, Iterable)
    )
    truth = _with_copies(checked_truth(level, ground_truth, corpus), corpus, copies, level)
    deepest = max(*ks, *(MAX_MIN_K if column.cut == MIN else column.cut.hits or 0 for column in columns.values()))
    depth = SearchDepth(candidates=deepest)
    if isinstance(retriever, Configuration):
        depth = SearchDepth(candidates=candidates_for(deepest, None), tokens=largest_budget(columns.values()))
        check_level(level, [retriever.returns])
        check_fetch_k(retriever.selection, deepest)
    elif level == "chunk-level":
        retriever = CheckedSystem(retriever, truth)
    documents = documents_to_table(corpus)
    inputs = InMemoryInputs(level, documents, truth_to_tables(truth), list(columns.values()), [], depth)
    return _result(evaluate(retriever, inputs), columns, truth)


def _result(evaluated: EvaluatedTables, columns: Mapping[str, Asked], truth: Sequence[Any]) -> RetrievalResult:
    keys = {str(column): key for key, column in columns.items()}
    means = {
        keys[score_name(row["metric"], row["cut"], row["size"])]: row["mean"]
        for row in average_scores(evaluated.scores).to_pylist()
    }
    unanswerable = tuple(item.query.id for item in truth if item.unanswerable)
    hits = list(evaluated.hits.values())[-1]
    tables = ExperimentTables(hits, evaluated.scores, unanswerable, evaluated.passages)
    return RetrievalResult(means, raw_results=tables)


def _with_copies(truth: list[Any], corpus: Corpus, copies: object, level: EvaluationType) -> list[Any]:
    try:
        credited = read_copies(copies)
    except ValueError as error:
        raise ConfigurationError(f"copies: {error}") from None
    if credited == "off":
        return truth
    if level == "chunk-level":
        raise ConfigurationError("copies applies to token-level evaluation only: leave it out")
    return credit_copies(truth, corpus, credited)


def _checked_ks(k: object) -> list[int]:
    values = list(k) if isinstance(k, Iterable) and not isinstance(k, str) else [k]
    ks = [
        int(value) for value in values if isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0
    ]
    if not ks or len(set(ks)) < len(values):
        raise ConfigurationError(f"k = {k!r} must be a whole number of 1 or more, or several different ones")
    return ks
