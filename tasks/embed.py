"""Embed the chunks."""

from prefect import task

from rag_eval.embedding.embedder import Embedder
from rag_eval.pipeline import document_steps as steps
from rag_eval.pipeline.references import ChunksRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from tasks.caching import cached
from tasks.network import RETRIES, named_by


@task(**cached(steps.embed), **RETRIES, tags=["embed"], task_run_name=named_by("embedder"))
def embed(chunks: ChunksRef, embedder: Embedder, *, workspace: Workspace) -> TableRef:
    """Embed the texts of one shard; a workspace embeds each text once.

    Args:
        chunks: The shard, from ``chunk``.
        embedder: The embedder.
        workspace: Where tables are read and written, with a cache of vectors.

    Returns:
        The vectors by the sha256 of their texts.
    """
    return steps.embed.run(workspace, chunks, embedder)


@task(**cached(steps.count_texts), tags=["embed"], task_run_name=named_by("embedder"))
def count_texts(chunks: ChunksRef, embedder: Embedder, *, workspace: Workspace) -> TableRef:
    """Count the tokens that an embedder would read of one shard, without embedding it."""
    return steps.count_texts.run(workspace, chunks, embedder)
