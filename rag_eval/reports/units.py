"""What the report shows text of: documents at token level; at chunk level, where chunks have no place, the chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.metrics.formulas import Counts
from rag_eval.reports.places import Places


@dataclass(frozen=True)
class Units:
    """Texts by number: what identifies them, what they are called, and their content."""

    ids: pa.Array
    titles: list[str]
    contents: pa.ChunkedArray

    @cached_property
    def lengths(self) -> Counts:
        """The characters of each."""
        lengths: Counts = pc.utf8_length(self.contents).to_numpy().astype(np.int64)
        return lengths

    def places(self, rows: pa.Table) -> Places:
        """The places of chunks or truth; a chunk without a place is all of its own text."""
        if "start" in rows.column_names:
            start, end = (rows.column(name).to_numpy() for name in ("start", "end"))
            return Places(numbers_of(rows.column("doc_id"), self.ids), start, end)
        number = numbers_of(rows.column("chunk_id"), self.ids)
        return Places(number, np.zeros_like(number), self.lengths[number])


def document_units(documents: pa.Table) -> Units:
    """The documents."""
    ids = documents.column("doc_id").combine_chunks()
    return Units(ids, ids.to_pylist(), documents.column("content"))


def chunk_units(chunks: Sequence[pa.Table]) -> Units:
    """The chunks, those of the same text once; where one comes from is the place of its first copy."""
    together = pa.concat_tables(chunks)
    ids = together.column("chunk_id").combine_chunks()
    distinct = pc.unique(ids)
    firsts = together.take(pc.index_in(distinct, value_set=ids))
    doc_ids, ordinals = (firsts.column(name).to_pylist() for name in ("doc_id", "ordinal"))
    titles = [f"{doc_id}, chunk {ordinal + 1}" for doc_id, ordinal in zip(doc_ids, ordinals, strict=True)]
    return Units(distinct, titles, firsts.column("content"))


def numbers_of(ids: pa.ChunkedArray, known: pa.Array) -> Counts:
    """The place of each id among the known ones; -1 where it is not one of them."""
    numbers: Counts = pc.fill_null(pc.index_in(ids, value_set=known), -1).to_numpy().astype(np.int64)
    return numbers
