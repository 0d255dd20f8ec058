"""Vectors with their places in a LanceDB table, searched exactly.

Vectors are scaled to length 1 and compared by dot product, which is the cosine; LanceDB's own cosine search leaves
out zero vectors without a word, the dot product keeps them, at score 0.
"""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from rag_eval.embedding.base import Vectors
from rag_eval.errors import TableError
from rag_eval.tables import CHUNKS, check_schema

if TYPE_CHECKING:
    from lancedb.query import LanceVectorQueryBuilder

TABLE = "chunks"
PLACES = ["chunk_id", "doc_id", "start", "end"]


class LanceDBVectorStore:
    """One table of chunks and vectors below a folder."""

    def __init__(self, folder: Path) -> None:
        """Use the LanceDB database in ``folder``, which need not exist yet."""
        import lancedb

        self._database = lancedb.connect(folder)

    @property
    def name(self) -> str:
        """The store."""
        return "lancedb"

    def add_table(self, chunks: pa.Table, vectors: Vectors) -> None:
        """Keep the chunks with their vectors, row by row; raises ``TableError`` when their numbers differ."""
        check_schema(chunks, CHUNKS, "chunks")
        if len(vectors) != chunks.num_rows:
            raise TableError(f"there are {chunks.num_rows} chunks and {len(vectors)} vectors: give one for each")
        flat = pa.array(unit_vectors(vectors).reshape(-1))
        rows = chunks.select(PLACES).append_column("vector", pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))
        # LanceDB gives equal scores in row order: sorted rows make that the order of document and start.
        self._database.create_table(TABLE, rows.sort_by([("doc_id", "ascending"), ("start", "ascending")]))

    def search_many(self, queries: Vectors, k: int) -> pa.Table:
        """The ``k`` best chunks of each query: query_index, rank (from 1), score (cosine) and place, ties by place."""
        table = self._database.open_table(TABLE)
        found = (
            cast("LanceVectorQueryBuilder", table.search(unit_vectors(queries), vector_column_name="vector"))
            .distance_type("dot")
            .bypass_vector_index()
            .limit(k)
            .select([*PLACES, "_distance"])
            .to_arrow()
        )
        if "query_index" not in found.column_names:  # LanceDB leaves it out for a single query
            found = found.append_column("query_index", pa.array(np.zeros(found.num_rows, np.int32)))
        score = 1.0 - found.column("_distance").to_numpy()
        found = found.drop_columns(["_distance"]).append_column("score", pa.array(score.astype(np.float32)))
        found = found.sort_by(
            [("query_index", "ascending"), ("score", "descending"), ("doc_id", "ascending"), ("start", "ascending")]
        )
        query = found.column("query_index").to_numpy()
        rank = np.arange(len(query)) - np.searchsorted(query, query) + 1
        return found.append_column("rank", pa.array(rank.astype(np.int32)))


def unit_vectors(vectors: Vectors) -> Vectors:
    """The vectors scaled to length 1; zero vectors stay zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(length == 0, 1, length), np.float32)
