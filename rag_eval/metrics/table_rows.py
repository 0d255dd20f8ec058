"""The rows of tables by query, as arrays: hits by rank, truth, and names as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import GroundTruthError, TableError
from rag_eval.metrics.metric import Counts
from rag_eval.metrics.sweep import SpanRows
from rag_eval.tables import PASSAGES, PLACE, QUERIES, TRUTH, TruthTables, check_schema

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
