"""Retrieve: prepare the queries, search each index, and combine what the retrievers found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prefect import task
from prefect.futures import PrefectFuture

from rag_eval.config.models import Configuration
from rag_eval.embedding.embedder import Embedder
from rag_eval.parts import label
from rag_eval.pipeline import retrieve_steps, search_steps
from rag_eval.pipeline.plan import SearchSettings
from rag_eval.pipeline.references import ChunksRef, HitsRef, IndexRef, QueriesRef, RankingRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.queries import Rewriter
from rag_eval.retrieval.retriever import Retriever
from rag_eval.retrieval.searching import SingleSearch
from rag_eval.retrieval.selection import Selection
from rag_eval.retrieval.systems import System
from rag_eval.stores.store import VectorStore
from rag_eval.types.ids import EvaluationType
from tasks.caching import cached
from tasks.index import IndexRuns
from tasks.network import RETRIES, named_by


@task(**cached(search_steps.prepare_queries), **RETRIES, tags=["retrieve"], task_run_name="prepare queries")
def prepare_queries(
    queries: TableRef,
    documents: list[TableRef],
    rewriter: Rewriter | None = None,
    selection: Selection | None = None,
    *,
    workspace: Workspace,
) -> QueriesRef:
    """Rewrite the queries, and find the documents that their filters allow.

    Args:
        queries: The queries of the ground truth.
        documents: All documents, for their metadata.
        rewriter: Returns the texts to search instead of a query; None to search the query itself.
        selection: The filters; None without filters.
        workspace: Where tables are read and written.
    """
    return search_steps.prepare_queries.run(workspace, queries, rewriter, selection, documents)


@task(**cached(search_steps.search), **RETRIES, tags=["retrieve"], task_run_name=named_by("retriever"))
def search(
    retriever: SingleSearch,
    index: IndexRef | list[ChunksRef],
    queries: QueriesRef,
    depth: int,
    embedder: Embedder | None = None,
    store: VectorStore | None = None,
    shards: int | None = None,
    *,
    workspace: Workspace,
) -> RankingRef:
    """Search one index by one retriever.

    Args:
        retriever: A search by vectors or by words, or a retriever of your own.
        index: The index, from a task of ``tasks.index``; the chunks, for a retriever of your own.
        queries: The queries, from ``prepare_queries``.
        depth: How many hits to fetch for each query.
        embedder: What embeds the queries, for a search by vectors.
        store: The store of the vectors.
        shards: The number of shards, where the index is one of several.
        workspace: Where tables are read and written.

    Returns:
        The hits of every query, best first, with the index and the queries.
    """
    searched = index if isinstance(index, IndexRef) else IndexRef(chunks=index)
    hits = search_steps.search.run(workspace, retriever, searched, queries, depth, embedder, store, shards)
    return RankingRef(hits=hits, index=searched, queries=queries, depth=depth, made=hits.made, effort=hits.effort)


@dataclass(frozen=True)
class SearchRuns:
    """The task runs of one retriever: of its index, of the queries, and of the search in each part of the index."""

    name: str
    index: IndexRuns
    queries: PrefectFuture[QueriesRef]
    rankings: list[PrefectFuture[RankingRef]]


def search_index(
    settings: SearchSettings, index: IndexRuns, queries: PrefectFuture[QueriesRef], workspace: Workspace
) -> SearchRuns:
    """Submit the search of an index, with one task for each part that is searched separately."""
    retriever, shards = settings.retriever, len(index.parts) if len(index.parts) > 1 else None
    options = settings.depth, settings.index.embedder, settings.store, shards
    rankings = [search.submit(retriever, part, queries, *options, workspace=workspace) for part in index.parts]
    return SearchRuns(label(retriever), index, queries, rankings)


def rankings_of(searches: Sequence[SearchRuns]) -> list[list[PrefectFuture[RankingRef]]]:
    """Return the rankings of retrievers, as ``retrieve`` takes them."""
    return [search.rankings for search in searches]


@task(**cached(retrieve_steps.retrieve), **RETRIES, tags=["retrieve"], task_run_name="retrieve {configuration.name}")
def retrieve(
    configuration: Configuration,
    rankings: list[list[RankingRef]],
    queries: TableRef,
    documents: list[TableRef],
    candidates: int,
    sums: list[TableRef] | None = None,
    *,
    workspace: Workspace,
) -> HitsRef:
    """Combine what the retrievers of a configuration found: merge shards, fuse, select, rerank, return passages.

    Args:
        configuration: The configuration, with its fusion, selection, reranker and passages.
        rankings: For each retriever what ``search`` found: in one index, or in that of each shard.
        queries: The queries of the ground truth.
        documents: All documents, to cut passages from.
        candidates: How many of the first hits to rerank.
        sums: The sums of the vectors of each shard, from ``sum_vectors``, for a fusion that reads their scores.
        workspace: Where tables are read and written.
    """
    hits = retrieve_steps.retrieve.run(workspace, configuration, rankings, queries, documents, candidates, sums)
    return hits.model_copy(update={"chunks": [shard for part in rankings[0] for shard in part.index.chunks]})


@task(**cached(retrieve_steps.ask_system), **RETRIES, tags=["retrieve"], task_run_name=named_by("system"))
def ask_system(
    system: System | Retriever[Any],
    documents: list[TableRef],
    queries: TableRef,
    level: EvaluationType,
    depth: int,
    *,
    workspace: Workspace,
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
