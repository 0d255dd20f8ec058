"""Define the Arrow tables that are passed between steps, with their schemas and conversions.

Both levels share the schemas. At token level, chunks, hits, passages and truth are identified by their place
(``doc_id``, ``start``, ``end``), at chunk level by ``chunk_id`` and their number in the document (``ordinal``). Columns
that a level does not use are null. Converting values to a table and back gives equal values. Metadata is stored as
JSON; metadata that JSON would change, such as a tuple or a number as a key, is an error.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.documents import FILE_DIGEST
from rag_eval.errors import ConfigurationError, TableError, preview
from rag_eval.formatting import html_table
from rag_eval.types.chunks import CharacterSpan, Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import text_sha256

if TYPE_CHECKING:
    import polars

Row = dict[str, Any]
Truth = TypeVar("Truth", TokenLevelGroundTruth, ChunkLevelGroundTruth)


def schema_of(optional: str = "", **fields: pa.DataType) -> pa.Schema:
    """Return a schema in which only the columns that ``optional`` names, separated by blanks, may have nulls."""
    nullable = optional.split()
    return pa.schema([pa.field(name, kind, nullable=name in nullable) for name, kind in fields.items()])


# Texts are large_string, because a column may exceed the 2 GiB of string.
DOCUMENTS = schema_of(doc_id=pa.string(), content=pa.large_string(), sha256=pa.string(), metadata=pa.string())

CHUNKS = schema_of(
    "start end searched",
    chunk_id=pa.string(),
    doc_id=pa.string(),
    start=pa.int64(),
    end=pa.int64(),
    ordinal=pa.int64(),
    content=pa.large_string(),
    searched=pa.large_string(),
    metadata=pa.string(),
)
"""``content`` is the slice of the source that the id is derived from. ``searched`` is the text that is embedded and
indexed instead, null if it equals the content. ``ordinal`` counts from 0 in each document.
"""

QUERIES = schema_of(query_id=pa.string(), text=pa.string(), unanswerable=pa.bool_(), metadata=pa.string())
"""The questions."""

SEARCHES = schema_of("filter", query_id=pa.string(), variant=pa.int32(), text=pa.string(), filter=pa.string())
"""The texts that are searched for: the question itself, or the variants of a rewriter, which count from 0. ``filter``
is JSON, null to search all documents; see ``rag_eval.retrieval.selection``."""

ALLOWED = schema_of(filter=pa.string(), doc_ids=pa.list_(pa.string()))
"""Documents that match each filter."""

_FOUND = {
    "doc_id": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "ordinal": pa.int64(),
    "chunk_id": pa.string(),
    "text": pa.large_string(),
}

HITS = schema_of(
    "doc_id start end ordinal chunk_id text",
    query_id=pa.string(),
    variant=pa.int32(),
    rank=pa.int32(),
    score=pa.float64(),
    **_FOUND,
    stage=pa.string(),
)
"""The results of one stage of retrieval (``vector``, ``words``, ``fused``, ``reranked``), best first from rank 1.
``text`` is null if it is the slice at the place. Retrieval systems may return texts without a place."""

PASSAGES = schema_of(
    "doc_id start end ordinal chunk_id text tokens hit_ranks",
    query_id=pa.string(),
    rank=pa.int32(),
    **_FOUND,
    tokens=pa.int32(),
    hit_ranks=pa.list_(pa.int32()),
)
"""What a model would be given, best first: this is what is scored, budgeted and displayed. ``text`` is null if it is
the slice at the place, ``tokens`` if they were not counted, ``hit_ranks`` if the passage is the hit of the same rank.
With ``hit_ranks``, passages of a query that overlap or touch are merged, at the best rank."""

TRUTH = schema_of(
    "doc_id start end text chunk_id origin",
    query_id=pa.string(),
    group=pa.int32(),
    member=pa.int32(),
    doc_id=pa.string(),
    start=pa.int64(),
    end=pa.int64(),
    text=pa.large_string(),
    chunk_id=pa.string(),
    origin=pa.string(),
)
"""The evidence for the queries. A group is a piece of evidence and is covered by its best covered member; it has
several members if the same evidence occurs in several places. ``origin`` says where a member comes from."""

SCORES = schema_of(query_id=pa.string(), metric=pa.string(), cut=pa.string(), size=pa.int32(), value=pa.float64())
"""The cut is "hits" or "tokens" and a size, or "min" or "all" and 0; see ``rag_eval.metrics.metric.Cut``."""

PLACE = ("doc_id", "start", "end")
"""The columns that hits, passages and truth need at token level."""

WORDS = schema_of("word", word=pa.string(), texts=pa.int64(), occurrences=pa.int64())
"""The words of a corpus: the number of texts that contain each, and of its occurrences. The first row, with a null
word, has the number of all texts and of all words."""


def embeddings_schema(dimension: int) -> pa.Schema:
    """Return the schema of vectors by the SHA-256 of their text."""
    item = pa.field("item", pa.float32(), nullable=False)
    return schema_of(text_sha256=pa.string(), vector=pa.list_(item, dimension))


def postings_schema(frequency: pa.DataType) -> pa.Schema:
    """Return the schema of the words of a shard: the numbers of the texts that contain each, and how often they do."""
    numbers, frequencies = (pa.large_list(pa.field("item", kind, nullable=False)) for kind in (pa.int32(), frequency))
    return schema_of(word=pa.string(), texts=numbers, frequencies=frequencies)


def vector_sums_schema(dimension: int) -> pa.Schema:
    """Return the schema of ``rag_eval.retrieval.scoring.VectorSums``, with a row for each dimension."""
    products = pa.list_(pa.field("item", pa.int64(), nullable=False), dimension)
    return schema_of(count=pa.int64(), sum=pa.int64(), products=products)


@dataclass(frozen=True, slots=True)
class TruthTables:
    """Ground truth as two tables: all queries (``QUERIES``), and the evidence for the answerable ones (``TRUTH``)."""

    queries: pa.Table
    answers: pa.Table


class PreparedQueries(NamedTuple):
    """The texts to search (``SEARCHES``), and the documents that filters allow (``ALLOWED``); None without filters."""

    searches: pa.Table
    allowed: pa.Table | None


SHOWN_ROWS = 20
"""Number of rows that a notebook displays."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table of results. A notebook displays its first rows.

    ::

        result.raw_results.scores.to_polars()
    """

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_polars(self) -> "polars.DataFrame":
        """Return the rows as a polars data frame."""
        import polars

        return polars.DataFrame(self.table)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raises ``ConfigurationError`` if pandas is not installed."""
        if find_spec("pandas") is None:
            raise ConfigurationError("pandas is not installed: install it, or use to_polars()")
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        shown = self.table.slice(0, SHOWN_ROWS)
        more = f"<p>{len(self) - shown.num_rows} more rows</p>" if len(self) > shown.num_rows else ""
        return html_table(shown.column_names, [list(row.values()) for row in shown.to_pylist()]) + more


def check_schema(table: pa.Table, schema: pa.Schema, what: str, filled: Iterable[str] = ()) -> pa.Table:
    """Return the table unchanged if it fits the schema.

    Args:
        table: The table.
        schema: The schema.
        what: The name of the table, for messages.
        filled: Columns that must not have nulls here, although the schema allows them.

    Raises:
        TableError: A column is missing, unknown or repeated, has another type, or has nulls.
    """
    expected, names = set(schema.names), set(table.column_names)
    if len(names) < table.num_columns:
        repeated = min(name for name in names if table.column_names.count(name) > 1)
        raise TableError(f"the {what} table has the column {repeated!r} more than once: keep one")
    if expected != names:
        raise TableError(
            f"the {what} table has the columns {sorted(names)}, it needs {sorted(expected)}: "
            f"missing {sorted(expected - names)}, unexpected {sorted(names - expected)}"
        )
    required = {field.name for field in schema if not field.nullable}.union(filled)
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            raise TableError(f"column {field.name!r} of the {what} table is {column.type}, it needs {field.type}")
        if column.null_count and field.name in required:
            raise TableError(f"column {field.name!r} of the {what} table has {column.null_count} empty values")
    return table


def documents_to_table(corpus: Corpus) -> pa.Table:
    """Return a table with a row for each document, in order."""
    return table_of(
        DOCUMENTS,
        [
            (doc.id, doc.content, text_sha256(doc.content), metadata_to_json(doc.metadata, f"document {doc.id!r}"))
            for doc in corpus.documents
        ],
    )


def file_digests(table: pa.Table) -> dict[str, str]:
    """Return the SHA-256 of each document's file, which is that of the text unless a loader converted the file."""
    columns = (table.column(name).to_pylist() for name in ("doc_id", "sha256", "metadata"))
    return {
        doc_id: json.loads(metadata).get(FILE_DIGEST, digest) for doc_id, digest, metadata in zip(*columns, strict=True)
    }


def documents_from_table(table: pa.Table) -> list[Document]:
    """Return the documents in row order. Raises ``TableError`` if a SHA-256 does not match or metadata is invalid."""
    rows = check_schema(table, DOCUMENTS, "documents").to_pylist()
    for row, content in zip(rows, table.column("content"), strict=True):
        if sha256(content.as_buffer()).hexdigest() != row["sha256"]:
            raise TableError(f"the content of document {row['doc_id']!r} does not match its sha256")
    return [Document(row["doc_id"], row["content"], _metadata(row, f"document {row['doc_id']!r}")) for row in rows]


def chunks_to_table(chunks: Iterable[Chunk | PositionAwareChunk]) -> pa.Table:
    """Return a table with a row for each chunk, in order, numbered in its document."""
    counts = Counter[str]()
    rows = []
    for chunk in chunks:
        start, end = (chunk.start, chunk.end) if isinstance(chunk, PositionAwareChunk) else (None, None)
        metadata = metadata_to_json(chunk.metadata, f"a chunk of {chunk.doc_id!r}")
        rows.append((chunk.id, chunk.doc_id, start, end, counts[chunk.doc_id], chunk.content, None, metadata))
        counts[chunk.doc_id] += 1
    return table_of(CHUNKS, rows)


def chunks_from_table(table: pa.Table) -> list[Any]:
    """Return the chunks in row order. Raises ``TableError`` if a place does not fit its text or metadata is invalid."""
    is_placed = check_schema(table, CHUNKS, "chunks").column("start").null_count < table.num_rows
    chunks: list[Any] = []
    for row in check_schema(table, CHUNKS, "chunks", PLACE if is_placed else ()).to_pylist():
        doc_id, start, end, content = row["doc_id"], row["start"], row["end"], row["content"]
        metadata = _metadata(row, f"a chunk of {doc_id!r}")
        if not is_placed:
            chunks.append(Chunk(row["chunk_id"], content, doc_id, metadata))
            continue
        if not 0 <= start < end or end - start != len(content):
            raise TableError(
                f"the chunks table has [{start}, {end}) of {doc_id!r} as the place of {preview(content)}, "
                f"which is {len(content)} characters long: start must be 0 or more, end as many past it"
            )
        chunks.append(PositionAwareChunk(row["chunk_id"], content, doc_id, start, end, metadata))
    return chunks


def has_places(chunks: pa.Table) -> bool:
    """Return whether chunks have places (token level) or only ordinals (chunk level)."""
    return bool(chunks.column("start").null_count == 0)


def searched_texts(chunks: pa.Table) -> pa.ChunkedArray:
    """Return the texts that are embedded and indexed: ``searched``, or the content if that is null."""
    searched, content = chunks.column("searched"), chunks.column("content")
    return content if searched.null_count == len(searched) else pc.coalesce(searched, content)


def as_searches(table: pa.Table) -> pa.Table:
    """Return searches as they are, and queries as searches for their own text in all documents."""
    if table.schema.names == SEARCHES.names:
        return check_schema(table, SEARCHES, "searches")
    columns = {name: table.column(name) for name in ("query_id", "text")}
    return table_with(SEARCHES, columns | {"variant": 0}, table.num_rows)


def as_passages(table: pa.Table) -> pa.Table:
    """Return passages as they are, and hits as passages. Raises ``TableError`` if the table is neither."""
    if table.schema.names == PASSAGES.names:
        return table
    check_schema(table, HITS, "hits")
    columns = {name: table.column(name) for name in PASSAGES.names if name in HITS.names}
    return table_with(PASSAGES, columns, table.num_rows)


def truth_to_tables(truth: Iterable[TokenLevelGroundTruth | ChunkLevelGroundTruth]) -> TruthTables:
    """Return the queries, and a row for each relevant span or chunk id and each of its alternatives."""
    queries, answers = [], []
    for item in truth:
        query: Query = item.query
        origins: Mapping[Any, str] = item.origins
        metadata = metadata_to_json(query.metadata, f"query {query.id!r}")
        queries.append((query.id, query.text, item.unanswerable, metadata))
        for group, members in enumerate(item.groups):
            for number, member in enumerate(members):
                answer: tuple[object, ...] = (None, None, None, None, member)
                if isinstance(member, CharacterSpan):
                    answer = (member.doc_id, member.start, member.end, member.text, None)
                answers.append((query.id, group, number, *answer, origins.get(member)))
    return TruthTables(table_of(QUERIES, queries), table_of(TRUTH, answers))


def truth_from_tables(tables: TruthTables, kind: type[Truth]) -> list[Truth]:
    """Return ground truth of this kind, in the order of its queries. Raises ``TableError`` on unknown queries."""
    has_spans = kind is TokenLevelGroundTruth
    check_schema(tables.answers, TRUTH, "truth", (*PLACE, "text") if has_spans else ["chunk_id"])
    answers: dict[str, tuple[list[Any], dict[Any, list[Any]], dict[Any, str]]] = {}
    for row in tables.answers.to_pylist():
        relevant, alternatives, origins = answers.setdefault(row["query_id"], ([], {}, {}))
        place = row["doc_id"], row["start"], row["end"], row["text"]
        member: Any = CharacterSpan(*place) if has_spans else row["chunk_id"]
        if row["member"] == 0 or not relevant:
            relevant.append(member)
        elif member not in alternatives.setdefault(relevant[-1], []):
            alternatives[relevant[-1]].append(member)
        if row["origin"] is not None:
            origins[member] = row["origin"]
    truth = []
    for query, row in zip(queries_from_table(tables.queries), tables.queries.to_pylist(), strict=True):
        relevant, alternatives, origins = answers.pop(query.id, ([], {}, {}))
        truth.append(kind(query, relevant, row["unanswerable"], alternatives, origins))
    if answers:
        raise TableError(f"the truth table names {len(answers)} unknown queries, first {min(answers)!r}")
    return truth


def queries_from_table(table: pa.Table) -> list[Query]:
    """Return the queries in row order."""
    return [
        Query(row["query_id"], row["text"], _metadata(row, f"query {row['query_id']!r}"))
        for row in check_schema(table, QUERIES, "queries").to_pylist()
    ]


def metadata_to_json(metadata: Mapping[str, object], where: str) -> str:
    """Return metadata as JSON. Raises ``TableError``, with ``where`` in its message, if JSON would change it."""
    if not metadata:
        return "{}"  # the common case
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, sort_keys=True, allow_nan=False)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise TableError(f"the metadata of {where} cannot be stored as JSON: {error}") from None
    if json.loads(text) != dict(metadata):
        raise TableError(
            f"the metadata of {where} would not survive JSON: {preview(repr(dict(metadata)))}; "
            "use strings as keys, and lists rather than tuples"
        )
    return text


def _metadata(row: Row, where: str) -> dict[str, object]:
    if row["metadata"] == "{}":  # the common case
        return {}
    try:
        metadata = json.loads(row["metadata"])
    except (ValueError, RecursionError) as error:
        raise TableError(f"the metadata of {where} is not JSON: {error}") from None
    if not isinstance(metadata, dict):
        raise TableError(f"the metadata of {where} is {preview(row['metadata'])}: it must be a JSON object")
    return metadata


def table_of(
    schema: pa.Schema, rows: Sequence[tuple[object, ...]], columns: Sequence[str] | None = None, **constants: object
) -> pa.Table:
    """Return rows as a table.

    ::

        table_of(CHUNKS, [("c1", "a.md", 0)], ("chunk_id", "doc_id", "ordinal"), content="", metadata="{}")

    Args:
        schema: The schema of the table.
        rows: The rows.
        columns: The columns of the rows, by default all columns of the schema.
        **constants: Values of further columns that are the same in every row. Other optional columns are null.

    Raises:
        TableError: A value does not fit its column, or a required column has nulls.
    """
    names = schema.names if columns is None else columns
    arrays: dict[str, object] = {}
    for name, values in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        field = schema.field(name)
        try:
            arrays[name] = array = pa.array(values, type=field.type)
        except (OverflowError, TypeError, ValueError) as error:  # Arrow derives its errors from these
            raise TableError(f"column {name!r} is of type {field.type}, and a value does not fit: {error}") from None
        if array.null_count and not field.nullable:
            raise TableError(f"column {name!r} needs a value in every row, but {array.null_count} rows have none")
    return table_with(schema, arrays | constants, len(rows))


def table_with(schema: pa.Schema, columns: Mapping[str, object], rows: int) -> pa.Table:
    """Return a table of Arrow or numpy arrays by column. Any other value is repeated in every row.

    Optional columns that are missing are null. Arrays that have the right type are not copied.

    Raises:
        TableError: A required column is missing.
    """
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        if isinstance(value, pa.Array | pa.ChunkedArray):
            arrays.append(value if value.type == field.type else value.cast(field.type))
        elif isinstance(value, np.ndarray):
            arrays.append(pa.array(value, field.type))
        elif value is None and field.nullable:
            arrays.append(pa.nulls(rows, field.type))
        elif value is None:
            raise TableError(f"column {field.name!r} is missing and needs a value in every row")
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.Table.from_arrays(arrays, schema=schema)
