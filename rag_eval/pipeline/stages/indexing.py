"""Vectors of the chunks, and the index that is searched."""

import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_eval.config.embedders import EmbedderConfig
from rag_eval.config.stores import StoreConfig
from rag_eval.digests import data_sha256
from rag_eval.embedding.base import Vectors
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.usage import ReportsUsage
from rag_eval.pipeline.references import Effort, IndexRef, TableRef
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import embeddings_schema
from rag_eval.types.ids import text_sha256

ROWS_AT_ONCE = 16_384
"""How many chunks are in memory with their vectors; another number makes other files of the same vectors."""


@stage(version=1)
def embed(workspace: Workspace, chunks: TableRef, embedder: EmbedderConfig) -> TableRef:
    """Embed every text that this embedder has not embedded before, each once."""
    contents = workspace.read_table(chunks).column("content")
    with cached_embedder(workspace, embedder) as cached:
        parts = _embedded(contents, cached)
        first = next(parts)
        ref = workspace.write_parts("embeddings", first.schema, itertools.chain([first], parts))
    effort = Effort(fresh=cached.statistics.misses, total=ref.rows, unit="texts", **spent(cached))
    return ref.model_copy(update={"effort": effort})


@stage(version=1)
def index(workspace: Workspace, chunks: TableRef, embeddings: TableRef, store: StoreConfig) -> IndexRef:
    """Put the chunks with their vectors into the store."""
    table, vectors = workspace.read_table(chunks), TextVectors(workspace.read_table(embeddings))
    ref = workspace.write_index(
        data_sha256([chunks.digest, embeddings.digest, store.model_dump(mode="json")]),
        table.num_rows,
        lambda folder: _fill(store, folder, table, vectors),
    )
    effort = Effort(fresh=table.num_rows, total=table.num_rows, unit="chunks")
    return ref.model_copy(update={"effort": effort})


def _embedded(contents: pa.ChunkedArray, embedder: CachedEmbedder) -> Iterator[pa.Table]:
    """Embeddings tables of the texts, each text in one of them; at least one table, if an empty one."""
    seen: set[str] = set()
    for begin in range(0, max(1, len(contents)), ROWS_AT_ONCE):
        part = contents.slice(begin, ROWS_AT_ONCE).to_pylist()
        texts = {digest: text for text in part if (digest := text_sha256(text)) not in seen}
        seen.update(texts)
        vectors = embedder.embed(list(texts.values()))
        schema = embeddings_schema(vectors.shape[1])
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
        yield pa.Table.from_arrays([pa.array(list(texts), pa.string()), column], schema=schema)


def _fill(store: StoreConfig, folder: Path, chunks: pa.Table, vectors: "TextVectors") -> None:
    """Raises ``OSError`` when the disk does not take the chunks, which LanceDB says in words."""
    parts = (chunks.slice(begin, ROWS_AT_ONCE) for begin in range(0, chunks.num_rows, ROWS_AT_ONCE))
    try:
        store.build(folder).add_tables((part, vectors.of(part.column("content").to_pylist())) for part in parts)
    except RuntimeError as error:
        code = re.search(r"LanceError\(IO\).*\(os error (\d+)\)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


@contextmanager
def cached_embedder(workspace: Workspace, embedder: EmbedderConfig) -> Iterator[CachedEmbedder]:
    """The embedder with the workspace's cache around it."""
    cache = _embedding_cache(workspace.embedding_cache)
    cached = CachedEmbedder(embedder.build(), cache, made_since=workspace.made_since)
    with ExitStack() as stack:
        for folder in cached.folders:
            stack.enter_context(workspace.growing(folder))
        yield cached


@functools.cache
def _embedding_cache(folder: Path) -> EmbeddingCache:
    """One for all stages of a process: what it has read of the disk and checked, it does not read and check again."""
    return EmbeddingCache(folder)


def spent(part: object) -> dict[str, Any]:
    """Tokens and cost of a part since it was built: None where it does not tell."""
    usage = part.usage if isinstance(part, ReportsUsage) else None
    return {"tokens": usage.tokens if usage else None, "cost": usage.cost if usage else None}


class TextVectors:
    """The rows of an embeddings table, which stay on the disk until they are asked for."""

    def __init__(self, embeddings: pa.Table) -> None:
        chunks = embeddings.column("vector").chunks
        self._matrices = [chunk.flatten().to_numpy().reshape(-1, chunk.type.list_size) for chunk in chunks]
        self._begins = np.cumsum([0, *(len(matrix) for matrix in self._matrices)])
        self._rows = {digest: row for row, digest in enumerate(embeddings.column("text_sha256").to_pylist())}

    def of(self, texts: Sequence[str]) -> Vectors:
        """The vector of each text, by its sha256."""
        rows = np.array([self._rows[text_sha256(text)] for text in texts], np.int64)
        homes = np.searchsorted(self._begins, rows, side="right") - 1
        vectors = np.empty((len(rows), self._matrices[0].shape[1]), np.float32)
        for home in np.unique(homes):
            here = homes == home
            vectors[here] = self._matrices[home][rows[here] - self._begins[home]]
        return vectors
