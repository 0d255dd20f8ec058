"""Vectors of the chunks, and the index that is searched."""

import pyarrow as pa

from rag_eval.config.embedders import EmbedderConfig
from rag_eval.config.stores import StoreConfig
from rag_eval.digests import data_sha256
from rag_eval.embedding.base import Embedder, Vectors
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.pipeline.references import Effort, IndexRef, TableRef
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import embeddings_schema
from rag_eval.types.ids import text_sha256


@stage(version=1)
def embed(workspace: Workspace, chunks: TableRef, embedder: EmbedderConfig) -> TableRef:
    """Embed every text that this embedder has not embedded before, each once."""
    texts = {text_sha256(text): text for text in workspace.read_table(chunks).column("content").to_pylist()}
    cached = cached_embedder(workspace, embedder)
    vectors = cached.embed(list(texts.values()))
    fresh = cached.statistics.misses if isinstance(cached, CachedEmbedder) else len(texts)
    schema = embeddings_schema(vectors.shape[1])
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    table = pa.Table.from_arrays([pa.array(list(texts), pa.string()), column], schema=schema)
    return workspace.write_table("embeddings", table, Effort(fresh=fresh, total=len(texts), unit="texts"))


@stage(version=1)
def index(workspace: Workspace, chunks: TableRef, embeddings: TableRef, store: StoreConfig) -> IndexRef:
    """Put the chunks with their vectors into the store."""
    table = workspace.read_table(chunks)
    vectors = _vectors_of(table.column("content").to_pylist(), workspace.read_table(embeddings))
    ref = workspace.write_index(
        data_sha256([chunks.digest, embeddings.digest, store.model_dump(mode="json")]),
        table.num_rows,
        lambda folder: store.build(folder).add_table(table, vectors),
    )
    effort = Effort(fresh=table.num_rows, total=table.num_rows, unit="chunks")
    return ref.model_copy(update={"effort": effort})


def cached_embedder(workspace: Workspace, embedder: EmbedderConfig) -> Embedder:
    """The embedder with the workspace's cache around it; without it when everything is to be made again."""
    built = embedder.build()
    return built if workspace.refresh else CachedEmbedder(built, EmbeddingCache(workspace.embedding_cache))


def _vectors_of(texts: list[str], embeddings: pa.Table) -> Vectors:
    """The vector of each text, by its sha256."""
    column = embeddings.column("vector").combine_chunks()
    matrix = column.values.to_numpy().reshape(-1, column.type.list_size)
    rows = {digest: row for row, digest in enumerate(embeddings.column("text_sha256").to_pylist())}
    vectors: Vectors = matrix[[rows[text_sha256(text)] for text in texts]]
    return vectors
