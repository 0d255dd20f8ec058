"""What a retriever found, as tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.fusion import RANK_CONSTANT
from rag_eval.retrieval.retriever import Hit, Reranker, place_of, reranked
from rag_eval.tables import HITS, chunks_from_table, has_places, plain_chunks_from_table, table_of, table_with
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import Query

Numbers = NDArray[np.int64]

IDENTITY = ["doc_id", "start", "end", "ordinal", "chunk_id"]
"""The columns by which a hit is the chunk that it is."""

RETRIEVED = "retrieved"
"""The stage of hits whose retriever does not tell its stages."""


def hits_at(
    stage: str,
    chunks: pa.Table,
    queries: pa.Table,
    query: Numbers,
    rank: Numbers,
    number: Numbers,
    score: NDArray[np.floating],
) -> pa.Table:
    """Hits of a stage from row numbers: of the query, of the chunk, and the rank from 0."""
    found = chunks.select(IDENTITY).take(pa.array(number))
    columns = {name: found.column(name) for name in IDENTITY} | {
        "query_id": queries.column("query_id").take(pa.array(query)),
        "variant": 0,
        "rank": (rank + 1).astype(np.int32),
        "score": score.astype(np.float64),
        "stage": stage,
    }
    return table_with(HITS, columns, len(number))


def fuse_tables(rankings: Sequence[pa.Table], queries: pa.Table, depth: int) -> pa.Table:
    """Several rankings as one, by reciprocal rank fusion; equal scores by place."""
    import polars as pl

    order = [name for name in IDENTITY if name != "chunk_id"]
    asked = pl.DataFrame({"query_id": queries.column("query_id").to_numpy()}).with_row_index("asked")
    scored = pl.concat([pl.DataFrame(ranking) for ranking in rankings]).with_columns(
        (1.0 / (RANK_CONSTANT + pl.col("rank"))).alias("score")
    )
    fused = (
        scored.group_by(["query_id", *IDENTITY], maintain_order=True)
        .agg(pl.col("score").sum())
        .join(asked, on="query_id")
        .sort(["asked", "score", *order], descending=[False, True] + [False] * len(order))
        .with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over("query_id").alias("rank"))
        .filter(pl.col("rank") <= depth)
    )
    found = fused.select(["query_id", "rank", "score", *IDENTITY]).to_arrow()
    columns = {name: found.column(name) for name in found.column_names}
    return table_with(HITS, columns | {"variant": 0, "stage": "fused"}, found.num_rows)


def rerank_table(hits: pa.Table, chunks: pa.Table, queries: pa.Table, reranker: Reranker, k: int) -> pa.Table:
    """The k best hits of every query in the reranker's order, with 1 / rank as their score."""
    rows, found = _candidates(hits, chunks)
    numbers = {place_of(chunk): number for number, chunk in found.items()}
    by_query: dict[str, list[int]] = {}
    for asked_id, row in zip(hits.column("query_id").to_pylist(), rows, strict=True):
        by_query.setdefault(asked_id, []).append(row)
    query: list[int] = []
    rank: list[int] = []
    number: list[int] = []
    asked_texts = zip(queries.column("query_id").to_pylist(), queries.column("text").to_pylist(), strict=True)
    for place, (asked_id, text) in enumerate(asked_texts):
        candidates = [found[row] for row in by_query.get(asked_id, [])]
        kept = reranked(reranker, text, candidates, k) if candidates else []
        query += [place] * len(kept)
        rank += range(len(kept))
        number += [numbers[place_of(chunk)] for chunk in kept]
    ranks = np.array(rank, np.int64)
    numbers_kept = np.array(number, np.int64)
    return hits_at("reranked", chunks, queries, np.array(query, np.int64), ranks, numbers_kept, 1 / (ranks + 1))


def _candidates(hits: pa.Table, chunks: pa.Table) -> tuple[list[int], dict[int, Any]]:
    """The row of each hit's chunk, and the chunks of these rows; the others, which are most, are left alone."""
    import polars as pl

    placed = has_places(chunks)
    place = ["doc_id", "start", "end"] if placed else ["doc_id", "ordinal"]
    rows = pl.DataFrame(chunks.select(place)).with_row_index("row")
    asked = pl.DataFrame(hits.select(place)).with_row_index("hit")
    of_hits = asked.join(rows, on=place).sort("hit").get_column("row").to_numpy()
    distinct = np.unique(of_hits)
    taken = chunks.take(pa.array(distinct))
    found: Sequence[Any] = chunks_from_table(taken) if placed else plain_chunks_from_table(taken)
    return of_hits.tolist(), dict(zip(distinct.tolist(), found, strict=True))


def span_hits_table(
    queries: Sequence[Query], found: Sequence[Sequence[Hit[PositionAwareChunk]]], corpus: Corpus
) -> pa.Table:
    """The hits of token-level retrieval.

    Raises ``SpanMismatchError`` when a chunk is not what its document has at its place, and ``ConfigurationError``
    when its document is not in the corpus.
    """
    documents = corpus.by_id()
    for chunk in {place_of(hit.chunk): hit.chunk for hits in found for hit in hits}.values():
        if chunk.doc_id not in documents:
            raise ConfigurationError(f"a chunk of {chunk.doc_id!r} was retrieved, which is not in the corpus")
        documents[chunk.doc_id].check_span(chunk.to_span())
    rows = [
        (query.id, rank, hit.score, hit.chunk.doc_id, hit.chunk.start, hit.chunk.end, hit.chunk.id)
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    columns = ("query_id", "rank", "score", "doc_id", "start", "end", "chunk_id")
    return table_of(HITS, rows, columns, variant=0, stage=RETRIEVED)


def chunk_hits_table(queries: Sequence[Query], found: Sequence[Sequence[Hit[Chunk]]]) -> pa.Table:
    """The hits of chunk-level retrieval; raises ``ConfigurationError`` when an ordinal is missing."""
    rows = [
        (query.id, rank, hit.score, hit.chunk.doc_id, place_of(hit.chunk)[1], hit.chunk.id)
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    columns = ("query_id", "rank", "score", "doc_id", "ordinal", "chunk_id")
    return table_of(HITS, rows, columns, variant=0, stage=RETRIEVED)
