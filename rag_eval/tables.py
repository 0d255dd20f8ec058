"""The Arrow tables that carry everything between the steps: one schema each, and conversion both ways.

A conversion to a table and back gives equal values. Metadata travels as JSON text; what JSON would change
(a tuple, a set, a number as a key) is refused rather than altered.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rag_eval.errors import TableError, preview
from rag_eval.types.chunks import CharacterSpan, Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import text_sha256

Row = dict[str, Any]


def _schema(**fields: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields.items()])


# Texts are large_string: one column may pass the 2 GiB that string offsets can address.
DOCUMENTS = _schema(doc_id=pa.string(), content=pa.large_string(), sha256=pa.string(), metadata=pa.string())
CHUNKS = _schema(
    chunk_id=pa.string(),
    doc_id=pa.string(),
    start=pa.int64(),
    end=pa.int64(),
    content=pa.large_string(),
    metadata=pa.string(),
)
PLAIN_CHUNKS = _schema(
    chunk_id=pa.string(), doc_id=pa.string(), ordinal=pa.int64(), content=pa.large_string(), metadata=pa.string()
)
QUERIES = _schema(query_id=pa.string(), text=pa.string(), unanswerable=pa.bool_(), metadata=pa.string())
TRUTH_SPANS = _schema(
    query_id=pa.string(), doc_id=pa.string(), start=pa.int64(), end=pa.int64(), text=pa.large_string()
)
TRUTH_CHUNKS = _schema(query_id=pa.string(), chunk_id=pa.string())
HITS = _schema(
    query_id=pa.string(),
    rank=pa.int32(),
    score=pa.float32(),
    doc_id=pa.string(),
    start=pa.int64(),
    end=pa.int64(),
    chunk_id=pa.string(),
)
CHUNK_HITS = _schema(
    query_id=pa.string(),
    rank=pa.int32(),
    score=pa.float32(),
    doc_id=pa.string(),
    ordinal=pa.int64(),
    chunk_id=pa.string(),
)
SCORES = _schema(query_id=pa.string(), metric=pa.string(), k=pa.int32(), value=pa.float64())


def embeddings_schema(dimension: int) -> pa.Schema:
    """The schema of vectors by the sha256 of their text, for one dimension."""
    return _schema(text_sha256=pa.string(), vector=pa.list_(pa.field("item", pa.float32(), nullable=False), dimension))


@dataclass(frozen=True, slots=True)
class TokenLevelTruthTables:
    """Token-level ground truth as tables: every query, and the spans of the answerable ones."""

    queries: pa.Table
    spans: pa.Table


@dataclass(frozen=True, slots=True)
class ChunkLevelTruthTables:
    """Chunk-level ground truth as tables: every query, and the chunk ids of the answerable ones."""

    queries: pa.Table
    chunks: pa.Table


def check_schema(table: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """The table unchanged; raises ``TableError`` when a column is missing, superfluous, of another type or empty."""
    expected, found = set(schema.names), set(table.schema.names)
    if len(found) < table.num_columns:
        repeated = min(name for name in found if table.schema.names.count(name) > 1)
        raise TableError(f"the {what} table has the column {repeated!r} more than once: keep one")
    if expected != found:
        raise TableError(
            f"the {what} table has the columns {sorted(found)}, it needs {sorted(expected)}: "
            f"missing {sorted(expected - found)}, superfluous {sorted(found - expected)}"
        )
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            raise TableError(f"column {field.name!r} of the {what} table is {column.type}, it needs {field.type}")
        if column.null_count:
            raise TableError(f"column {field.name!r} of the {what} table has {column.null_count} empty values")
    return table


def documents_to_table(corpus: Corpus) -> pa.Table:
    """A row a document, in the corpus's order."""
    return table_of(
        DOCUMENTS,
        [
            (doc.id, doc.content, text_sha256(doc.content), metadata_to_json(doc.metadata, f"document {doc.id!r}"))
            for doc in corpus.documents
        ],
    )


def documents_from_table(table: pa.Table) -> list[Document]:
    """The documents in row order.

    Raises ``TableError`` when a content is not the one its sha256 was taken of, or metadata is not a JSON object.
    """
    rows = check_schema(table, DOCUMENTS, "documents").to_pylist()
    for row in rows:
        if text_sha256(row["content"]) != row["sha256"]:
            raise TableError(f"the content of document {row['doc_id']!r} is not the one its sha256 was taken of")
    return [Document(row["doc_id"], row["content"], _metadata(row, f"document {row['doc_id']!r}")) for row in rows]


def chunks_to_table(chunks: Iterable[PositionAwareChunk]) -> pa.Table:
    """A row a chunk, in the given order; equal texts at different places are different rows."""
    return table_of(
        CHUNKS,
        [
            (c.id, c.doc_id, c.start, c.end, c.content, metadata_to_json(c.metadata, f"a chunk of {c.doc_id!r}"))
            for c in chunks
        ],
    )


def chunks_from_table(table: pa.Table) -> list[PositionAwareChunk]:
    """The chunks in row order; raises ``TableError`` when a place does not fit its text."""
    return [_placed_chunk(row) for row in check_schema(table, CHUNKS, "chunks").to_pylist()]


def _placed_chunk(row: Row) -> PositionAwareChunk:
    doc_id, start, end, content = row["doc_id"], row["start"], row["end"], row["content"]
    if not 0 <= start < end or end - start != len(content):
        raise TableError(
            f"the chunks table has [{start}, {end}) of {doc_id!r} as the place of {preview(content)}, "
            f"which is {len(content)} characters long: start must be 0 or more, end as many past it"
        )
    return PositionAwareChunk(row["chunk_id"], content, doc_id, start, end, _metadata(row, f"a chunk of {doc_id!r}"))


def plain_chunks_to_table(chunks: Iterable[Chunk]) -> pa.Table:
    """A row a chunk without a place, keyed by document and ordinal in it; none is dropped."""
    ordinals: dict[str, int] = {}
    rows = []
    for c in chunks:
        ordinal = ordinals.get(c.doc_id, 0)
        ordinals[c.doc_id] = ordinal + 1
        rows.append((c.id, c.doc_id, ordinal, c.content, metadata_to_json(c.metadata, f"a chunk of {c.doc_id!r}")))
    return table_of(PLAIN_CHUNKS, rows)


def plain_chunks_from_table(table: pa.Table) -> list[Chunk]:
    """The chunks in row order."""
    return [
        Chunk(row["chunk_id"], row["content"], row["doc_id"], _metadata(row, f"a chunk of {row['doc_id']!r}"))
        for row in check_schema(table, PLAIN_CHUNKS, "chunks").to_pylist()
    ]


def token_truth_to_tables(truth: Sequence[TokenLevelGroundTruth]) -> TokenLevelTruthTables:
    """The queries and, beside them, a row for each relevant span."""
    spans = [(g.query.id, s.doc_id, s.start, s.end, s.text) for g in truth for s in g.relevant_spans]
    return TokenLevelTruthTables(_queries_to_table(truth), table_of(TRUTH_SPANS, spans))


def token_truth_from_tables(tables: TokenLevelTruthTables) -> list[TokenLevelGroundTruth]:
    """The ground truth in the order of its queries; raises ``TableError`` on spans of an unknown query."""
    spans: dict[str, list[CharacterSpan]] = {}
    for row in check_schema(tables.spans, TRUTH_SPANS, "truth spans").to_pylist():
        span = CharacterSpan(row["doc_id"], row["start"], row["end"], row["text"])
        spans.setdefault(row["query_id"], []).append(span)
    truth = [
        TokenLevelGroundTruth(query, spans.pop(query.id, []), unanswerable)
        for query, unanswerable in _queries_from_table(tables.queries)
    ]
    _check_known("truth spans", spans)
    return truth


def chunk_truth_to_tables(truth: Sequence[ChunkLevelGroundTruth]) -> ChunkLevelTruthTables:
    """The queries and, beside them, a row for each relevant chunk id."""
    ids = [(g.query.id, chunk_id) for g in truth for chunk_id in g.relevant_chunk_ids]
    return ChunkLevelTruthTables(_queries_to_table(truth), table_of(TRUTH_CHUNKS, ids))


def chunk_truth_from_tables(tables: ChunkLevelTruthTables) -> list[ChunkLevelGroundTruth]:
    """The ground truth in the order of its queries; raises ``TableError`` on chunk ids of an unknown query."""
    ids: dict[str, list[str]] = {}
    for row in check_schema(tables.chunks, TRUTH_CHUNKS, "truth chunks").to_pylist():
        ids.setdefault(row["query_id"], []).append(row["chunk_id"])
    truth = [
        ChunkLevelGroundTruth(query, ids.pop(query.id, []), unanswerable)  # type: ignore[arg-type]  # Arrow gives str
        for query, unanswerable in _queries_from_table(tables.queries)
    ]
    _check_known("truth chunks", ids)
    return truth


def metadata_to_json(metadata: Mapping[str, object], where: str) -> str:
    """Metadata as JSON text; raises ``TableError``, naming ``where``, when JSON would not give back the same."""
    if not metadata:
        return "{}"  # what most chunks have
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, sort_keys=True, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise TableError(f"the metadata of {where} cannot be kept as JSON: {error}") from None
    if json.loads(text) != dict(metadata):
        raise TableError(
            f"the metadata of {where} would not survive JSON: {preview(repr(dict(metadata)))}; "
            "use strings as keys, and lists rather than tuples"
        )
    return text


def _metadata(row: Row, where: str) -> dict[str, object]:
    try:
        metadata = json.loads(row["metadata"])
    except (ValueError, RecursionError) as error:
        raise TableError(f"the metadata of {where} is not JSON: {error}") from None
    if not isinstance(metadata, dict):
        raise TableError(f"the metadata of {where} is {preview(row['metadata'])}: it must be a JSON object")
    return metadata


def _queries_to_table(truth: Iterable[TokenLevelGroundTruth | ChunkLevelGroundTruth]) -> pa.Table:
    rows = [
        (g.query.id, g.query.text, g.unanswerable, metadata_to_json(g.query.metadata, f"query {g.query.id!r}"))
        for g in truth
    ]
    return table_of(QUERIES, rows)


def _queries_from_table(table: pa.Table) -> list[tuple[Query, bool]]:
    return [
        (Query(row["query_id"], row["text"], _metadata(row, f"query {row['query_id']!r}")), row["unanswerable"])
        for row in check_schema(table, QUERIES, "queries").to_pylist()
    ]


def _check_known(what: str, left_over: Mapping[str, object]) -> None:
    if left_over:
        raise TableError(
            f"the {what} table names {len(left_over)} queries that are not there, first {min(left_over)!r}"
        )


def table_of(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """The rows, each in the order of the schema's columns, as a table.

    Raises ``TableError`` on a value that its column cannot hold.
    """
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [_array(column, field) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(column: Sequence[object], field: pa.Field) -> pa.Array:
    try:
        array = pa.array(column, type=field.type)
    # Arrow's own errors are of these kinds too.
    except (OverflowError, TypeError, ValueError) as error:
        raise TableError(f"column {field.name!r} is of {field.type}, a value does not fit: {error}") from None
    if array.null_count and not field.nullable:
        raise TableError(f"column {field.name!r} needs a value in every row, {array.null_count} rows have none")
    return array
