"""Retrieve: prepare the queries, search each index, and combine what the retrievers found."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from prefect import task
from prefect.futures import PrefectFuture

from rag_eval.config.models import Configuration
from rag_eval.parts import label
from rag_eval.pipeline import retrieve_steps, search_steps
from rag_eval.pipeline.plan import SearchSettings
from rag_eval.pipeline.references import HitsRef, QueriesRef, TableRef
from rag_eval.pipeline.retrieve_steps import Retrieved
from rag_eval.pipeline.search_steps import PreparedQueries
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.selection import Selection
from rag_eval.types.ids import EvaluationType
from tasks.caching import cached
from tasks.index import IndexFutures, index_shards
from tasks.network import RETRIES, named_by

IndexRefs = Mapping[str, Any]
"""What a retriever searches, by name: references, or lists of them with one for each shard."""


@task(
    cache_policy=cached(search_steps.prepare_queries),
    result_serializer="rag-eval",
    tags=["retrieve"],
    task_run_name="prepare queries",
    **RETRIES,
)
def prepare_queries(
    queries: TableRef, rewriter: Any, selection: Selection | None, documents: list[TableRef], workspace: Workspace
) -> QueriesRef:
    """Rewrite the queries, and find the documents that their filters allow.

    Args:
        queries: The queries of the ground truth.
        rewriter: What is searched in the place of a query; None for the query itself.
        selection: The filters; None without filters.
        documents: All documents, whose metadata the filters read.
        workspace: Where tables are read and written.
    """

    def keep(made: PreparedQueries) -> QueriesRef:
        allowed = None if made.allowed is None else workspace.write_table("allowed", made.allowed)
        return QueriesRef(searches=workspace.write_table("searches", made.searches), allowed=allowed)

    return search_steps.prepare_queries.run(workspace, keep, queries, rewriter, selection, documents)


@task(
    cache_policy=cached(search_steps.search),
    result_serializer="rag-eval",
    tags=["retrieve"],
    task_run_name=named_by("retriever"),
    **RETRIES,
)
def search(
    retriever: Any,
    index: IndexRefs,
    queries: QueriesRef,
    depth: int,
    workspace: Workspace,
    embedder: Any = None,
    store: Any = None,
    shards: int | None = None,
) -> TableRef:
    """Search one index by one retriever.

    Args:
        retriever: By vectors, by words, or a retriever of your own.
        index: What it searches: ``chunks`` with ``vectors`` and ``index``, or with ``postings`` and ``statistics``.
        queries: What is searched, from ``prepare_queries``.
        depth: How many hits to fetch for each query.
        workspace: Where tables are read and written.
        embedder: What embeds the queries, for a search by vectors.
        store: The store of the vectors.
        shards: The number of shards, where the index is one of several.

    Returns:
        The hits of every query, best first.
    """
    given = retriever, index, queries.searches, queries.allowed, embedder, store, depth, shards
    return search_steps.search.run(workspace, partial(workspace.write_table, "hits"), *given)


class RankingFutures(TypedDict):
    """What one retriever found: the hits of each part of the index, and what they were searched with."""

    name: str
    hits: list[PrefectFuture[TableRef]]
    index: IndexFutures
    queries: PrefectFuture[QueriesRef]
    depth: int


def search_index(
    settings: SearchSettings, index: IndexFutures, queries: PrefectFuture[QueriesRef], workspace: Workspace
) -> RankingFutures:
    """Submit the search of an index, a task for each part of it that is searched by itself."""
    parts = index_shards(settings.index, index)
    shards = len(parts) if len(parts) > 1 else None
    own = settings.embedder, settings.store, shards
    hits = [search.submit(settings.retriever, part, queries, settings.depth, workspace, *own) for part in parts]
    name = label(settings.retriever)
    return {"name": name, "hits": hits, "index": index, "queries": queries, "depth": settings.depth}


@task(
    cache_policy=cached(retrieve_steps.retrieve),
    result_serializer="rag-eval",
    tags=["retrieve"],
    task_run_name="retrieve {configuration.name}",
    **RETRIES,
)
def retrieve(
    configuration: Configuration,
    rankings: list[Mapping[str, Any]],
    queries: TableRef,
    documents: list[TableRef],
    candidates: int,
    workspace: Workspace,
) -> HitsRef:
    """Combine what the retrievers of a configuration found: merge shards, fuse, select, rerank, return passages.

    Args:
        configuration: Whose fusion, selection, reranker and passages.
        rankings: What each retriever found: its ``hits``, from ``search``, the ``index`` and ``queries`` that were
            searched, and the ``depth``.
        queries: The queries as they were asked.
        documents: All documents, from which passages are cut.
        candidates: How many of the first hits are reranked.
        workspace: Where tables are read and written.
    """
    found, indexes = ([one[name] for one in rankings] for name in ("hits", "index"))
    searched, depth = rankings[0]["queries"], rankings[0]["depth"]
    given = found, indexes, queries, searched.searches, searched.allowed, documents, depth, candidates
    return retrieve_steps.retrieve.run(workspace, partial(_keep_hits, workspace), configuration, *given)


@task(
    cache_policy=cached(retrieve_steps.ask_system),
    result_serializer="rag-eval",
    tags=["retrieve"],
    task_run_name=named_by("system"),
    **RETRIES,
)
def ask_system(
    system: Any, documents: list[TableRef], queries: TableRef, level: EvaluationType, depth: int, workspace: Workspace
) -> HitsRef:
    """Ask a whole retrieval system every query.

    Args:
        system: The system, which indexes the documents by itself if it takes them.
        documents: All documents.
        queries: The queries of the ground truth.
        level: Whether spans or chunk ids are scored.
        depth: How many hits to ask for.
        workspace: Where tables are read and written.
    """
    return retrieve_steps.ask_system.run(
        workspace, partial(_keep_hits, workspace), documents, queries, system, level, depth
    )


def _keep_hits(workspace: Workspace, made: Retrieved) -> HitsRef:
    stages = {name: workspace.write_table("hits", table) for name, table in made.stages.items()}
    passages = None if made.passages is None else workspace.write_table("passages", made.passages)
    return HitsRef(stages=stages, passages=passages, unplaced=unplaced(list(made.stages.values())[-1]))


def unplaced(hits: pa.Table) -> int:
    """Count the hits that are a text without a place in the documents; one without a text is the id of a chunk."""
    has_text = pc.fill_null(pc.not_equal(hits.column("text"), ""), False)
    return pc.sum(pc.and_(pc.is_null(hits.column("doc_id")), has_text)).as_py() or 0
