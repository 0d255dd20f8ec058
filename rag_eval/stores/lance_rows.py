"""Chunks as rows of a LanceDB table, both ways; ``start`` and ``end``, or else ``ordinal``, are null."""

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rag_eval.stores.base import AnyChunk
from rag_eval.stores.places import Places
from rag_eval.tables import CHUNKS, metadata_to_json
from rag_eval.types.chunk import Chunk, PositionAwareChunk

ROWS = pa.schema([*CHUNKS, pa.field("ordinal", pa.int64())])
ROWS = pa.schema([field.with_nullable(field.name in ("start", "end", "ordinal")) for field in ROWS])


def rows_of_chunks(chunks: Sequence[AnyChunk], places: Places) -> pa.Table:
    """A row a chunk; ``places`` ends with theirs. Raises ``TableError`` on metadata that JSON would change."""
    starts, ends = places.starts[-len(chunks) :], places.ends[-len(chunks) :]
    columns = {
        "chunk_id": [chunk.id for chunk in chunks],
        "doc_id": [chunk.doc_id for chunk in chunks],
        "content": [chunk.content for chunk in chunks],
        "metadata": [metadata_to_json(chunk.metadata, f"a chunk of {chunk.doc_id!r}") for chunk in chunks],
    }
    columns |= {"start": starts, "end": ends} if places.placed else {"ordinal": starts}
    return _rows({name: pa.array(values, ROWS.field(name).type) for name, values in columns.items()}, len(chunks))


def rows_of_table(chunks: pa.Table) -> pa.Table:
    """The rows of a chunks table, with places or with ordinals."""
    return _rows({name: chunks.column(name) for name in chunks.column_names}, chunks.num_rows)


def places_of_rows(rows: pa.Table) -> Places:
    """The places of rows; raises ``TableError`` when two are the same."""
    return with_table(Places(), rows, rows.column("ordinal").null_count > 0) if rows.num_rows else Places()


def with_table(places: Places, chunks: pa.Table, placed: bool) -> Places:
    """The places and those of a table; raises ``TableError`` when one is there already."""
    doc_ids = chunks.column("doc_id").combine_chunks()
    if not placed:
        ordinals = chunks.column("ordinal").to_numpy()
        return places.with_rows(doc_ids, ordinals, np.zeros_like(ordinals), placed)
    return places.with_rows(doc_ids, chunks.column("start").to_numpy(), chunks.column("end").to_numpy(), placed)


def chunks_from_rows(rows: pa.Table) -> list[AnyChunk]:
    """The chunks in row order."""
    chunks: list[AnyChunk] = []
    for row in rows.to_pylist():
        metadata = json.loads(row["metadata"])
        if row["start"] is None:
            chunks.append(Chunk(row["chunk_id"], row["content"], row["doc_id"], metadata))
        else:
            place = row["start"], row["end"]
            chunks.append(PositionAwareChunk(row["chunk_id"], row["content"], row["doc_id"], *place, metadata))
    return chunks


def _rows(columns: dict[str, pa.Array], length: int) -> pa.Table:
    return pa.Table.from_arrays(
        [columns[field.name] if field.name in columns else pa.nulls(length, field.type) for field in ROWS], schema=ROWS
    )
