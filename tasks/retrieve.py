"""Retrieve: prepare the queries, search each index, and combine what the retrievers found."""

from collections.abc import Mapping
from typing import Any, TypedDict

from prefect import task
from prefect.futures import PrefectFuture

from rag_eval.config.models import Configuration
from rag_eval.parts import label
from rag_eval.pipeline import retrieve_steps, search_steps
from rag_eval.pipeline.plan import SearchSettings
from rag_eval.pipeline.references import HitsRef, QueriesRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.selection import Selection
from rag_eval.types.ids import EvaluationType
from tasks.caching import cached
from tasks.index import IndexFutures, index_shards
from tasks.network import RETRIES, named_by

IndexRefs = Mapping[str, Any]
"""What a retriever searches, by name: references, or lists with one reference per shard."""


@task(**cached(search_steps.prepare_queries), **RETRIES, tags=["retrieve"], task_run_name="prepare queries")
def prepare_queries(
    queries: TableRef, rewriter: Any, selection: Selection | None, documents: list[TableRef], workspace: Workspace
) -> QueriesRef:
    """Rewrite the queries, and find the documents that their filters allow.

    Args:
        queries: The queries of the ground truth.
        rewriter: Returns the texts to search instead of a query; None to search the query itself.
        selection: The filters; None without filters.
        documents: All documents, for their metadata.
        workspace: Where tables are read and written.
    """
    return search_steps.prepare_queries.run(workspace, queries, rewriter, selection, documents)


@task(**cached(search_steps.search), **RETRIES, tags=["retrieve"], task_run_name=named_by("retriever"))
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
        retriever: A search by vectors or by words, or a retriever of your own.
        index: The index to search: ``chunks`` with ``vectors`` and ``index``, or with ``postings`` and ``statistics``.
        queries: The queries, from ``prepare_queries``.
        depth: How many hits to fetch for each query.
        workspace: Where tables are read and written.
        embedder: What embeds the queries, for a search by vectors.
        store: The store of the vectors.
        shards: The number of shards, where the index is one of several.

    Returns:
        The hits of every query, best first.
    """
    return search_steps.search.run(workspace, retriever, index, queries, depth, embedder, store, shards)


class RankingFutures(TypedDict):
    """Task runs of one retriever: the hits from each part of the index, the index and the prepared queries."""

    name: str
    hits: list[PrefectFuture[TableRef]]
    index: IndexFutures
    queries: PrefectFuture[QueriesRef]
    depth: int


def search_index(
    settings: SearchSettings, index: IndexFutures, queries: PrefectFuture[QueriesRef], workspace: Workspace
) -> RankingFutures:
    """Submit the search of an index, with one task for each part that is searched separately."""
    parts = index_shards(settings.index, index)
    shards = len(parts) if len(parts) > 1 else None
    embedder, store, depth = settings.index.embedder, settings.store, settings.depth
    hits = [
        search.submit(settings.retriever, part, queries, depth, workspace, embedder, store, shards) for part in parts
    ]
    name = label(settings.retriever)
    return {"name": name, "hits": hits, "index": index, "queries": queries, "depth": depth}


@task(**cached(retrieve_steps.retrieve), **RETRIES, tags=["retrieve"], task_run_name="retrieve {configuration.name}")
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
        configuration: The configuration, with its fusion, selection, reranker and passages.
        rankings: For each retriever its ``hits``, from ``search``, and the ``index``, ``queries`` and ``depth`` of the
            search.
        queries: The queries of the ground truth.
        documents: All documents, to cut passages from.
        candidates: How many of the first hits to rerank.
        workspace: Where tables are read and written.
    """
    return retrieve_steps.retrieve.run(workspace, configuration, rankings, queries, documents, candidates)


@task(**cached(retrieve_steps.ask_system), **RETRIES, tags=["retrieve"], task_run_name=named_by("system"))
def ask_system(
    system: Any, documents: list[TableRef], queries: TableRef, level: EvaluationType, depth: int, workspace: Workspace
) -> HitsRef:
    """Query a whole retrieval system with every query.

    Args:
        system: The system, which indexes the documents by itself if it takes them.
        documents: All documents.
        queries: The queries of the ground truth.
        level: Whether spans or chunk ids are scored.
        depth: How many hits to request.
        workspace: Where tables are read and written.
    """
    return retrieve_steps.ask_system.run(workspace, system, documents, queries, level, depth)
