"""Build, merge, fuse, select and rerank tables of hits."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.fusion import Found, Fusion
from rag_eval.retrieval.retriever import Hit, Reranker, place_of, rerank
from rag_eval.retrieval.scoring import Renumbered, Scoring
from rag_eval.retrieval.selection import Selection, selected
from rag_eval.retrieval.systems import SystemAnswer
from rag_eval.stores.rankings import Numbers, Ranking
from rag_eval.tables import HITS, PLACE, chunks_from_table, has_places, table_of, table_with
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query
from rag_eval.types.ids import EvaluationType, generate_chunk_id

if TYPE_CHECKING:
    import polars as pl

IDENTITY = ["doc_id", "start", "end", "ordinal", "chunk_id"]
"""The columns that identify the chunk of a hit."""

ROWS_AT_ONCE = 65_536

RETRIEVED = "retrieved"
"""The stage of the hits of a whole system."""


def _place_columns(chunks: Sequence[pa.Table]) -> list[str]:
    """Return the columns that match the places of hits and of these chunks."""
    return list(PLACE) if all(map(has_places, chunks)) else ["doc_id", "ordinal"]


def hits_at(stage: str, chunks: pa.Table, searches: pa.Table, ranking: Ranking) -> pa.Table:
    """Return the hits of a stage; the ranking refers to rows of ``chunks`` and of ``searches``."""
    ranked = chunks.select(IDENTITY).take(pa.array(ranking.chunks))
    columns = {name: ranked.column(name) for name in IDENTITY} | {
        **{name: searches.column(name).take(pa.array(ranking.searches)) for name in ("query_id", "variant")},
        "rank": ranking.ranks.astype(np.int32),
        "score": ranking.scores,
        "stage": stage,
    }
    return table_with(HITS, columns, ranked.num_rows)


def hits_of(hits: pa.Table, searches: pa.Table, excluded: Numbers | None = None) -> pa.Table:
    """Return the hits of these searches, without those of the excluded numbers."""
    numbers = _numbers(hits, searches)
    if excluded is None:
        return hits if numbers.null_count == 0 else hits.filter(pc.is_valid(numbers))
    return hits.filter(pc.invert(pc.is_in(numbers, pa.array(excluded, numbers.type))))


def _numbers(hits: pa.Table, searches: pa.Table) -> pa.ChunkedArray:
    """Return the number of each hit's search, by query and variant; null for other searches."""
    if not pc.any(pc.not_equal(searches.column("variant"), 0)).as_py():
        return pc.index_in(hits.column("query_id"), value_set=searches.column("query_id").combine_chunks())
    keys = [
        pc.binary_join_element_wise(table.column("query_id"), table.column("variant").cast(pa.string()), "\0")
        for table in (hits, searches)
    ]
    return pc.index_in(keys[0], value_set=keys[1].combine_chunks())


def fuse_variants(hits: pa.Table, queries: pa.Table, fusion: Fusion, depth: int) -> pa.Table:
    """Return the hits of all variants of each of these queries as one ranking."""
    hits = hits_of(hits, queries)
    column = hits.column("variant")
    rankings = [hits.filter(pc.equal(column, variant)) for variant in sorted(pc.unique(column).to_pylist())]
    return fuse_tables(rankings, queries, fusion, depth, "variants", scorings=[None] * len(rankings))


def fuse_tables(
    rankings: Sequence[pa.Table],
    searches: pa.Table,
    fusion: Fusion,
    depth: int,
    stage: str = "fused",
    chunks: Sequence[pa.Table] = (),
    scorings: Sequence[Scoring | None] = (),
) -> pa.Table:
    """Fuse tables of hits; equal scores are ordered by place. ``scorings`` refer to the rows of all ``chunks``."""
    import polars as pl

    hits = [pl.DataFrame(ranking.select(IDENTITY)) for ranking in rankings]
    places = pl.concat(hits).unique().sort([name for name in IDENTITY if name != "chunk_id"])
    found = [_ranking(*pair, searches) for pair in zip(rankings, _rows_of(hits, places), strict=True)]
    count = sum(shard.num_rows for shard in chunks)
    if chunks and scorings:
        key, rows, begin = _place_columns(chunks), np.full(len(places), -1, np.int64), 0
        numbered = places.select(key).with_row_index("place")
        for shard in chunks:
            here = numbered.join(pl.DataFrame(shard.select(key)).with_row_index("row"), on=key)
            rows[here["place"].to_numpy()] = here["row"].to_numpy().astype(np.int64) + begin
            begin += shard.num_rows
        scorings = [scoring and Renumbered(scoring, rows) for scoring in scorings]
    fused = fusion.fuse(Found(found, searches.num_rows, scorings, count), depth)
    return hits_at(stage, places.to_arrow(), searches, fused)


def rerank_table(
    hits: pa.Table, chunks: pa.Table, searches: pa.Table, reranker: Reranker, first: int | None = None
) -> pa.Table:
    """Rerank the ``first`` hits of every search. The others follow, and every score is 1 / rank."""
    found = _in_chunks(hits, chunks, searches)
    # Skip the other chunks, which are most of them.
    distinct = np.unique(found.chunks)
    taken: Sequence[Any] = chunks_from_table(chunks.take(pa.array(distinct)))
    by_row = dict(zip(distinct.tolist(), taken, strict=True))
    ranking = rerank(found, reranker, searches.column("text").to_pylist(), by_row, first)
    return hits_at("reranked", chunks, searches, ranking)


def found_chunks(chunks: Sequence[pa.Table], hits: pa.Table, doc_ids: pa.Array | None = None) -> pa.Table:
    """Return the chunks of all shards that are hits or belong to these documents, ordered by place."""
    import polars as pl

    place, table = _place_columns(chunks), pa.concat_tables(chunks)
    found, wanted = [table.slice(0, 0)], pl.DataFrame(hits.select(place)).unique()
    # Join all shards at once: joining a few rows takes as long as joining many.
    for begin in range(0, table.num_rows, ROWS_AT_ONCE):
        block = table.slice(begin, ROWS_AT_ONCE)
        rows = pl.DataFrame(block.select(place)).with_row_index("row").join(wanted, on=place, how="semi")["row"]
        near = doc_ids if doc_ids is not None else pa.array([], pa.string())
        is_found = np.array(pc.is_in(block.column("doc_id"), near))
        is_found[rows.to_numpy()] = True
        found.append(block.filter(pa.array(is_found)))
    result = pa.concat_tables(found)
    return result if len(chunks) == 1 else result.take(pc.sort_indices(result.column("doc_id")))


def merge_tables(shards: Sequence[pa.Table], searches: pa.Table, depth: int) -> tuple[pa.Table, Numbers]:
    """Merge the hits of shards to ``depth`` hits per search, equal scores by place; return the shard of each, too."""
    hits = pa.concat_tables(shards)
    numbers, scores = _numbers(hits, searches).to_numpy(), hits.column("score").to_numpy()
    order = np.argsort(numbers.astype(np.min_scalar_type(searches.num_rows)), kind="stable")
    by_search = np.split(scores[order], np.cumsum(np.bincount(numbers, minlength=searches.num_rows))[:-1])
    least = [np.partition(part, len(part) - depth)[-depth] if len(part) >= depth else -np.inf for part in by_search]
    # Sort by place only hits that may be among the best: most cannot be.
    near = np.flatnonzero(scores >= np.array(least)[numbers])
    keys = [("search", "ascending"), ("score", "descending"), *((name, "ascending") for name in (*PLACE, "ordinal"))]
    columns = hits.select(["score", *PLACE, "ordinal"]).take(pa.array(near))
    sorted_rows = near[pc.sort_indices(columns.append_column("search", pa.array(numbers[near])), keys).to_numpy()]
    sorted_searches = numbers[sorted_rows].astype(np.int64)
    ranks = np.arange(1, len(sorted_searches) + 1) - np.searchsorted(sorted_searches, sorted_searches)
    rows, place = sorted_rows[ranks <= depth], hits.schema.get_field_index("rank")
    column = pa.array(ranks[ranks <= depth].astype(np.int32))
    homes = np.searchsorted(np.cumsum([shard.num_rows for shard in shards]), rows, side="right")
    return hits.take(pa.array(rows)).set_column(place, hits.schema.field(place), column), homes


def unsure(merged: pa.Table, homes: Numbers, searches: pa.Table, fetched: int) -> Iterator[tuple[int, Numbers]]:
    """Yield the shards that may have more hits to merge, with their searches: all their ``fetched`` hits are merged.

    If a hit of a shard is not merged, neither are those after it.
    """
    found = homes * searches.num_rows + _numbers(merged, searches).to_numpy()
    full = np.flatnonzero(np.bincount(found) >= fetched)
    for shard in np.unique(full // searches.num_rows).tolist():
        yield shard, full[full // searches.num_rows == shard] % searches.num_rows


def select_table(hits: pa.Table, chunks: pa.Table, searches: pa.Table, selection: Selection) -> pa.Table:
    """Return the hits that a selection keeps, with their scores."""
    texts = chunks.column("content")
    found = _in_chunks(hits, chunks, searches)
    kept = selected(selection, found, searches.num_rows, lambda chunk: texts[chunk].as_py())
    return hits_at("selected", chunks, searches, kept)


def _in_chunks(hits: pa.Table, chunks: pa.Table, searches: pa.Table) -> Ranking:
    """Return the hits by the rows of their chunks and searches."""
    import polars as pl

    place = _place_columns([chunks])
    (rows,) = _rows_of([pl.DataFrame(hits.select(place))], pl.DataFrame(chunks.select(place)))
    return _ranking(hits, rows, searches)


def _rows_of(hits: Sequence["pl.DataFrame"], places: "pl.DataFrame") -> list[Numbers]:
    """Return the row of each hit's place among ``places``, in polars frames of the same columns."""
    rows = places.with_row_index("row")
    return [
        frame.join(rows, on=places.columns, how="left", maintain_order="left", nulls_equal=True)["row"].to_numpy()
        for frame in hits
    ]


def _ranking(hits: pa.Table, rows: Numbers, searches: pa.Table) -> Ranking:
    return Ranking(
        _numbers(hits, searches).to_numpy().astype(np.int64), rows.astype(np.int64), hits.column("score").to_numpy()
    )


def answers_table(level: EvaluationType, query_ids: Sequence[str], found: Sequence[Sequence[SystemAnswer]]) -> pa.Table:
    """Return the answers of a whole system as hits: by place or text, or at chunk level by chunk id.

    A hit without a document is a text that is not in the corpus, or a chunk id.
    """
    rows: list[tuple[object, ...]] = []
    for query_id, answers in zip(query_ids, found, strict=True):
        for rank, answer in enumerate(answers, start=1):
            span, chunk_id = answer.span, None
            place: tuple[object, ...] = (
                (None, None, None, answer.text) if span is None else (span.doc_id, span.start, span.end, None)
            )
            if level == "chunk-level":
                is_id = answer.chunk_id is None and _CHUNK_ID.fullmatch(answer.text)
                chunk_id = answer.chunk_id or (answer.text if is_id else generate_chunk_id(answer.text))
                place = (span and span.doc_id, None, None, "" if is_id else answer.text)
            rows.append((query_id, rank, 1 / rank if answer.score is None else answer.score, chunk_id, *place))
    columns = ("query_id", "rank", "score", "chunk_id", *PLACE, "text")
    return table_of(HITS, rows, columns, variant=0, stage=RETRIEVED)


_CHUNK_ID = re.compile("chunk_[0-9a-f]{12}")


def hits_table(
    level: EvaluationType, queries: Sequence[Query], found: Sequence[Sequence[Hit[Any]]], corpus: Corpus
) -> pa.Table:
    """Return the hits of a retriever that is a whole system.

    Raises ``SpanMismatchError`` if a chunk is not the text of its document at its place, and ``ConfigurationError`` if
    its document is not in the corpus or, at chunk level, an ordinal is missing.
    """
    place: Sequence[str] = ("doc_id", "ordinal")
    if level == "token-level":
        place, documents = PLACE, corpus.by_id()
        for chunk in {place_of(hit.chunk): hit.chunk for hits in found for hit in hits}.values():
            if chunk.doc_id not in documents:
                raise ConfigurationError(
                    f"a chunk of {chunk.doc_id!r} was retrieved, but the document is not in the corpus"
                )
            documents[chunk.doc_id].check_span(chunk.to_span())
    rows = [
        (query.id, rank, hit.score, hit.chunk.id, *place_of(hit.chunk)[: len(place)])
        for query, hits in zip(queries, found, strict=True)
        for rank, hit in enumerate(hits, start=1)
    ]
    return table_of(HITS, rows, ("query_id", "rank", "score", "chunk_id", *place), variant=0, stage=RETRIEVED)
