"""The Arrow tables that carry everything between the stages: one schema each for both levels, and conversion both ways.

At token level chunks, hits, passages and truth are known by their place (``doc_id``, ``start``, ``end``), at chunk
level by ``chunk_id`` and their number within the document (``ordinal``); what a level does not have is empty.
A conversion to a table and back gives equal values. Metadata travels as JSON text; what JSON would change (a tuple, a
set, a number as a key) is refused rather than altered.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

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
    """The schema of these names and types; only the columns that ``optional`` names may be empty in a row."""
    empty = optional.split()
    return pa.schema([pa.field(name, kind, nullable=name in empty) for name, kind in fields.items()])


# Texts are large_string: one column may pass the 2 GiB that string offsets can address.
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
"""``content`` is the slice of the source, of which the id is made; ``searched`` is what is embedded and matched by
words in its stead, empty where that is the content; ``ordinal`` counts within the document from 0."""

QUERIES = schema_of(query_id=pa.string(), text=pa.string(), unanswerable=pa.bool_(), metadata=pa.string())
"""The questions as they are asked."""

SEARCHES = schema_of("filter", query_id=pa.string(), variant=pa.int32(), text=pa.string(), filter=pa.string())
"""What is really searched for: a row a query unless it is rewritten, its variants counted from 0. ``filter`` is JSON,
empty where all documents are searched: see ``rag_eval.retrieval.selection``."""

ALLOWED = schema_of(filter=pa.string(), doc_ids=pa.list_(pa.string()))
"""The documents that each filter of the searches leaves."""

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
"""What one stage of a retrieval found (``vector``, ``words``, ``fused``, ``reranked``), best first from rank 1. A
system may return a text that has no place; ``text`` is empty where it is the slice at the place."""

PASSAGES = schema_of(
    "doc_id start end ordinal chunk_id text tokens hit_ranks",
    query_id=pa.string(),
    rank=pa.int32(),
    **_FOUND,
    tokens=pa.int32(),
    hit_ranks=pa.list_(pa.int32()),
)
"""What a model would be given for each hit, best first: what is scored, budgeted and drawn. Empty are ``text`` where it
is the slice at the place, ``tokens`` where they were not counted, and ``hit_ranks`` where the passage is the hit of its
own rank. Where they are given, passages of one query that overlap or touch are one, at the rank of the best."""

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
"""What answers the queries: a group for each piece of evidence, which is covered by its best covered member. A group
has one member unless the same evidence stands in several places. ``origin`` says where a member comes from."""

SCORES = schema_of(query_id=pa.string(), metric=pa.string(), cut=pa.string(), size=pa.int32(), value=pa.float64())
"""The cut is "hits" or "tokens" with how many, or "min" or "all" with 0: see ``rag_eval.metrics.metric.Cut``."""

PLACE = ("doc_id", "start", "end")
"""What a row of token-level evaluation must have, in hits, passages and truth."""


def embeddings_schema(dimension: int) -> pa.Schema:
    """The schema of vectors by the sha256 of their text, for one dimension."""
    return schema_of(
        text_sha256=pa.string(), vector=pa.list_(pa.field("item", pa.float32(), nullable=False), dimension)
    )


def postings_schema(frequency: pa.DataType) -> pa.Schema:
    """The schema of the words of a shard's texts: which texts have a word, by number, and how often."""
    numbers, frequencies = (pa.large_list(pa.field("item", one, nullable=False)) for one in (pa.int32(), frequency))
    return schema_of(word=pa.string(), texts=numbers, frequencies=frequencies)


WORDS = schema_of("word", word=pa.string(), texts=pa.int64(), occurrences=pa.int64())
"""The words of a corpus: how many texts have each, and how often it occurs in all; the first row, which has no word,
has the number of all texts and of all words."""


def vector_sums_schema(dimension: int) -> pa.Schema:
    """The schema of sums over unit vectors, a row a dimension: see ``rag_eval.retrieval.scoring.VectorSums``."""
    products = pa.list_(pa.field("item", pa.int64(), nullable=False), dimension)
    return schema_of(count=pa.int64(), sum=pa.int64(), products=products)


@dataclass(frozen=True, slots=True)
class TruthTables:
    """Ground truth as tables: every query (``QUERIES``), and what answers the answerable ones (``TRUTH``)."""

    queries: pa.Table
    answers: pa.Table


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A table of results, as it is or as a data frame; a notebook shows its first rows."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def to_polars(self) -> "polars.DataFrame":
        """Return the rows as a polars frame."""
        import polars

        frame = polars.from_arrow(self.table)
        return frame if isinstance(frame, polars.DataFrame) else frame.to_frame()

    def to_pandas(self) -> Any:
        """Return the rows as a pandas frame; raises ``ConfigurationError`` where pandas is not installed."""
        if find_spec("pandas") is None:
            raise ConfigurationError("pandas is not installed: install it, or use to_polars()")
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        shown = self.table.slice(0, SHOWN_ROWS)
        more = f"<p>{len(self) - shown.num_rows} more rows</p>" if len(self) > shown.num_rows else ""
        return html_table(shown.column_names, [list(row.values()) for row in shown.to_pylist()]) + more


SHOWN_ROWS = 20
"""How many rows of a table a notebook shows."""


def check_schema(table: pa.Table, schema: pa.Schema, what: str, filled: Iterable[str] = ()) -> pa.Table:
    """Return the table unchanged.

    Raises ``TableError`` when a column is missing, superfluous or of another type, and when one that must have a value
    in every row, by the schema or because ``filled`` names it, is empty in some.
    """
    expected, found = set(schema.names), set(table.schema.names)
    if len(found) < table.num_columns:
        repeated = min(name for name in found if table.schema.names.count(name) > 1)
        raise TableError(f"the {what} table has the column {repeated!r} more than once: keep one")
    if expected != found:
        raise TableError(
            f"the {what} table has the columns {sorted(found)}, it needs {sorted(expected)}: "
            f"missing {sorted(expected - found)}, superfluous {sorted(found - expected)}"
        )
    needed = set(filled)
    for field in schema:
        column = table.column(field.name)
        if column.type != field.type:
            raise TableError(f"column {field.name!r} of the {what} table is {column.type}, it needs {field.type}")
        if column.null_count and (not field.nullable or field.name in needed):
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


def file_digests(table: pa.Table) -> dict[str, str]:
    """The sha256 of each document's file: that of its text, unless a loader made its text of the file."""
    columns = (table.column(name).to_pylist() for name in ("doc_id", "sha256", "metadata"))
    return {
        doc_id: json.loads(metadata).get(FILE_DIGEST, digest) for doc_id, digest, metadata in zip(*columns, strict=True)
    }


def documents_from_table(table: pa.Table) -> list[Document]:
    """The documents in row order; raises ``TableError`` on a wrong sha256, or metadata that is no JSON object."""
    rows = check_schema(table, DOCUMENTS, "documents").to_pylist()
    for row, content in zip(rows, table.column("content"), strict=True):
        if sha256(content.as_buffer()).hexdigest() != row["sha256"]:
            raise TableError(f"the content of document {row['doc_id']!r} is not the one its sha256 was taken of")
    return [Document(row["doc_id"], row["content"], _metadata(row, f"document {row['doc_id']!r}")) for row in rows]


def chunks_to_table(chunks: Iterable[Chunk | PositionAwareChunk]) -> pa.Table:
    """A row a chunk, in the given order and numbered within its document; equal texts are different rows."""
    ordinals: dict[str, int] = {}
    rows = []
    for c in chunks:
        ordinal = ordinals.get(c.doc_id, 0)
        ordinals[c.doc_id] = ordinal + 1
        start, end = (c.start, c.end) if isinstance(c, PositionAwareChunk) else (None, None)
        metadata = metadata_to_json(c.metadata, f"a chunk of {c.doc_id!r}")
        rows.append((c.id, c.doc_id, start, end, ordinal, c.content, None, metadata))
    return table_of(CHUNKS, rows)


def chunks_from_table(table: pa.Table) -> list[Any]:
    """The chunks in row order, with places where the table has them; raises ``TableError`` on one that does not fit."""
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
    """Whether chunks are known by their places (token level) or by their ordinals (chunk level)."""
    return bool(chunks.column("start").null_count == 0)


def searched_texts(chunks: pa.Table) -> pa.ChunkedArray:
    """What is embedded and matched by words: ``searched``, or the content where that is empty."""
    searched, content = chunks.column("searched"), chunks.column("content")
    return content if searched.null_count == len(searched) else pc.coalesce(searched, content)


def as_searches(table: pa.Table) -> pa.Table:
    """The searches; of a table of queries one for each: its own text, in all documents."""
    if table.schema.names == SEARCHES.names:
        return check_schema(table, SEARCHES, "searches")
    columns = {name: table.column(name) for name in ("query_id", "text")}
    return table_with(SEARCHES, columns | {"variant": 0}, table.num_rows)


def as_passages(table: pa.Table) -> pa.Table:
    """The passages; of a table of hits the hits themselves. Raises ``TableError`` when it is neither."""
    if table.schema.names == PASSAGES.names:
        return table
    check_schema(table, HITS, "hits")
    columns = {name: table.column(name) for name in PASSAGES.names if name in HITS.names}
    return table_with(PASSAGES, columns, table.num_rows)


def truth_to_tables(truth: Iterable[TokenLevelGroundTruth | ChunkLevelGroundTruth]) -> TruthTables:
    """The queries and, beside them, a row for each relevant span or chunk id and each of its alternatives."""
    queries, answers = [], []
    for g in truth:
        metadata = metadata_to_json(g.query.metadata, f"query {g.query.id!r}")
        queries.append((g.query.id, g.query.text, g.unanswerable, metadata))
        origins: Mapping[Any, str] = g.origins
        for group, members in enumerate(g.groups):
            for number, one in enumerate(members):
                answer: tuple[object, ...] = (None, None, None, None, one)
                if isinstance(one, CharacterSpan):
                    answer = (one.doc_id, one.start, one.end, one.text, None)
                answers.append((g.query.id, group, number, *answer, origins.get(one)))
    return TruthTables(table_of(QUERIES, queries), table_of(TRUTH, answers))


def truth_from_tables(tables: TruthTables, kind: type[Truth]) -> list[Truth]:
    """The ground truth of this kind in the order of its queries; raises ``TableError`` on answers of an unknown one."""
    has_spans = kind is TokenLevelGroundTruth
    check_schema(tables.answers, TRUTH, "truth", (*PLACE, "text") if has_spans else ["chunk_id"])
    answers: dict[str, tuple[list[Any], dict[Any, list[Any]], dict[Any, str]]] = {}
    for row in tables.answers.to_pylist():
        relevant, alternatives, origins = answers.setdefault(row["query_id"], ([], {}, {}))
        place = row["doc_id"], row["start"], row["end"], row["text"]
        one: Any = CharacterSpan(*place) if has_spans else row["chunk_id"]
        if row["member"] == 0 or not relevant:
            relevant.append(one)
        elif one not in alternatives.setdefault(relevant[-1], []):
            alternatives[relevant[-1]].append(one)
        if row["origin"] is not None:
            origins[one] = row["origin"]
    truth = []
    for query, row in zip(queries_from_table(tables.queries), tables.queries.to_pylist(), strict=True):
        relevant, alternatives, origins = answers.pop(query.id, ([], {}, {}))
        truth.append(kind(query, relevant, row["unanswerable"], alternatives, origins))
    if answers:
        raise TableError(f"the truth table names {len(answers)} queries that are not there, first {min(answers)!r}")
    return truth


def queries_from_table(table: pa.Table) -> list[Query]:
    """The queries in row order."""
    return [
        Query(row["query_id"], row["text"], _metadata(row, f"query {row['query_id']!r}"))
        for row in check_schema(table, QUERIES, "queries").to_pylist()
    ]


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
    if row["metadata"] == "{}":  # what most chunks have
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
    """The rows as a table, each with the values of ``columns``, or else of all columns of the schema.

    ``constants`` stand in every row; an optional column that is not named is empty. Raises ``TableError`` on a value
    that its column cannot hold.
    """
    names = schema.names if columns is None else columns
    given: dict[str, object] = {}
    for name, values in zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True):
        field = schema.field(name)
        try:
            given[name] = array = pa.array(values, type=field.type)
        # Arrow's own errors are of these kinds too.
        except (OverflowError, TypeError, ValueError) as error:
            raise TableError(f"column {name!r} is of {field.type}, a value does not fit: {error}") from None
        if array.null_count and not field.nullable:
            raise TableError(f"column {name!r} needs a value in every row, {array.null_count} rows have none")
    return table_with(schema, given | constants, len(rows))


def table_with(schema: pa.Schema, columns: Mapping[str, object], rows: int) -> pa.Table:
    """A table of Arrow or numpy columns by name; any other value stands in every row.

    An optional column that is left out is empty, columns that fit are not copied. Raises ``TableError`` when another
    column is left out.
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
            raise TableError(f"column {field.name!r} needs a value in every row, it was left out")
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.Table.from_arrays(arrays, schema=schema)
