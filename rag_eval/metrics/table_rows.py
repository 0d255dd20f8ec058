"""Read tables into arrays by query: hits by rank, truth with its groups, and ids as numbers.

A row becomes a span: at token level its place; at chunk level a chunk id is a document of one character.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import GroundTruthError, TableError
from rag_eval.metrics.coverage import SpanRows
from rag_eval.metrics.metric import LARGEST_CUT, Counts
from rag_eval.tables import (
    CHUNKS,
    PASSAGES,
    PLACE,
    QUERIES,
    TRUTH,
    TruthTables,
    check_schema,
    queries_from_table,
    table_of,
)
from rag_eval.types.documents import Document
from rag_eval.types.evidence import JUDGED, judgements
from rag_eval.types.ids import DocumentId, EvaluationType, text_sha256

Rows = Counts | slice
"""The rows of a table in order. If the table is already in order, a slice, which avoids a copy."""

NO_SPANS = SpanRows(np.zeros(2, dtype=np.int64), *np.zeros((3, 0), dtype=np.int64))


@dataclass(frozen=True)
class TableRows:
    """The spans of the answerable queries, in the dataset's order, with documents (or chunk ids) as numbers."""

    query_ids: pa.Array
    ids: pa.Array
    """The documents, or chunk ids, by their numbers."""
    truth: SpanRows
    hits: dict[str, SpanRows]
    picked: dict[str, Rows]
    """The rows of the hits in their table."""
    chunks: SpanRows
    """The chunks of the corpus, as the rows of one query; empty if not given."""
    judged: SpanRows
    """The truth and all other judged passages."""


def with_own_places(passages: pa.Table) -> tuple[pa.Table, list[Document]]:
    """Turn passages without a place into documents of their own; return all passages, and these documents."""
    unplaced = passages.column("start").is_null()
    if not pc.any(unplaced).as_py():
        return passages, []
    texts = [text or " " for text in pc.fill_null(passages.column("text"), "").to_pylist()]
    own = {text: Document(DocumentId(f"\0{text_sha256(text)}"), text) for text in dict.fromkeys(texts)}
    filled = {
        "doc_id": pa.array([own[text].id for text in texts], pa.string()),
        "start": pa.array([0] * len(texts), pa.int64()),
        "end": pa.array([len(text) for text in texts], pa.int64()),
    }
    for name, values in filled.items():
        place = passages.schema.get_field_index(name)
        column = pc.if_else(unplaced, values, passages.column(name))
        passages = passages.set_column(place, passages.schema.field(name), column)
    used = {text for text, is_own in zip(texts, unplaced.to_pylist(), strict=True) if is_own}
    return passages, [own[text] for text in used]


def read_rows(
    level: EvaluationType,
    truth: TruthTables,
    hits: Mapping[str, pa.Table],
    chunks: pa.Table | None = None,
    depth: int = LARGEST_CUT,
) -> TableRows:
    """Read the rows of every answerable query, of hits the first ``depth``.

    Args:
        level: What identifies rows: places or chunk ids.
        truth: The queries and what answers them.
        hits: ``PASSAGES`` tables by their name in error messages.
        chunks: All chunks of the corpus.
        depth: How many hits of a query are read.

    Raises:
        TableError: Two queries share an id, a row names an unknown query or has no characters, or the ranks of a query
            are not 1, 2, … without a gap.
        GroundTruthError: An answerable query has no truth, or an unanswerable one has.
    """
    known_by = PLACE if level == "token-level" else ("chunk_id",)
    queries, answers = check_schema(truth.queries, QUERIES, "queries"), truth.answers
    check_schema(answers, TRUTH, "truth", known_by)
    for table in hits.values():
        check_schema(table, PASSAGES, "passages", known_by)
    tables = {"truth": answers, "judged": _judged(queries, known_by), **hits}
    if chunks is not None:
        tables["chunks"] = check_schema(chunks, CHUNKS, "chunks", known_by)
    known = queries.column("query_id").combine_chunks()
    if len(pc.unique(known)) < len(known):
        counts = pc.value_counts(known)
        first = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise TableError(f"the queries table has {first['values']!r} {first['counts']} times: keep one row per query")
    answerable = ~queries.column("unanswerable").to_numpy()
    query_ids = known.filter(pa.array(answerable))
    spans, ids = _spans(tables, known_by[0])
    relevant = _relevant(answers, spans["truth"], known, answerable, query_ids)
    picked: dict[str, Rows] = {}
    retrieved: dict[str, SpanRows] = {}
    for what, table in hits.items():
        picked[what], hit_offsets = _by_rank(table, known, answerable, what, depth)
        retrieved[what] = spans[what].take(picked[what], hit_offsets)
    judged = relevant
    if tables["judged"].num_rows:
        _, rows, offsets = _by_query(tables["judged"], known, answerable, "judged")
        judged = relevant.join(spans["judged"].take(rows, offsets))
    return TableRows(query_ids, ids, relevant, retrieved, picked, spans.get("chunks", NO_SPANS), judged)


def _relevant(answers: pa.Table, spans: SpanRows, known: pa.Array, answerable: Counts, query_ids: pa.Array) -> SpanRows:
    """Return the truth of every answerable query, by group; raises ``GroundTruthError`` if one has none."""
    query, rows, offsets = _by_query(answers, known, answerable, "truth")
    if (query < 0).any():
        contradicted = np.flatnonzero(query < 0)
        raise GroundTruthError(
            f"{answers.column('query_id')[int(contradicted[0])].as_py()!r} is declared unanswerable and has ground "
            f"truth ({len(contradicted)} such rows): remove one or the other"
        )
    without = np.flatnonzero(np.diff(offsets) == 0)
    if len(without):
        raise GroundTruthError(
            f"{query_ids[int(without[0])].as_py()!r} has no ground truth ({len(without)} such queries): "
            "add what answers it, or declare it unanswerable"
        )
    relevant = spans.take(rows, offsets)
    if not pc.max(answers.column("member")).as_py():
        return relevant
    group, member = (answers.column(name).to_numpy()[rows].astype(np.int64) for name in ("group", "member"))
    order = np.lexsort((member, group, relevant.query))
    return replace(relevant.take(order, offsets), group=group[order])


def _judged(queries: pa.Table, known_by: Sequence[str]) -> pa.Table:
    """Return the judged passages in the metadata of the queries, as a ``TRUTH`` table."""
    some = queries.filter(pc.match_substring(queries.column("metadata"), f'"{JUDGED}"'))
    rows: list[tuple[object, ...]] = []
    for query in queries_from_table(some):
        for passage in judgements(query):
            if passage.grade is not None and passage.place.keys() == set(known_by):
                rows.append((query.id, 0, 0, *passage.place.values()))
    return table_of(TRUTH, rows, ("query_id", "group", "member", *known_by))


def _spans(tables: Mapping[str, pa.Table], identity: str) -> tuple[dict[str, SpanRows], pa.Array]:
    """Return the spans of each table, and the documents by number; raises ``TableError`` on an empty span."""
    columns = [table.column(identity) for table in tables.values()]
    pieces = [chunk for column in columns for chunk in column.chunks]
    encoded = pa.chunked_array(pieces, pa.string()).dictionary_encode().combine_chunks()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    docs = np.split(numbers, np.cumsum([len(column) for column in columns])[:-1])
    spans: dict[str, SpanRows] = {}
    for (what, table), doc in zip(tables.items(), docs, strict=True):
        start, end = np.zeros_like(doc), np.ones_like(doc)
        if identity == "doc_id":
            start, end = table.column("start").to_numpy(), table.column("end").to_numpy()
        wrong = np.flatnonzero((start < 0) | (start >= end))
        if len(wrong):
            row = int(wrong[0])
            raise TableError(
                f"row {row} of the {what} table has the span [{start[row]}, {end[row]}) of "
                f"{table.column('doc_id')[row].as_py()!r}, which has no characters ({len(wrong)} such rows)"
            )
        spans[what] = SpanRows(np.array([0, len(doc)]), doc, start, end)
    return spans, encoded.dictionary


def _by_query(table: pa.Table, known: pa.Array, answerable: Counts, what: str) -> tuple[Counts, Rows, Counts]:
    """Return the query number of each row (-1: unanswerable), the rows ordered by query, and the offsets of queries."""
    # Rows of a query are mostly adjacent, and often in the order of the queries, so look up each run once.
    runs = pc.run_end_encode(table.column("query_id").combine_chunks())
    places = np.arange(len(known))
    if not runs.values.equals(known):
        numbers_of = pc.index_in(runs.values, value_set=known)
        if numbers_of.null_count:
            unknown = pc.unique(runs.values.filter(pc.is_null(numbers_of)))
            raise TableError(
                f"the {what} table names {len(unknown)} queries that the queries table does not have, "
                f"first {unknown[0].as_py()!r}: score against the dataset that was searched for"
            )
        places = numbers_of.to_numpy()
    numbers = np.where(answerable, np.cumsum(answerable) - 1, -1)
    query = np.repeat(numbers[places], np.diff(runs.run_ends.to_numpy(), prepend=0))
    rows: Rows = slice(None)
    if not ((query >= 0).all() and (query[1:] >= query[:-1]).all()):
        kept = np.flatnonzero(query >= 0)
        rows = kept[np.argsort(query[kept], kind="stable")]
    counts = np.bincount(query[rows], minlength=np.count_nonzero(answerable))
    return query, rows, np.concatenate([[0], np.cumsum(counts)])


def _by_rank(hits: pa.Table, known: pa.Array, answerable: Counts, what: str, depth: int) -> tuple[Rows, Counts]:
    """Return the first ``depth`` rows of answerable queries, by query and rank, and the offsets of queries."""
    query, rows, offsets = _by_query(hits, known, answerable, what)
    rank = hits.column("rank").to_numpy()
    counts = np.diff(offsets)
    expected = np.arange(1, offsets[-1] + 1) - np.repeat(offsets[:-1], counts)
    if not (rank[rows] == expected).all():
        rows = np.arange(len(rank))[rows]
        rows = rows[np.lexsort((rank[rows], query[rows]))]
        wrong = np.flatnonzero(rank[rows] != expected)
        if len(wrong):
            row = int(rows[wrong[0]])
            raise TableError(
                f"the hits of {hits.column('query_id')[row].as_py()!r} have the rank {rank[row]} where "
                f"{expected[wrong[0]]} should be: number the hits of each query 1, 2, … without a gap"
            )
    if (counts <= depth).all():
        return rows, offsets
    kept = np.arange(len(rank))[rows][expected <= depth]
    return kept, np.concatenate([[0], np.cumsum(np.minimum(counts, depth))])
