"""Scores from tables: every metric, k and query at once, several k from one retrieval.

The missing rule: every answerable query has a row for each metric and k; a query without hits gets the metric's value
for empty retrieval. A query without truth that is not declared unanswerable is an error. Unanswerable queries have
no rows. Values equal those of the metrics' ``calculate``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.base import MetricName, check_cut
from rag_eval.metrics.chroma import PrecisionOmega
from rag_eval.metrics.chunk_sweep import ChunkSweep
from rag_eval.metrics.cost import DEFAULT_ENCODING, TokensRetrieved
from rag_eval.metrics.formulas import Counts, Values
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS, parse_metric_name
from rag_eval.metrics.span_counts import SpanCounts
from rag_eval.metrics.span_sweep import SpanRows, SpanSweep, first_totals, running_sums
from rag_eval.metrics.table_input import match_rows, most_on_line, number_strings
from rag_eval.metrics.table_views import SpanTables
from rag_eval.tables import (
    CHUNK_HITS,
    SCORES,
    TRUTH_CHUNKS,
    ChunkLevelTruthTables,
    TokenLevelTruthTables,
    check_schema,
)
from rag_eval.types.document import Document

NO_CUT = 0
"""The k of a score whose metric is not cut at a number of hits: ``precision_omega``, ``chroma_iou@min``."""

AVERAGES = pa.schema(
    [
        pa.field("metric", pa.string(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("mean", pa.float64(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
    ]
)
"""A row for each metric and k: the mean over n queries."""

# Few enough for the processor's cache, enough to forget what a numpy call costs.
BLOCK_ROWS = 100_000

Scores = dict[tuple[str, int], Values]
SpanFormulas = list[tuple[MetricName, Callable[[SpanCounts, int | None], Values]]]


def score_token_level(
    hits: pa.Table,
    truth: TokenLevelTruthTables,
    metrics: Sequence[str],
    ks: Sequence[int],
    *,
    documents: Iterable[Document] | None = None,
    chunks: pa.Table | None = None,
    block_rows: int = BLOCK_ROWS,
) -> pa.Table:
    """Score hits against truth spans: a ``SCORES`` row for each metric, k and answerable query, in this order.

    ``metrics`` are names without a number (``span_recall``, ``span_recall(cl100k_base)``, ``chroma_iou@min``); the
    numbers are ``ks``. ``documents`` are needed for what is counted in tokens, ``chunks`` (all of the corpus, as a
    table) for ``precision_omega`` and ``@min``, whose rows have k 0. ``block_rows`` bounds memory: so many rows of hits
    and truth are scored at a time.
    Raises ``ConfigurationError`` on a metric or k that cannot be used or lacks what it needs, ``TableError`` on a row
    that holds no character, has a wrong rank or names an unknown query, and ``GroundTruthError`` on a query without
    truth that is not declared unanswerable.
    """
    names = _requested(metrics, ks, TOKEN_LEVEL_METRICS)
    tables = SpanTables(hits, truth, max(ks, default=0), documents, chunks)
    scores = _unfilled(names, ks, len(tables.query_ids))
    views: dict[str, SpanFormulas] = {}
    for name in names:
        metric = TOKEN_LEVEL_METRICS[name.base]
        if not issubclass(metric, TokensRetrieved):
            views.setdefault(tables.view_of(name), []).append((name, metric.formula))
            continue
        costs = tables.token_costs(name, name.unit or DEFAULT_ENCODING)
        for k in ks:
            scores[str(name), k][:] = first_totals(running_sums(costs), tables.hits.offsets, k)
    for formulas in views.values():
        hit_rows, truth_rows = tables.view(formulas[0][0])
        _fill(scores, formulas, ks, hit_rows, truth_rows, block_rows)
    return _scores_table(scores, tables.query_ids)


def score_chunk_level(
    hits: pa.Table,
    truth: ChunkLevelTruthTables,
    metrics: Sequence[str],
    ks: Sequence[int],
    *,
    block_rows: int = BLOCK_ROWS,
) -> pa.Table:
    """Score the chunk ids of hits: a ``SCORES`` row for each metric, k and answerable query, in this order.

    The hits have the schema ``CHUNK_HITS``. Raises as ``score_token_level`` does.
    """
    names = _requested(metrics, ks, CHUNK_LEVEL_METRICS)
    check_schema(truth.chunks, TRUTH_CHUNKS, "truth chunks")
    matched = match_rows(truth.queries, hits, truth.chunks, CHUNK_HITS)
    hit_offsets, truth_offsets = matched.hits.offsets, matched.truth.offsets
    (hit_chunk, truth_chunk), ids = number_strings([hits.column("chunk_id"), truth.chunks.column("chunk_id")])
    hit_chunk, truth_chunk = hit_chunk[matched.hits.rows], truth_chunk[matched.truth.rows]
    scores = _unfilled(names, ks, len(matched.query_ids))
    for first, last in _blocks(hit_offsets, truth_offsets, block_rows, block_rows):
        sweep = ChunkSweep(
            hit_chunk[hit_offsets[first] : hit_offsets[last]],
            hit_offsets[first : last + 1] - hit_offsets[first],
            truth_chunk[truth_offsets[first] : truth_offsets[last]],
            truth_offsets[first : last + 1] - truth_offsets[first],
            len(ids),
        )
        for name in names:
            for k in ks:
                scores[str(name), k][first:last] = CHUNK_LEVEL_METRICS[name.base].formula(sweep, k)
    return _scores_table(scores, matched.query_ids)


def average_scores(scores: pa.Table) -> pa.Table:
    """The mean and the number of queries for each metric and k, in the order of their first rows."""
    import polars as pl  # here, because it takes longer to import than most runs take to score

    check_schema(scores, SCORES, "scores")
    frame = pl.from_arrow(scores.select(["metric", "k", "value"]))
    averages = frame.group_by("metric", "k", maintain_order=True).agg(  # type: ignore[union-attr]  # never a Series
        pl.col("value").mean().alias("mean"), pl.len().cast(pl.Int64).alias("n")
    )
    return averages.to_arrow().cast(AVERAGES)


def score_name(metric: str, k: int) -> str:
    """The full name of a row of the scores, such as ``span_recall@5``; k 0 adds nothing."""
    return metric if k == NO_CUT else f"{metric}@{k}"


def _requested(metrics: Sequence[str], ks: Sequence[int], known: Mapping[str, object]) -> list[MetricName]:
    names = [parse_metric_name(metric, known) for metric in metrics]
    for name in names:
        if isinstance(name.k, int):
            raise ConfigurationError(f"{name} names a number of hits: ask for {name.base} and give {name.k} in ks")
        if not ks and name.k is None and name.base != PrecisionOmega.label:
            raise ConfigurationError(f"{name} needs a number of hits: give at least one k in ks")
    for k in ks:
        check_cut(k, "ks")
    for asked in ([str(name) for name in names], list(ks)):
        if len(set(asked)) < len(asked):
            raise ConfigurationError(f"{asked} has an entry twice: ask for each metric and each k once")
    return names


def _cuts(name: MetricName, ks: Sequence[int]) -> Sequence[int]:
    return [NO_CUT] if name.k == "min" or name.base == PrecisionOmega.label else ks


def _unfilled(names: Sequence[MetricName], ks: Sequence[int], queries: int) -> Scores:
    return {(str(name), k): np.empty(queries) for name in names for k in _cuts(name, ks)}


def _fill(
    scores: Scores, formulas: SpanFormulas, ks: Sequence[int], hits: SpanRows, truth: SpanRows, block_rows: int
) -> None:
    last_end = int(max(hits.end.max(initial=0), truth.end.max(initial=0)))
    documents = int(max(hits.doc.max(initial=0), truth.doc.max(initial=0))) + 1
    for first, last in _blocks(hits.offsets, truth.offsets, block_rows, most_on_line(documents, last_end)):
        sweep = SpanSweep(hits.block(first, last), truth.block(first, last), documents, last_end)
        for name, formula in formulas:
            for k in _cuts(name, ks):
                scores[str(name), k][first:last] = formula(sweep, k or None)


def _blocks(
    hit_offsets: Counts, truth_offsets: Counts, block_rows: int, most_queries: int
) -> Iterator[tuple[int, int]]:
    """Ranges of queries that together have about ``block_rows`` rows."""
    rows = hit_offsets + truth_offsets
    queries = len(rows) - 1
    first = 0
    while first < queries:
        last = int(np.searchsorted(rows, rows[first] + block_rows, side="right")) - 1
        last = max(first + 1, min(last, first + most_queries, queries))
        yield first, last
        first = last


def _scores_table(scores: Scores, query_ids: pa.Array) -> pa.Table:
    # A chunk for each metric and k: ids and labels are stored once, however many scores there are.
    count = len(query_ids)
    labels = {metric: pa.repeat(metric, count) for metric in {metric for metric, _ in scores}}
    cuts = {k: pa.repeat(pa.scalar(k, pa.int32()), count) for k in {k for _, k in scores}}
    columns = [
        pa.chunked_array([query_ids for _ in scores], SCORES.field("query_id").type),
        pa.chunked_array([labels[metric] for metric, _ in scores], SCORES.field("metric").type),
        pa.chunked_array([cuts[k] for _, k in scores], SCORES.field("k").type),
        pa.chunked_array([pa.array(values) for values in scores.values()], SCORES.field("value").type),
    ]
    return pa.Table.from_arrays(columns, schema=SCORES)
