"""Finding chunks for every query: by vectors, by words, by both; and reranking what was found."""

import numpy as np
import pyarrow as pa

from rag_eval.config.embedders import EmbedderConfig
from rag_eval.config.rerankers import RerankerConfig
from rag_eval.config.stores import StoreConfig
from rag_eval.embedding.base import embed_queries
from rag_eval.pipeline.hits import fuse_tables, hits_at, rerank_table
from rag_eval.pipeline.references import Effort, IndexRef, TableRef
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.stages.indexing import cached_embedder
from rag_eval.pipeline.workspace import Workspace
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
    vectors = embed_queries(cached_embedder(workspace, embedder), asked.column("text").to_pylist())
    found = store.build(workspace.index_folder(index)).search_many(vectors, depth)
    query, rank = np.nonzero(found.numbers >= 0)
    hits = hits_at(
        workspace.read_table(chunks), asked, query, rank, found.numbers[query, rank], found.scores[query, rank]
    )
    return workspace.write_table("hits", hits, _answered(asked))


@stage(version=1)
def retrieve_by_words(workspace: Workspace, chunks: TableRef, queries: TableRef, depth: int) -> TableRef:
    """The chunks that share most with every query, by BM25."""
    asked, table = workspace.read_table(queries), workspace.read_table(chunks)
    index = BM25Index(table.column("content").to_pylist())
    query, rank, number, score = [], [], [], []
    for place, text in enumerate(asked.column("text").to_pylist()):
        scores = index.scores(text)
        best = best_first(scores, depth)
        query.append(np.full(len(best), place))
        rank.append(np.arange(len(best)))
        number.append(best)
        score.append(scores[best])
    found = hits_at(table, asked, *(np.concatenate(part) for part in (query, rank, number, score)))
    return workspace.write_table("hits", found, _answered(asked))


@stage(version=1)
def fuse(workspace: Workspace, rankings: list[TableRef], queries: TableRef, depth: int) -> TableRef:
    """Several rankings as one, by reciprocal rank fusion."""
    asked = workspace.read_table(queries)
    fused = fuse_tables([workspace.read_table(ranking) for ranking in rankings], asked, depth)
    return workspace.write_table("hits", fused, _answered(asked))


@stage(version=1)
def rerank(
    workspace: Workspace, hits: TableRef, chunks: TableRef, queries: TableRef, reranker: RerankerConfig, k: int
) -> TableRef:
    """The k best candidates of every query, in the reranker's order."""
    asked = workspace.read_table(queries)
    built = reranker.build()
    found = workspace.read_table(hits)
    kept = found if built is None else rerank_table(found, workspace.read_table(chunks), asked, built, k)
    return workspace.write_table("hits", kept, _answered(asked))


def _answered(queries: pa.Table) -> Effort:
    return Effort(fresh=queries.num_rows, total=queries.num_rows, unit="queries")
