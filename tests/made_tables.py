"""Tables from rows that name only what a test is about."""

from collections.abc import Sequence

import pyarrow as pa

from rag_eval.tables import CHUNKS, HITS, PASSAGES, TRUTH, table_of

Rows = Sequence[tuple[object, ...]]


def placed_chunks(rows: Rows) -> pa.Table:
    """Rows of chunk_id, doc_id, start, end, content."""
    return table_of(CHUNKS, rows, ("chunk_id", "doc_id", "start", "end", "content"), ordinal=0, metadata="{}")


def plain_chunks(rows: Rows) -> pa.Table:
    """Rows of chunk_id, doc_id, ordinal, content."""
    return table_of(CHUNKS, rows, ("chunk_id", "doc_id", "ordinal", "content"), metadata="{}")


def placed_hits(rows: Rows) -> pa.Table:
    """Rows of query_id, rank, score, doc_id, start, end, chunk_id."""
    columns = ("query_id", "rank", "score", "doc_id", "start", "end", "chunk_id")
    return table_of(HITS, rows, columns, variant=0, stage="made")


def plain_hits(rows: Rows) -> pa.Table:
    """Rows of query_id, rank, score, doc_id, ordinal, chunk_id."""
    return table_of(HITS, rows, ("query_id", "rank", "score", "doc_id", "ordinal", "chunk_id"), variant=0, stage="made")


def placed_passages(rows: Rows) -> pa.Table:
    """Rows of query_id, rank, doc_id, start, end."""
    return table_of(PASSAGES, rows, ("query_id", "rank", "doc_id", "start", "end"))


def plain_passages(rows: Rows) -> pa.Table:
    """Rows of query_id, rank, chunk_id."""
    return table_of(PASSAGES, rows, ("query_id", "rank", "chunk_id"))


def span_truth(rows: Rows) -> pa.Table:
    """Rows of query_id, doc_id, start, end, text; each is a group of its own."""
    numbered = [(number, *row) for number, row in enumerate(rows)]
    return table_of(TRUTH, numbered, ("group", "query_id", "doc_id", "start", "end", "text"), member=0)


def chunk_truth(rows: Rows) -> pa.Table:
    """Rows of query_id, chunk_id; each is a group of its own."""
    numbered = [(number, *row) for number, row in enumerate(rows)]
    return table_of(TRUTH, numbered, ("group", "query_id", "chunk_id"), member=0)
