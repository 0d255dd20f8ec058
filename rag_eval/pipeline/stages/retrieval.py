"""Finding chunks for every query: by vectors, by words, by both; and reranking what was found.

Each answers one query before the clock starts, so that no configuration pays for being the first; what is charged by
the call does not, and its answers are kept.
"""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.config.embedders import EmbedderConfig
from rag_eval.config.rerankers import RerankerConfig
from rag_eval.config.stores import StoreConfig
from rag_eval.digests import data_sha256
from rag_eval.embedding.base import embed_queries
from rag_eval.pipeline.hits import fuse_tables, hits_at, rerank_table
from rag_eval.pipeline.kept_rankings import kept_rankings
from rag_eval.pipeline.references import Effort, IndexRef, TableRef
from rag_eval.pipeline.stage import key_part, stage
from rag_eval.pipeline.stages.indexing import cached_embedder, spent
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.base import Reranker
from rag_eval.retrieval.bm25 import BM25Index, best_first


@stage(version=1)
def retrieve_by_vector(
    workspace: Workspace,
    chunks: TableRef,
    index: IndexRef,
    queries: TableRef,
    embedder: EmbedderConfig,
    store: StoreConfig,
    depth: int,
) -> TableRef:
    """The nearest chunks of every query."""
    asked = workspace.read_table(queries)
    with cached_embedder(workspace, embedder) as cached:
        vectors = embed_queries(cached, asked.column("text").to_pylist())
    opened = store.build(workspace.index_folder(index))
    opened.search_many(vectors[:1], depth)
    started = time.perf_counter()
    found = opened.search_many(vectors, depth)
    effort = _answered(asked, started, **spent(cached))
    query, rank = np.nonzero(found.numbers >= 0)
    hits = hits_at(
        workspace.read_table(chunks), asked, query, rank, found.numbers[query, rank], found.scores[query, rank]
    )
    return workspace.write_table("hits", hits, effort)


@stage(version=1)
def retrieve_by_words(workspace: Workspace, chunks: TableRef, queries: TableRef, depth: int) -> TableRef:
    """The chunks that share most with every query, by BM25."""
    asked, table = workspace.read_table(queries), workspace.read_table(chunks)
    index, texts = BM25Index(table.column("content").to_pylist()), asked.column("text").to_pylist()
    for text in texts[:1]:
        best_first(index.scores(text), depth)
    started = time.perf_counter()
    query, rank, number, score = [], [], [], []
    for place, text in enumerate(texts):
        scores = index.scores(text)
        best = best_first(scores, depth)
        query.append(np.full(len(best), place))
        rank.append(np.arange(len(best)))
        number.append(best)
        score.append(scores[best])
    found = hits_at(table, asked, *(np.concatenate(part) for part in (query, rank, number, score)))
    return workspace.write_table("hits", found, _answered(asked, started))


@stage(version=1)
def fuse(workspace: Workspace, rankings: list[TableRef], queries: TableRef, depth: int) -> TableRef:
    """Several rankings as one, by reciprocal rank fusion."""
    asked = workspace.read_table(queries)
    read = [workspace.read_table(ranking) for ranking in rankings]
    fuse_tables([ranking.slice(0, depth) for ranking in read], asked.slice(0, 1), depth)
    started = time.perf_counter()
    fused = fuse_tables(read, asked, depth)
    return workspace.write_table("hits", fused, _answered(asked, started))


@stage(version=1)
def rerank(
    workspace: Workspace, hits: TableRef, chunks: TableRef, queries: TableRef, reranker: RerankerConfig, k: int
) -> TableRef:
    """The k best candidates of every query, in the reranker's order."""
    asked, found, searched = (workspace.read_table(table) for table in (queries, hits, chunks))
    built = reranker.build()
    if built is None:
        return workspace.write_table("hits", found, _answered(asked, time.perf_counter()))
    if reranker.remote:
        with built if isinstance(built, AbstractContextManager) else nullcontext():  # its connection ends with it
            return _rerank_by_service(workspace, asked, found, searched, reranker, built, k)
    first = asked.slice(0, 1)
    of_first = found.filter(pc.is_in(found.column("query_id"), first.column("query_id").combine_chunks()))
    rerank_table(of_first, searched, first, built, k)
    started = time.perf_counter()
    kept = rerank_table(found, searched, asked, built, k)
    return workspace.write_table("hits", kept, _answered(asked, started))


def _rerank_by_service(
    workspace: Workspace,
    asked: pa.Table,
    found: pa.Table,
    searched: pa.Table,
    reranker: RerankerConfig,
    built: Reranker,
    k: int,
) -> TableRef:
    """Ask the service what it was not asked before."""
    folder = workspace.ranking_cache(data_sha256(key_part(reranker)))
    with workspace.growing(folder), kept_rankings(built, folder, workspace.made_since) as asking:
        kept = rerank_table(found, searched, asked, asking, k)
    charged = spent(built) if asking.fresh else {}
    seconds = round(asking.seconds, 6)
    effort = Effort(fresh=asking.fresh, total=asked.num_rows, unit="queries", query_seconds=seconds, **charged)
    return workspace.write_table("hits", kept, effort)


def _answered(queries: pa.Table, started: float, **spent: Any) -> Effort:
    """The effort of answering all queries, from ``started`` to now."""
    seconds = round(time.perf_counter() - started, 6)
    return Effort(fresh=queries.num_rows, total=queries.num_rows, unit="queries", query_seconds=seconds, **spent)
