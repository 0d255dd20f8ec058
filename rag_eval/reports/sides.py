"""The chunks, hits and scores of configurations as numbers, to be laid over the text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_eval.errors import TableError
from rag_eval.metrics.formulas import Counts, Values
from rag_eval.metrics.table import score_name
from rag_eval.reports.places import Places
from rag_eval.reports.units import numbers_of


@dataclass(frozen=True)
class Side:
    """A configuration whose questions can be looked at: its tables, the chunks by digest, since many share them."""

    name: str
    hits: pa.Table
    chunks: pa.Table
    chunks_digest: str
    scores: pa.Table


@dataclass(frozen=True)
class ShownChunks:
    """The chunks of a table that the page shows, by document and start, and where each row of the table went."""

    places: Places
    went_to: Counts

    @classmethod
    def of(cls, chunks: Places, used: Counts, texts: Places) -> "ShownChunks":
        """The chunks that are used, by row, and those that touch the texts."""
        rows = np.union1d(used, chunks.touching(texts))
        rows = rows[np.lexsort((chunks.end[rows], chunks.start[rows], chunks.document[rows]))]
        went_to = np.full(len(chunks), -1, dtype=np.int64)
        went_to[rows] = np.arange(len(rows))
        return cls(chunks.taken(rows), went_to)

    def hits(self, rows: Counts) -> Counts:
        """Hits by row of the table as hits by place in the page; -1 stays."""
        return np.where(rows < 0, -1, self.went_to[rows])


def hit_rows(side: Side, query_ids: pa.Array, depth: int) -> Counts:
    """For each query, one a row, the chunk rows of its first ``depth`` hits; -1 where there are fewer.

    Hits of other queries are left out. Raises ``TableError`` on a hit that is not one of the chunks.
    """
    import polars as pl  # here, because it takes long to import

    place = ["doc_id", "start", "end"] if "start" in side.chunks.column_names else ["doc_id", "ordinal"]
    chunks = pl.DataFrame(side.chunks.select(place)).with_row_index("chunk")
    first = side.hits.filter(pc.field("rank") <= depth)
    found = pl.DataFrame(first.select(place)).join(chunks, on=place, how="left", maintain_order="left")["chunk"]
    if found.null_count():
        raise TableError(f"hits of {side.name!r} are not among its chunks: run again to make both anew")
    query = numbers_of(first.column("query_id"), query_ids)
    known = np.flatnonzero(query >= 0)
    rows = np.full((len(query_ids), depth), -1, dtype=np.int64)
    rows[query[known], first.column("rank").to_numpy()[known] - 1] = found.to_numpy()[known]
    return rows


def score_columns(side: Side, query_ids: pa.Array, names: Sequence[str]) -> NDArray[np.float32]:
    """For each metric name, one a row, the score of each query; not a number where it has none."""
    metric = side.scores.column("metric").combine_chunks().dictionary_encode()
    labels, code = metric.dictionary.to_pylist(), metric.indices.to_numpy()
    k = side.scores.column("k").to_numpy()
    query = numbers_of(side.scores.column("query_id"), query_ids)
    value: Values = side.scores.column("value").to_numpy()
    columns = np.full((len(names), len(query_ids)), np.nan, dtype=np.float32)
    # Metric and cut in one number: sorting pairs takes ten times as long.
    pair = code.astype(np.int64) << 32 | k
    for both in np.unique(pair).tolist():
        name = score_name(labels[both >> 32], both & 0xFFFFFFFF)
        if name in names:
            rows = np.flatnonzero((pair == both) & (query >= 0))
            columns[names.index(name), query[rows]] = value[rows]
    return columns
