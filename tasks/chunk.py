"""Chunk the documents with positions."""

from collections.abc import Sequence

from prefect import task
from prefect.futures import PrefectFuture

from rag_eval.chunking.context import ChunkContext
from rag_eval.pipeline import document_steps as steps
from rag_eval.pipeline.references import ChunksRef, TableRef, TruthRef
from rag_eval.pipeline.search_steps import SearchDepth
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.retriever import AnyChunker, no_chunks, usable_chunker
from tasks.caching import cached
from tasks.network import RETRIES, named_by


@task(**cached(steps.chunk), **RETRIES, tags=["chunk"], task_run_name=named_by("chunker"))
def chunk(
    documents: TableRef, chunker: AnyChunker, chunk_truth: TruthRef | None = None, *, workspace: Workspace
) -> ChunksRef:
    """Cut the documents of one shard into chunks with positions.

    Args:
        documents: The shard, from ``load_corpus``.
        chunker: A built-in chunker, or any object with ``chunk`` or ``chunk_with_positions``.
        chunk_truth: Chunk-level ground truth to check against the chunks, which then have no positions.
        workspace: Where tables are read and written.

    Returns:
        The chunks, in the order of their positions.
    """
    return steps.chunk.run(workspace, documents, chunker, chunk_truth)


@task(**cached(steps.add_context), **RETRIES, tags=["chunk"], task_run_name=named_by("context"))
def add_context(chunks: ChunksRef, documents: TableRef, context: ChunkContext, *, workspace: Workspace) -> ChunksRef:
    """Add text to the chunks of one shard that is searched with them but not returned.

    Args:
        chunks: The shard, from ``chunk``.
        documents: The documents it was cut from.
        context: What to add to a chunk, such as its headings.
        workspace: Where tables are read and written.
    """
    return steps.add_context.run(workspace, chunks, documents, context)


def hits_to_fetch(chunks: Sequence[PrefectFuture[ChunksRef]], chunker: AnyChunker, depth: SearchDepth) -> int:
    """Wait for the chunks, and return how many hits to fetch from them.

    Raises: ConfigurationError: There are no chunks to search.
    """
    shards = [future.result() for future in chunks]
    if not any(shard.rows for shard in shards):
        efforts = [shard.effort for shard in shards if shard.effort is not None]
        name = getattr(chunker, "label", None) or usable_chunker(chunker, "token-level").name
        raise no_chunks(name, sum(effort.total for effort in efforts), sum(effort.skipped for effort in efforts))
    return depth.hits(sum(shard.characters for shard in shards), sum(shard.rows for shard in shards))
