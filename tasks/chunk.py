"""Chunk the documents with positions."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from prefect import task
from prefect.futures import PrefectFuture

from rag_eval.pipeline import document_steps as steps
from rag_eval.pipeline.references import ChunksRef, TableRef, TruthRef
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import AnyChunker, no_chunks, usable_chunker
from tasks.caching import cached
from tasks.network import RETRIES, named_by

Futures = Sequence[PrefectFuture[ChunksRef]]


@task(
    cache_policy=cached(steps.chunk),
    result_serializer="rag-eval",
    tags=["chunk"],
    task_run_name=named_by("chunker"),
    **RETRIES,
)
def chunk(
    documents: TableRef, chunker: AnyChunker, workspace: Workspace, chunk_truth: TruthRef | None = None
) -> ChunksRef:
    """Cut the documents of one shard into chunks with positions.

    Args:
        documents: The shard, from ``load_corpus``.
        chunker: What cuts: a built-in chunker, or any object with ``chunk`` or ``chunk_with_positions``.
        workspace: Where tables are read and written.
        chunk_truth: Chunk-level ground truth, which is checked against the chunks; they then have no positions.

    Returns:
        The chunks, in the order of their positions.
    """
    return steps.chunk.run(workspace, partial(steps.keep_chunks, workspace), documents, chunker, chunk_truth)


@task(
    cache_policy=cached(steps.add_context),
    result_serializer="rag-eval",
    tags=["chunk"],
    task_run_name=named_by("context"),
    **RETRIES,
)
def add_context(chunks: ChunksRef, documents: TableRef, context: Any, workspace: Workspace) -> ChunksRef:
    """Add to the chunks of one shard the text that is searched around them and not returned.

    Args:
        chunks: The shard, from ``chunk``.
        documents: The documents it was cut from.
        context: What is put around a chunk, such as its headings.
        workspace: Where tables are read and written.
    """
    return steps.add_context.run(workspace, partial(steps.keep_chunks, workspace), chunks, documents, context)


def hits_to_fetch(chunks: Futures, chunker: AnyChunker, depth: int | SearchDepth) -> int:
    """Wait for the chunks, and return how many hits to fetch from them.

    Raises:
        ConfigurationError: There is no chunk to search.
    """
    made = [one.result() for one in chunks]
    if not any(one.rows for one in made):
        efforts = [one.effort for one in made if one.effort is not None]
        name = getattr(chunker, "label", None) or usable_chunker(chunker, "token-level").name
        raise no_chunks(name, sum(one.total for one in efforts), sum(one.skipped for one in efforts))
    return depth if isinstance(depth, int) else depth.hits(made)
