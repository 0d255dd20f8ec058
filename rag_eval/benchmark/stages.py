"""Scores."""

import functools
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_eval.benchmark.caches import ChunkCache, kept_rankings
from rag_eval.benchmark.chunker_settings import ChunkerConfig, EmbeddingChunkerConfig
from rag_eval.benchmark.embedder_settings import EmbedderConfig
from rag_eval.benchmark.experiment import check_chunk_ids, check_chunker
from rag_eval.benchmark.hits import fuse_tables, hits_at, rerank_table
from rag_eval.benchmark.references import CorpusSource, Effort, IndexRef, TableRef, TruthRef, TruthSource
from rag_eval.benchmark.reranker_settings import RerankerConfig
from rag_eval.benchmark.stage import key_part, stage
from rag_eval.benchmark.store_settings import StoreConfig
from rag_eval.benchmark.truth_versions import reanchor_for_run
from rag_eval.benchmark.workspace import Workspace
from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.disk.files import data_sha256, texts_sha256
from rag_eval.embedding.cache import CachedEmbedder, EmbeddingCache
from rag_eval.embedding.embedder import ReportsUsage, Vectors, embed_queries
from rag_eval.errors import ArtifactError, GroundTruthError
from rag_eval.ground_truth.drift import check_still_matches
from rag_eval.ground_truth.files import read_chunk_level, read_token_level
from rag_eval.metrics.score_tables import score_chunk_level, score_token_level
from rag_eval.parts import digest
from rag_eval.retrieval.bm25 import BM25Index, search_words
from rag_eval.retrieval.retriever import Reranker, in_place_order, without_positions
from rag_eval.retrieval.vector import search_vectors
from rag_eval.tables import (
    TruthTables,
    chunk_truth_from_tables,
    chunk_truth_to_tables,
    chunks_to_table,
    documents_from_table,
    documents_to_table,
    embeddings_schema,
    passages_of,
    searched_texts,
    token_truth_to_tables,
)
from rag_eval.types.documents import Corpus
from rag_eval.types.ids import EvaluationType, text_sha256


@stage(version=1)
def load_corpus(workspace: Workspace, source: CorpusSource) -> TableRef:
    """Read the documents of a folder."""
    corpus = Corpus.from_folder(source.folder, source.glob)
    if texts_sha256((document.id, document.content) for document in corpus) != source.digest:
        raise ArtifactError(f"the corpus folder {str(source.folder)!r} changed while it was read: run again")
    effort = Effort(fresh=len(corpus), total=len(corpus), unit="documents")
    return workspace.write_table("documents", documents_to_table(corpus), effort)


@stage(version=1)
def load_ground_truth(
    workspace: Workspace,
    source: TruthSource,
    documents: TableRef,
    evaluation_type: EvaluationType,
    reanchor: bool = False,
) -> TruthRef:
    """Read the ground truth; spans are held against the documents, or with ``reanchor`` carried over to them."""
    if evaluation_type == "token-level":
        spans = read_token_level(source.path)
        corpus = Corpus(documents_from_table(workspace.read_table(documents)))
        spans = list(reanchor_for_run(workspace, spans, corpus).truth) if reanchor else spans
        check_still_matches(spans, corpus, source.path)
        tables = token_truth_to_tables(spans)
    else:
        tables = chunk_truth_to_tables(read_chunk_level(source.path))
    queries = tables.queries
    if all(queries.column("unanswerable").to_pylist()):
        raise GroundTruthError(
            f"every query of {str(source.path)!r} is declared unanswerable: there is nothing to score"
        )
    if TruthSource.of(source.path).digest != source.digest:
        raise ArtifactError(f"the ground-truth file {str(source.path)!r} changed while it was read: run again")
    effort = Effort(fresh=queries.num_rows, total=queries.num_rows, unit="queries")
    return TruthRef(
        evaluation_type=evaluation_type,
        queries=workspace.write_table("queries", queries),
        answers=workspace.write_table("truth", tables.answers),
        effort=effort,
    )


ROWS_AT_ONCE = 16_384
"""How many chunks are in memory with their vectors; another number makes other files of the same vectors."""


@stage(version=1)
def embed(workspace: Workspace, chunks: TableRef, embedder: EmbedderConfig) -> TableRef:
    """Embed every text that this embedder has not embedded before, each once."""
    texts = searched_texts(workspace.read_table(chunks))
    with cached_embedder(workspace, embedder) as cached:
        parts = _embedded(texts, cached)
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
        store.build(folder).add_tables((part, vectors.of(searched_texts(part).to_pylist())) for part in parts)
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
        folder = workspace.chunk_cache(f"{digest(built)} v{VERSION}", built.name)
        with workspace.growing(folder):
            cut, fresh = ChunkCache(folder).chunk(built, read, refresh=workspace.refresh)
    effort = Effort(fresh=fresh, total=len(read), unit="documents", **(spent(asked) if asked and fresh else {}))
    if chunk_truth is None:
        return workspace.write_table("chunks", chunks_to_table(in_place_order(cut)), effort)
    tables = TruthTables(workspace.read_table(chunk_truth.queries), workspace.read_table(chunk_truth.answers))
    truth = chunk_truth_from_tables(tables)
    plain = without_positions(cut)
    check_chunker(truth, built.name)
    check_chunk_ids(truth, plain)
    return workspace.write_table("chunks", chunks_to_table(plain), effort)


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


@stage(version=1)
def retrieve_by_vector(
    workspace: Workspace,
    chunks: TableRef,
    index: IndexRef,
    queries: TableRef,
    embedder: EmbedderConfig,
    store: StoreConfig,
    depth: int,
) -> TableRef:
    """The nearest chunks of every query."""
    asked = workspace.read_table(queries)
    with cached_embedder(workspace, embedder) as cached:
        vectors = embed_queries(cached, asked.column("text").to_pylist())
    opened = store.build(workspace.index_folder(index))
    table = workspace.read_table(chunks)
    search_vectors(opened, vectors[:1], depth, table.num_rows)
    started = time.perf_counter()
    ranking = search_vectors(opened, vectors, depth, table.num_rows)
    effort = _answered(asked, started, **spent(cached))
    return workspace.write_table("hits", hits_at("vector", table, asked, ranking), effort)


@stage(version=1)
def retrieve_by_words(workspace: Workspace, chunks: TableRef, queries: TableRef, depth: int) -> TableRef:
    """The chunks that share most with every query, by BM25."""
    asked, table = workspace.read_table(queries), workspace.read_table(chunks)
    index, texts = BM25Index(searched_texts(table).to_pylist()), asked.column("text").to_pylist()
    search_words(index, texts[:1], depth)
    started = time.perf_counter()
    ranking = search_words(index, texts, depth)
    effort = _answered(asked, started)
    return workspace.write_table("hits", hits_at("words", table, asked, ranking), effort)


@stage(version=1)
def fuse(workspace: Workspace, rankings: list[TableRef], queries: TableRef, depth: int) -> TableRef:
    """Several rankings as one, by reciprocal rank fusion."""
    asked = workspace.read_table(queries)
    read = [workspace.read_table(ranking) for ranking in rankings]
    fuse_tables([ranking.slice(0, 1) for ranking in read], asked, 1)
    started = time.perf_counter()
    fused = fuse_tables(read, asked, depth)
    return workspace.write_table("hits", fused, _answered(asked, started))


@stage(version=2)
def rerank(
    workspace: Workspace, hits: TableRef, chunks: TableRef, queries: TableRef, reranker: RerankerConfig
) -> TableRef:
    """All candidates of every query, in the reranker's order."""
    asked, found, searched = (workspace.read_table(table) for table in (queries, hits, chunks))
    built = reranker.build()
    if built is None:
        return workspace.write_table("hits", found, _answered(asked, time.perf_counter()))
    if reranker.remote:
        with built if isinstance(built, AbstractContextManager) else nullcontext():  # its connection ends with it
            return _rerank_by_service(workspace, asked, found, searched, reranker, built)
    first = asked.slice(0, 1)
    of_first = found.filter(pc.is_in(found.column("query_id"), first.column("query_id").combine_chunks()))
    rerank_table(of_first, searched, first, built)
    started = time.perf_counter()
    kept = rerank_table(found, searched, asked, built)
    return workspace.write_table("hits", kept, _answered(asked, started))


def _rerank_by_service(
    workspace: Workspace,
    asked: pa.Table,
    found: pa.Table,
    searched: pa.Table,
    reranker: RerankerConfig,
    built: Reranker,
) -> TableRef:
    """Ask the service what it was not asked before."""
    folder = workspace.ranking_cache(data_sha256(key_part(reranker)), built.name)
    with workspace.growing(folder), kept_rankings(built, folder, workspace.made_since) as asking:
        kept = rerank_table(found, searched, asked, asking)
    charged = spent(built) if asking.fresh else {}
    seconds = round(asking.seconds, 6)
    effort = Effort(fresh=asking.fresh, total=asked.num_rows, unit="queries", query_seconds=seconds, **charged)
    return workspace.write_table("hits", kept, effort)


def _answered(queries: pa.Table, started: float, **spent: Any) -> Effort:
    """The effort of answering all queries, from ``started`` to now."""
    seconds = round(time.perf_counter() - started, 6)
    return Effort(fresh=queries.num_rows, total=queries.num_rows, unit="queries", query_seconds=seconds, **spent)


@stage(version=2)
def score(
    workspace: Workspace,
    hits: TableRef,
    truth: TruthRef,
    documents: TableRef,
    chunks: TableRef,
    metrics: list[str],
    ks: list[int],
) -> TableRef:
    """Score every answerable query by every metric at every k."""
    passages = passages_of(workspace.read_table(hits))
    tables = TruthTables(workspace.read_table(truth.queries), workspace.read_table(truth.answers))
    if truth.evaluation_type == "token-level":
        scores = score_token_level(
            passages,
            tables,
            metrics,
            ks,
            documents=documents_from_table(workspace.read_table(documents)),
            chunks=workspace.read_table(chunks),
        )
    else:
        scores = score_chunk_level(passages, tables, metrics, ks)
    count = tables.queries.num_rows
    effort = Effort(fresh=count, total=count, unit="queries")
    return workspace.write_table("scores", scores, effort)
