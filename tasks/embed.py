"""Embed the chunks."""

from functools import partial

from prefect import task

from rag_eval.embedding.embedder import Embedder
from rag_eval.pipeline import document_steps as steps
from rag_eval.pipeline.references import ChunksRef, TableRef
from rag_eval.pipeline.workspace import Workspace
from tasks.caching import cached
from tasks.network import RETRIES, named_by


@task(
    cache_policy=cached(steps.embed),
    result_serializer="rag-eval",
    tags=["embed"],
    task_run_name=named_by("embedder"),
    **RETRIES,
)
def embed(chunks: ChunksRef, embedder: Embedder, workspace: Workspace) -> TableRef:
    """Embed the texts of one shard; no text is embedded twice in a workspace.

    Args:
        chunks: The shard, from ``chunk``.
        embedder: What turns texts into vectors.
        workspace: Where tables are read and written, with the cache of vectors.

    Returns:
        The vectors by the sha256 of their texts.
    """
    return steps.embed.run(workspace, partial(workspace.write_table, "embeddings"), chunks, embedder)


@task(
    cache_policy=cached(steps.count_texts),
    result_serializer="rag-eval",
    tags=["embed"],
    task_run_name=named_by("embedder"),
)
def count_texts(chunks: ChunksRef, embedder: Embedder, workspace: Workspace) -> TableRef:
    """Count the tokens that an embedder would read of one shard; nothing is embedded."""
    return steps.count_texts.run(workspace, partial(workspace.write_table, "texts"), chunks, embedder)
