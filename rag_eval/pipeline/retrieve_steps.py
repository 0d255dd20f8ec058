"""The steps that combine the hits of the retrievers of a configuration, and that ask a whole system.

``retrieve`` merges shards, fuses rankings, selects, reranks and returns passages, as the configuration says.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.config.models import Configuration
from rag_eval.embedding.embedder import Embedder, Vectors, embed_queries
from rag_eval.parts import label
from rag_eval.pipeline.caches import CachedReranker, cached_embedder, cached_reranker, spent
from rag_eval.pipeline.document_steps import StoredDocuments
from rag_eval.pipeline.hits import (
    answers_table,
    found_chunks,
    fuse_tables,
    fuse_variants,
    hits_of,
    hits_table,
    merge_tables,
    rerank_table,
    select_table,
    unsure,
)
from rag_eval.pipeline.references import Effort, HitsRef
from rag_eval.pipeline.search_steps import ChunkVectors, Index, fallback_count, likely_hits, nearest, timed, word_index
from rag_eval.pipeline.step import Shards, step
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.bm25 import WordScoring
from rag_eval.retrieval.fusion import Fusion
from rag_eval.retrieval.passages import Passages, Place
from rag_eval.retrieval.retriever import Reranker, Retriever, checked_hits
from rag_eval.retrieval.scoring import Scoring, VectorScoring, VectorSums
from rag_eval.retrieval.searching import HybridSearch, SingleSearch, VectorSearch, WordSearch
from rag_eval.retrieval.selection import Selection
from rag_eval.retrieval.systems import AnswerReader, System
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.stores.rankings import Numbers
from rag_eval.tables import (
    PASSAGES,
    PLACE,
    as_searches,
    queries_from_table,
    table_with,
)
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ids import EvaluationType


class Retrieved(NamedTuple):
    """The hits by the stage of the retrieval, and the passages if they are more than the hits."""

    stages: dict[str, pa.Table]
    passages: pa.Table | None


def write_hits(workspace: Workspace, retrieved: Retrieved) -> HitsRef:
    """Write hits and passages, and return their reference."""
    stages = {name: workspace.write_table("hits", hits) for name, hits in retrieved.stages.items()}
    passages = None if retrieved.passages is None else workspace.write_table("passages", retrieved.passages)
    return HitsRef(stages=stages, passages=passages, unplaced=unplaced(_last(retrieved.stages)))


def unplaced(hits: pa.Table) -> int:
    """Count the hits that are a text without a place in the documents; one without a text is the id of a chunk."""
    has_text = pc.fill_null(pc.not_equal(hits.column("text"), ""), False)
    return pc.sum(pc.and_(pc.is_null(hits.column("doc_id")), has_text)).as_py() or 0


@step(version=2, write=write_hits, packages=("tiktoken",))  # to count the tokens of limits
def retrieve(
    settings: Configuration,
    found: Sequence[Shards],
    indexes: Sequence[Index],
    queries: pa.Table,
    searches: pa.Table,
    allowed: pa.Table | None,
    documents: Shards,
    depth: int,
    candidates: int,
    workspace: Workspace | None = None,
) -> tuple[Retrieved, Effort]:
    """Combine the hits of the retrievers: merge shards, fuse, select, rerank, and return passages.

    Args:
        settings: The parts of the configuration.
        found: The hits of each retriever, with a table for each part of its index.
        indexes: The index of each retriever.
        queries: The queries of the ground truth.
        searches: The prepared queries.
        allowed: The documents that filters allow.
        documents: All documents.
        depth: How many hits were fetched.
        candidates: How many of the first hits are reranked, unless the selection has a ``fetch_k``.
        workspace: Where vectors and rankings are cached; None in memory.
    """
    asked_queries, stages, efforts = as_searches(queries), dict[str, pa.Table](), list[Effort]()

    def keep(name: str, made: tuple[pa.Table, Effort]) -> None:
        stages[_unused(name, stages)] = made[0]
        efforts.append(made[1])

    for retriever, tables, index in zip(settings.searches, found, indexes, strict=True):
        name = "vector" if isinstance(retriever, VectorSearch) else "words"
        name = name if isinstance(retriever, VectorSearch | WordSearch) else label(retriever)
        if len(tables) == 1:
            stages[_unused(name, stages)] = tables[0]
        else:
            keep(name, _merged(settings, tables, index, searches, depth, allowed, workspace))
    if isinstance(settings.retrieval, HybridSearch):
        fusion, tables = settings.retrieval.fusion, list(stages.values())
        keep("fused", _fused(settings, fusion, tables, indexes, searches, depth, workspace))
    if settings.queries is not None and settings.queries.fusion is not None:
        keep("variants", _one_ranking(_last(stages), asked_queries, depth, settings.queries.fusion, workspace))
    if settings.selection is not None and settings.selection.cuts:
        keep("selected", _selected(_last(stages), indexes[0]["chunks"], asked_queries, settings.selection, workspace))
    if settings.reranker is not None:
        chunks = indexes[0]["chunks"]
        if settings.selection is not None and settings.selection.fetch_k is not None:
            candidates = settings.selection.fetch_k
        keep("reranked", _reranked(_last(stages), chunks, asked_queries, settings.reranker, candidates, workspace))
    passages = None
    if settings.returns is not None:
        passages, effort = _returned(_last(stages), indexes[0]["chunks"], documents, settings.returns)
        efforts.append(effort)
    count = queries.num_rows
    total = Effort.total_of([Effort.of(0, "queries"), *efforts])
    fresh = min([count, *(effort.fresh for effort in efforts if effort.unit == "answers")])
    return Retrieved(stages, passages), total.model_copy(update={"fresh": fresh, "total": count})


def _last(stages: Mapping[str, pa.Table]) -> pa.Table:
    return list(stages.values())[-1]


def _unused(name: str, used: Mapping[str, object]) -> str:
    numbered = (f"{name} {number}" for number in range(2, len(used) + 3))
    return next(stage for stage in [name, *numbered] if stage not in used)


def _merged(
    settings: Configuration,
    hits: Shards,
    index: Index,
    searches: pa.Table,
    depth: int,
    allowed: pa.Table | None,
    workspace: Workspace | None,
) -> tuple[pa.Table, Effort]:
    """Merge the nearest chunks of all shards; search a shard again that may have more."""
    fetched, shards = likely_hits(depth, len(hits)), list(hits)
    used = cached_embedder(workspace, settings.embedder)
    embed_queries(used, searches.column("text").to_pylist())

    def merged() -> tuple[tuple[pa.Table, Numbers], Effort]:
        return timed(searches, lambda queries: merge_tables(shards, queries, depth))

    best, effort = merged()
    efforts = [effort]
    for shard, rows in unsure(*best, searches, fetched) if fetched < depth else ():
        again = searches.take(pa.array(rows))
        part = {name: [tables[shard]] for name, tables in index.items() if name in ("chunks", "vectors")}
        part |= {"index": index["index"][shard]} if index.get("index") else {}
        deeper, more = nearest(part, again, settings.embedder, settings.store, depth, allowed, workspace)
        shards[shard] = pa.concat_tables([hits_of(shards[shard], searches, rows), deeper])
        efforts.append(more)
    if efforts[1:]:
        best, more = merged()
        efforts.append(more)
    seconds = round(sum(effort.query_seconds for effort in efforts), 6)
    return best[0], effort.model_copy(update={"query_seconds": seconds, "tokens": spent(used)["tokens"]})


def _fused(
    settings: Configuration,
    fusion: Fusion,
    rankings: Shards,
    indexes: Sequence[Index],
    searches: pa.Table,
    depth: int,
    workspace: Workspace | None,
) -> tuple[pa.Table, Effort]:
    """Fuse rankings; a fusion that reads scores gets those of every chunk that any retriever found."""
    chunks = indexes[0]["chunks"]
    scorings: list[Scoring | None] = []
    if fusion.reads_scores:
        texts = searches.column("text").to_pylist()
        pairs = zip(settings.searches, indexes, strict=True)
        scorings = [_scoring(retriever, index, texts, settings.embedder, workspace) for retriever, index in pairs]
    return timed(
        searches,
        lambda queries: fuse_tables(
            [hits_of(ranking, queries) for ranking in rankings], queries, fusion, depth, "fused", chunks, scorings
        ),
        warm_up=workspace is not None,
    )


def _scoring(
    retriever: SingleSearch, index: Index, texts: Sequence[str], embedder: Embedder | None, workspace: Workspace | None
) -> Scoring | None:
    if isinstance(retriever, WordSearch):
        return WordScoring(word_index(retriever, index, texts), texts)
    if not isinstance(retriever, VectorSearch):
        return None
    queries = unit_vectors(embed_queries(cached_embedder(workspace, embedder), texts), "query vectors")
    vectors = ChunkVectors(index["chunks"], index["vectors"])

    def units(numbers: Numbers) -> Vectors:
        return unit_vectors(vectors.of(numbers), "embeddings")

    count = sum(shard.num_rows for shard in index["chunks"])
    return VectorScoring(queries, units, VectorSums.from_tables(index["sums"]), count)


def _one_ranking(
    hits: pa.Table, queries: pa.Table, depth: int, fusion: Fusion, workspace: Workspace | None
) -> tuple[pa.Table, Effort]:
    """Fuse the hits of all variants of each query by their ranks."""
    count = pc.max(hits.column("rank")).as_py() or depth
    return timed(queries, lambda batch: fuse_variants(hits, batch, fusion, count), warm_up=workspace is not None)


def _selected(
    hits: pa.Table, chunks: Shards, queries: pa.Table, selection: Selection, workspace: Workspace | None
) -> tuple[pa.Table, Effort]:
    """Keep the hits that reach the threshold and do not repeat a better hit."""
    table = found_chunks(chunks, hits)
    found, effort = timed(
        queries,
        lambda batch: select_table(hits_of(hits, batch), table, batch, selection),
        warm_up=workspace is not None,
    )
    had, left = (len(pc.unique(table.column("query_id"))) for table in (hits, found))
    fallback = fallback_count("questions have no hit left: all were below score_threshold", had - left)
    return found, effort.model_copy(update={"fallbacks": fallback})


def _reranked(
    hits: pa.Table, chunks: Shards, queries: pa.Table, reranker: Reranker, first: int, workspace: Workspace | None
) -> tuple[pa.Table, Effort]:
    """Rerank the ``first`` hits of every query; the others follow."""
    table = found_chunks(chunks, hits)
    with cached_reranker(workspace, reranker) as used:
        if not isinstance(used, CachedReranker):
            return timed(
                queries,
                lambda batch: rerank_table(hits_of(hits, batch), table, batch, used, first),
                warm_up=workspace is not None,
            )
        found = rerank_table(hits, table, queries, used, first)
        charged, seconds = spent(used.reranker) if used.fresh else {}, round(used.seconds, 6)
        effort = Effort(fresh=used.fresh, total=queries.num_rows, unit="answers", query_seconds=seconds, **charged)
        return found, effort


def _returned(hits: pa.Table, chunks: Shards, documents: Shards, returns: Passages) -> tuple[pa.Table, Effort]:
    """Return the passage of every hit at its rank; the hit itself if the passage exceeds the limit."""
    doc_ids = pc.unique(hits.column("doc_id"))
    read = StoredDocuments(documents, doc_ids)
    started = time.perf_counter()
    hit_chunks = list(_columns(hits, "doc_id", "ordinal"))
    ordinals: dict[str, set[int]] = {}
    for doc_id, ordinal in hit_chunks:
        ordinals.setdefault(doc_id, set()).add(ordinal)
    chunk_places: dict[tuple[str, int], tuple[int, int]] = {}
    passages: dict[str, dict[int, Place | None]] = {}
    for shard in chunks:
        near = shard.select(list(PLACE)).filter(pc.is_in(shard.column("doc_id"), doc_ids))
        for doc_id, rows in groupby(_columns(near, *PLACE), key=itemgetter(0)):
            places = [(start, end) for _, start, end in rows]
            chunk_places |= {(doc_id, ordinal): places[ordinal] for ordinal in ordinals[doc_id]}
            passages[doc_id] = returns.passages(read[doc_id], places, sorted(ordinals[doc_id]))
    hit_passages = [passages[doc_id][ordinal] for doc_id, ordinal in hit_chunks]
    returned = [passage or chunk_places[hit] for passage, hit in zip(hit_passages, hit_chunks, strict=True)]
    starts, ends = zip(*returned, strict=True) if returned else ((), ())
    columns = {name: hits.column(name) for name in ("query_id", "rank", "doc_id")} | {
        "start": pa.array(starts, pa.int64()),
        "end": pa.array(ends, pa.int64()),
        "hit_ranks": pa.array([[rank] for rank in hits.column("rank").to_pylist()], PASSAGES.field("hit_ranks").type),
    }
    seconds = round(time.perf_counter() - started, 6)
    fallback = fallback_count(
        "hits are returned as they are: the text around them has over max_tokens", hit_passages.count(None)
    )
    effort = Effort.of(hits.num_rows, "hits", query_seconds=seconds, fallbacks=fallback)
    return table_with(PASSAGES, columns, hits.num_rows), effort


def _columns(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


@step(version=2, write=write_hits)
def ask_system(
    documents: Shards,
    queries: pa.Table,
    system: System | Retriever[Any],
    level: EvaluationType,
    depth: int,
) -> tuple[Retrieved, Effort]:
    """Ask a whole retrieval system, after it has indexed the documents if it does that.

    A text that is not in the documents keeps its rank. Raises what the system raises, and ``ConfigurationError`` on
    an invalid answer.
    """
    corpus = Corpus(list(StoredDocuments(documents).values()))
    kind = PositionAwareChunk if level == "token-level" else Chunk
    reader = AnswerReader(label(system), corpus.documents)

    def ask(batch: pa.Table) -> pa.Table:
        queries_asked = queries_from_table(batch)
        if not isinstance(system, Retriever):
            answers = zip(queries_asked, system.search_many(queries_asked, depth), strict=True)
            read = [reader.read_all(given, query.id, depth) for query, given in answers]
            return answers_table(level, [query.id for query in queries_asked], read)
        found = checked_hits(system.retrieve(queries_asked, depth), len(queries_asked), system.name, kind)
        return hits_table(level, queries_asked, found, corpus)

    # Without a warm-up: a system may charge for every query.
    with getattr(system, "lock", None) or nullcontext():
        if hasattr(system, "index"):
            system.index(corpus)
        hits, effort = timed(queries, ask)
    return Retrieved({"retrieved": hits}, None), effort
