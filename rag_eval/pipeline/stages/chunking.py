"""Cutting the documents."""

from collections.abc import Iterator
from contextlib import contextmanager

from rag_eval.chunking.base import BuiltInChunker
from rag_eval.config.chunkers import ChunkerConfig, EmbeddingChunkerConfig
from rag_eval.embedding.cache import CachedEmbedder
from rag_eval.evaluation.chunker_match import check_chunk_ids, check_chunker
from rag_eval.pipeline.chunk_cache import ChunkCache
from rag_eval.pipeline.references import Effort, TableRef, TruthRef
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.stages.indexing import cached_embedder, spent
from rag_eval.pipeline.workspace import Workspace
from rag_eval.retrieval.chunked import in_place_order, without_positions
from rag_eval.tables import (
    ChunkLevelTruthTables,
    chunk_truth_from_tables,
    chunks_to_table,
    documents_from_table,
    plain_chunks_to_table,
)

VERSION = 1
"""Raise it whenever a chunker cuts otherwise than before: kept cuts of another version are not used."""


@stage(version=VERSION)
def chunk(workspace: Workspace, documents: TableRef, chunker: ChunkerConfig, chunk_truth: TruthRef | None) -> TableRef:
    """Cut every document that this chunker has not cut before.

    With ``chunk_truth``, for chunk-level evaluation, the chunks have no places, and truth that was made with another
    chunker, or on other documents, is refused.
    """
    read = documents_from_table(workspace.read_table(documents))
    with _built(workspace, chunker) as (built, asked):
        folder = workspace.chunk_cache(f"{built.name} v{VERSION}")
        with workspace.growing(folder):
            cut, fresh = ChunkCache(folder).chunk(built, read, refresh=workspace.refresh)
    effort = Effort(fresh=fresh, total=len(read), unit="documents", **(spent(asked) if asked and fresh else {}))
    if chunk_truth is None:
        return workspace.write_table("chunks", chunks_to_table(in_place_order(cut)), effort)
    tables = ChunkLevelTruthTables(workspace.read_table(chunk_truth.queries), workspace.read_table(chunk_truth.answers))
    truth = chunk_truth_from_tables(tables)
    plain = without_positions(cut)
    check_chunker(truth, built.name)
    check_chunk_ids(truth, plain)
    return workspace.write_table("plain-chunks", plain_chunks_to_table(plain), effort)


@contextmanager
def _built(workspace: Workspace, chunker: ChunkerConfig) -> Iterator[tuple[BuiltInChunker, CachedEmbedder | None]]:
    """The chunker, and the service that it asks for vectors, if any, with the workspace's cache around it.

    Vectors that are made here are not kept: most chunkers ask for a vector of every sentence, once.
    """
    if isinstance(chunker, EmbeddingChunkerConfig) and chunker.remote:
        with cached_embedder(workspace, chunker.embedder) as cached:
            yield chunker.build_with(cached), cached
    else:
        yield chunker.build(), None
