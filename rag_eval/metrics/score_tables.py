"""Scores from tables: every metric, k and query at once, several k from one retrieval.

The missing rule: every answerable query has a row for each metric and k; a query without hits gets the metric's value
for empty retrieval. A query without truth that is not declared unanswerable is an error. Unanswerable queries have
no rows. Values equal those of the metrics' ``calculate``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError, GroundTruthError, TableError
from rag_eval.metrics.chroma import MAX_MIN_K, ChunkLine, PrecisionOmega
from rag_eval.metrics.metric import Counts, MetricName, Values, check_cut
from rag_eval.metrics.registry import CHUNK_LEVEL_METRICS, TOKEN_LEVEL_METRICS, needed, parse_metric_name
from rag_eval.metrics.span_metrics import DEFAULT_ENCODING, SpanCounts, TokensRetrieved, TokenUnit
from rag_eval.metrics.sweep import ChunkSweep, SpanRows, SpanSweep, first_totals, running_sums
from rag_eval.tables import (
    CHUNKS,
    PASSAGES,
    PLACE,
    QUERIES,
    SCORES,
    TRUTH,
    TruthTables,
    check_schema,
)
from rag_eval.tokens import count_tokens
from rag_eval.types.documents import Document

LAST_POSITION = 2**62


@dataclass(frozen=True)
class RowOrder:
    """Rows of a table by query: with ``column[rows]``, ``offsets[i]:offsets[i + 1]`` are those of answerable query i.

    Where the table stands in this order already, ``rows`` is a slice, and nothing is copied.
    """

    rows: Counts | slice
    offsets: Counts


@dataclass(frozen=True)
class MatchedRows:
    """The ids of the answerable queries, in the dataset's order, and their hits, by rank, and truth."""

    query_ids: pa.Array
    hits: RowOrder
    truth: RowOrder


def match_rows(truth: TruthTables, hits: pa.Table, known_by: Sequence[str] = PLACE) -> MatchedRows:
    """Find the rows of every answerable query; the hits are ``PASSAGES``, with a value in each column of ``known_by``.

    Raises ``TableError`` when two queries share an id, when a row names an unknown query, or when the ranks of a query
    are not 1, 2, … without a gap; ``GroundTruthError`` when an answerable query has no truth or another has.
    """
    queries = check_schema(truth.queries, QUERIES, "queries")
    check_schema(truth.answers, TRUTH, "truth", known_by)
    check_schema(hits, PASSAGES, "passages", known_by)
    if pc.max(truth.answers.column("member")).as_py():
        raise TableError("the truth has groups of several members: choose one of each before scoring")
    ids = queries.column("query_id").combine_chunks()
    if len(pc.unique(ids)) < len(ids):
        counts = pc.value_counts(ids)
        first = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise TableError(f"the queries table has {first['values']!r} {first['counts']} times: keep one row a query")
    answerable = ~queries.column("unanswerable").to_numpy()
    numbers = np.where(answerable, np.cumsum(answerable) - 1, -1)
    hit_query = numbers[_look_up(hits, ids, "hits")]
    truth_query = numbers[_look_up(truth.answers, ids, "truth")]
    query_ids = ids.filter(pa.array(answerable))
    return MatchedRows(
        query_ids, _order_hits(hit_query, hits, len(query_ids)), _order_truth(truth_query, truth.answers, query_ids)
    )


def number_strings(columns: Sequence[pa.ChunkedArray]) -> tuple[list[Counts], pa.Array]:
    """The strings of all columns as numbers, and the strings by number, in the order in which they first occur."""
    chunks = [chunk for column in columns for chunk in column.chunks if len(chunk)]
    if not chunks:
        return [np.zeros(0, dtype=np.int64) for _ in columns], pa.array([], pa.string())
    encoded = pa.chunked_array(chunks).dictionary_encode()
    # Arrow gives all chunks of one column one dictionary.
    numbers = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks], dtype=np.int64)
    return np.split(numbers, np.cumsum([len(column) for column in columns])[:-1]), encoded.chunk(0).dictionary


def span_rows(table: pa.Table, doc: Counts, order: RowOrder, what: str) -> SpanRows:
    """The places of the rows in the given order; raises ``TableError`` unless ``0 <= start < end`` in every row."""
    start, end = table.column("start").to_numpy(), table.column("end").to_numpy()
    wrong = np.flatnonzero((start < 0) | (start >= end))
    if len(wrong):
        row = int(wrong[0])
        raise TableError(
            f"row {row} of the {what} table has the span [{start[row]}, {end[row]}) of "
            f"{table.column('doc_id')[row].as_py()!r}, which holds no character ({len(wrong)} such rows)"
        )
    return SpanRows(order.offsets, doc[order.rows], start[order.rows], end[order.rows])


def most_on_line(documents: int, last_end: int) -> int:
    """How many queries fit on one line of 64-bit positions; raises ``TableError`` when not even one does."""
    most = LAST_POSITION // (documents << last_end.bit_length())
    if not most:
        raise TableError(
            f"{documents} documents with ends up to {last_end} are more than can be numbered: check the ends"
        )
    return most


def _look_up(table: pa.Table, ids: pa.Array, what: str) -> Counts:
    """The place of each row's query in ``ids``."""
    column = table.column("query_id").combine_chunks()
    if not len(column):
        return np.zeros(0, dtype=np.int64)
    # The rows of a query mostly stand together, and often in the order of the queries: each run is looked up once.
    runs = pc.run_end_encode(column)
    lengths = np.diff(runs.run_ends.to_numpy(), prepend=0)
    if runs.values.equals(ids):
        return np.repeat(np.arange(len(ids)), lengths)
    places = pc.index_in(runs.values, value_set=ids)
    if places.null_count:
        unknown = pc.unique(runs.values.filter(pc.is_null(places)))
        raise TableError(
            f"the {what} table names {len(unknown)} queries that the queries table does not have, "
            f"first {unknown[0].as_py()!r}: score against the dataset that was searched for"
        )
    return np.repeat(places.to_numpy().astype(np.int64), lengths)


def _order_hits(query: Counts, hits: pa.Table, queries: int) -> RowOrder:
    rank = hits.column("rank").to_numpy()
    order = _by_query(query, queries)
    expected = np.arange(1, order.offsets[-1] + 1) - np.repeat(order.offsets[:-1], np.diff(order.offsets))
    if (rank[order.rows] == expected).all():
        return order
    rows = np.arange(len(rank))[order.rows]
    rows = rows[np.lexsort((rank[rows], query[rows]))]
    wrong = np.flatnonzero(rank[rows] != expected)
    if len(wrong):
        row = int(rows[wrong[0]])
        raise TableError(
            f"the hits of {hits.column('query_id')[row].as_py()!r} have the rank {rank[row]} where "
            f"{expected[wrong[0]]} should be: number the hits of each query 1, 2, … without a gap"
        )
    return RowOrder(rows, order.offsets)


def _order_truth(query: Counts, truth: pa.Table, query_ids: pa.Array) -> RowOrder:
    contradicted = np.flatnonzero(query < 0)
    if len(contradicted):
        first = truth.column("query_id")[int(contradicted[0])].as_py()
        raise GroundTruthError(
            f"{first!r} is declared unanswerable and has ground truth ({len(contradicted)} such rows): "
            "remove one or the other"
        )
    order = _by_query(query, len(query_ids))
    without = np.flatnonzero(np.diff(order.offsets) == 0)
    if len(without):
        raise GroundTruthError(
            f"{query_ids[int(without[0])].as_py()!r} has no ground truth ({len(without)} such queries): "
            "add what answers it, or declare it unanswerable"
        )
    return order


def _by_query(query: Counts, queries: int) -> RowOrder:
    """The rows of answerable queries by query; rows of one query stay in their order."""
    rows: Counts | slice = slice(None)
    if not ((query >= 0).all() and (query[1:] >= query[:-1]).all()):
        kept = np.flatnonzero(query >= 0)
        rows = kept[np.argsort(query[kept], kind="stable")]
        query = query[rows]
    return RowOrder(rows, np.concatenate([[0], np.cumsum(np.bincount(query, minlength=queries))]))


RANKS_AT_ONCE = 5
"""How many hits of a query are tokenised before it is seen whether a budget has room for more."""


class SpanTables:
    """Hits and truth of the answerable queries; no cut is deeper than ``depth``.

    ``documents`` and ``chunks`` are as ``score_token_level`` was given them.

    Raises ``TableError`` or ``GroundTruthError`` when a table cannot be used.
    """

    def __init__(
        self,
        hits: pa.Table,
        truth: TruthTables,
        depth: int,
        documents: Iterable[Document] | None,
        chunks: pa.Table | None,
    ) -> None:
        matched = match_rows(truth, hits)
        self.query_ids = matched.query_ids
        self._documents = None if documents is None else list(documents)
        self._chunks = None if chunks is None else check_schema(chunks, CHUNKS, "chunks", PLACE)
        tables = [hits, truth.answers] if self._chunks is None else [hits, truth.answers, self._chunks]
        numbers, doc_ids = number_strings([table.column("doc_id") for table in tables])
        self.doc_ids: list[str] = doc_ids.to_pylist()
        self._all_hits = span_rows(hits, numbers[0], matched.hits, "hits")
        self.hits = self._all_hits.first(depth)
        self.truth = span_rows(truth.answers, numbers[1], matched.truth, "truth")
        self._chunk_doc = numbers[-1]

    def view_of(self, name: MetricName) -> str:
        """Metrics with the same answer look at the same hits and truth."""
        if name.base == PrecisionOmega.label:
            return "touching chunks"
        return "min" if name.k == "min" else name.unit or "characters"

    def view(self, name: MetricName) -> tuple[SpanRows, SpanRows]:
        """The hits and the truth that the metric of this name looks at.

        Raises ``ConfigurationError`` when it needs documents or chunks that were not given.
        """
        if name.base == PrecisionOmega.label:
            return self._touching(name), self.truth
        if name.k == "min":
            counts = np.diff(self._touching(name).offsets)
            return self._all_hits.first(np.minimum(counts, MAX_MIN_K)), self.truth
        if name.unit is None:
            return self.hits, self.truth
        unit = TokenUnit(name.unit, needed(self._documents, str(name), "documents"))
        return _in_tokens(self.hits, self.doc_ids, unit), _in_tokens(self.truth, self.doc_ids, unit)

    def token_costs(self, name: MetricName, encoding: str, most: int | None = None) -> Counts:
        """The tokens of each hit's own text; a hit that comes after ``most`` tokens of its query counts 0.

        A place that occurs often is tokenised once. Raises ``ConfigurationError`` when the text of a hit is not in the
        documents.
        """
        contents = {document.id: document.content for document in needed(self._documents, str(name), "documents")}
        texts = [contents.get(doc_id) for doc_id in self.doc_ids]  # type: ignore[call-overload]  # Arrow gives str
        counts, ranks = np.diff(self.hits.offsets), self.hits.ranks() - 1
        places, which = self._places()
        tokens = np.full(len(places), -1, dtype=np.int64)
        query = np.repeat(np.arange(len(counts)), counts)
        costs = np.zeros(len(query), dtype=np.int64)
        at_once = RANKS_AT_ONCE if most is not None else int(counts.max(initial=1))
        for first in range(0, int(counts.max(initial=0)), at_once):
            rows = np.flatnonzero((ranks >= first) & (ranks < first + at_once))
            if most is not None:
                rows = rows[np.bincount(query, costs, len(counts))[query[rows]] <= most]
            for place in np.unique(which[rows][tokens[which[rows]] < 0]).tolist():
                tokens[place] = count_tokens(self._text_at(places[place], texts, name), encoding)
            costs[rows] = tokens[which[rows]]
        return costs

    def _places(self) -> tuple[Counts, Counts]:
        """The places of hits, each once, by document, start and end; and which of them each hit has."""
        hits = self.hits
        order = np.lexsort((hits.end, hits.start, hits.doc))
        sorted_ = np.stack([hits.doc, hits.start, hits.end], axis=1)[order]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = (sorted_[1:] != sorted_[:-1]).any(axis=1)
        which = np.empty(len(order), dtype=np.int64)
        which[order] = np.cumsum(is_new) - 1
        return sorted_[is_new], which

    def _text_at(self, place: Counts, texts: list[str | None], name: MetricName) -> str:
        number, first, last = map(int, place)
        text = texts[number]
        if text is None or last > len(text):
            raise ConfigurationError(
                f"the documents have no text at [{first}, {last}) of {self.doc_ids[number]!r}, which was "
                f"retrieved: for {name} give the corpus that was searched"
            )
        return text[first:last]

    @cached_property
    def _touching_chunks(self) -> SpanRows | None:
        if self._chunks is None:
            return None
        all_rows = RowOrder(slice(None), np.array([0, len(self._chunk_doc)]))
        return touching_chunks(self.truth, span_rows(self._chunks, self._chunk_doc, all_rows, "chunks"))

    def _touching(self, name: MetricName) -> SpanRows:
        return needed(self._touching_chunks, str(name), "chunks")


def touching_chunks(truth: SpanRows, chunks: SpanRows) -> SpanRows:
    """For each query the chunks that touch its truth, each once; ``chunks`` are those of the whole corpus."""
    # One more than the last end: a chunk at the end of one document does not touch the next.
    last = int(max(chunks.end.max(initial=0), truth.end.max(initial=0))) + 1
    most_on_line(int(max(chunks.doc.max(initial=0), truth.doc.max(initial=0))) + 1, last)
    length = last + 1
    line = ChunkLine.build(chunks.doc * length + chunks.start, chunks.doc * length + chunks.end)
    reference, chunk = line.touching(truth.doc * length + truth.start, truth.doc * length + truth.end)
    query = np.repeat(np.arange(truth.queries), np.diff(truth.offsets))[reference]
    count = len(line.starts) + 1
    query, chunk = np.divmod(np.unique(query * count + chunk), count)
    offsets = np.searchsorted(query, np.arange(truth.queries + 1))
    doc, start = np.divmod(line.starts[chunk], length)
    return SpanRows(offsets, doc, start, line.ends[chunk] - doc * length)


def _in_tokens(rows: SpanRows, doc_ids: Sequence[str], unit: TokenUnit) -> SpanRows:
    start, end = np.empty_like(rows.start), np.empty_like(rows.end)
    order = np.argsort(rows.doc, kind="stable")
    borders = np.flatnonzero(np.diff(rows.doc[order], prepend=-1))
    for group in np.split(order, borders[1:]) if len(order) else []:
        doc_id = doc_ids[rows.doc[group[0]]]
        start[group] = unit.tokens_before(doc_id, rows.start[group])
        end[group] = unit.tokens_before(doc_id, rows.end[group])
    return SpanRows(rows.offsets, rows.doc, start, end)


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
    truth: TruthTables,
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
    truth: TruthTables,
    metrics: Sequence[str],
    ks: Sequence[int],
    *,
    block_rows: int = BLOCK_ROWS,
) -> pa.Table:
    """Score the chunk ids of hits: a ``SCORES`` row for each metric, k and answerable query, in this order.

    Raises as ``score_token_level`` does.
    """
    names = _requested(metrics, ks, CHUNK_LEVEL_METRICS)
    matched = match_rows(truth, hits, ["chunk_id"])
    hit_offsets, truth_offsets = matched.hits.offsets, matched.truth.offsets
    (hit_chunk, truth_chunk), ids = number_strings([hits.column("chunk_id"), truth.answers.column("chunk_id")])
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
