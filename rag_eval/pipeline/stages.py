"""The stages: each reads tables by reference, calls the library once and keeps what it made.

Raise a stage's version whenever the same inputs would give another result.
"""

import numpy as np
import pyarrow as pa

from rag_eval.config.chunkers import ChunkerConfig
from rag_eval.config.embedders import LocalEmbedderConfig
from rag_eval.digests import data_sha256
from rag_eval.embedding.base import Vectors, embed_queries
from rag_eval.errors import ArtifactError
from rag_eval.ground_truth.check import check_against_corpus
from rag_eval.ground_truth.native import read_token_level
from rag_eval.metrics.table import score_token_level
from rag_eval.pipeline.references import CorpusSource, IndexRef, TableRef, TokenLevelTruthRef, TruthSource
from rag_eval.pipeline.stage import stage
from rag_eval.pipeline.workspace import Workspace
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.tables import (
    HITS,
    TokenLevelTruthTables,
    chunks_to_table,
    documents_from_table,
    documents_to_table,
    embeddings_schema,
    token_truth_to_tables,
)
from rag_eval.types.document import Corpus
from rag_eval.types.ids import text_sha256


@stage(version=1)
def load_corpus(workspace: Workspace, source: CorpusSource) -> TableRef:
    """Read the documents of a folder."""
    corpus = Corpus.from_folder(source.folder, source.glob)
    if CorpusSource.of(source.folder, source.glob).digest != source.digest:
        raise ArtifactError(f"the corpus folder {str(source.folder)!r} changed while it was read: run again")
    return workspace.write_table("documents", documents_to_table(corpus))


@stage(version=1)
def load_ground_truth(workspace: Workspace, source: TruthSource, documents: TableRef) -> TokenLevelTruthRef:
    """Read the ground truth and hold it against the documents."""
    truth = read_token_level(source.path)
    if TruthSource.of(source.path).digest != source.digest:
        raise ArtifactError(f"the ground-truth file {str(source.path)!r} changed while it was read: run again")
    check_against_corpus(truth, Corpus(documents_from_table(workspace.read_table(documents))))
    tables = token_truth_to_tables(truth)
    return TokenLevelTruthRef(
        queries=workspace.write_table("queries", tables.queries),
        spans=workspace.write_table("truth-spans", tables.spans),
    )


@stage(version=1)
def chunk(workspace: Workspace, documents: TableRef, chunker: ChunkerConfig) -> TableRef:
    """Cut every document into chunks that know their place."""
    built = chunker.build()
    chunks = [
        piece
        for document in documents_from_table(workspace.read_table(documents))
        for piece in built.chunk_with_positions(document)
    ]
    return workspace.write_table("chunks", chunks_to_table(chunks))


@stage(version=1)
def embed(workspace: Workspace, chunks: TableRef, embedder: LocalEmbedderConfig) -> TableRef:
    """Embed every distinct chunk text once."""
    texts = {text_sha256(text): text for text in workspace.read_table(chunks).column("content").to_pylist()}
    built = embedder.build()
    vectors = built.embed(list(texts.values()))
    schema = embeddings_schema(built.dimension)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field("vector").type)
    return workspace.write_table("embeddings", pa.Table.from_arrays([pa.array(list(texts)), flat], schema=schema))


@stage(version=1)
def index(workspace: Workspace, chunks: TableRef, embeddings: TableRef) -> IndexRef:
    """Put the chunks with their vectors into a LanceDB table."""
    table = workspace.read_table(chunks)
    vectors = _vectors_of(table.column("content").to_pylist(), workspace.read_table(embeddings))
    return workspace.write_index(
        data_sha256([chunks.digest, embeddings.digest]),
        table.num_rows,
        lambda folder: LanceDBVectorStore(folder).add_table(table, vectors),
    )


@stage(version=1)
def retrieve(
    workspace: Workspace, index: IndexRef, queries: TableRef, embedder: LocalEmbedderConfig, k: int
) -> TableRef:
    """Find the k best chunks of every query."""
    problem = workspace.damage(index)
    if problem:
        raise ArtifactError(f"{problem}: run again to make it anew")
    asked = workspace.read_table(queries)
    vectors = embed_queries(embedder.build(), asked.column("text").to_pylist())
    store = LanceDBVectorStore(workspace.root / index.uri)
    found = store.search_many(vectors, k)
    query, rank = np.nonzero(found.numbers >= 0)
    hits = store.take(found.numbers[query, rank], ["doc_id", "start", "end", "chunk_id"])
    hits = hits.append_column("query_id", asked.column("query_id").take(pa.array(query)))
    hits = hits.append_column("rank", pa.array((rank + 1).astype(np.int32)))
    hits = hits.append_column("score", pa.array(found.scores[query, rank]))
    return workspace.write_table("hits", hits.select(HITS.names).cast(HITS))


@stage(version=1)
def score(workspace: Workspace, hits: TableRef, truth: TokenLevelTruthRef, metrics: list[str], k: int) -> TableRef:
    """Score every answerable query."""
    tables = TokenLevelTruthTables(workspace.read_table(truth.queries), workspace.read_table(truth.spans))
    return workspace.write_table("scores", score_token_level(workspace.read_table(hits), tables, metrics, [k]))


def _vectors_of(texts: list[str], embeddings: pa.Table) -> Vectors:
    """The vector of each text, by its sha256."""
    column = embeddings.column("vector").combine_chunks()
    matrix = column.values.to_numpy().reshape(-1, column.type.list_size)
    rows = {digest: row for row, digest in enumerate(embeddings.column("text_sha256").to_pylist())}
    vectors: Vectors = matrix[[rows[text_sha256(text)] for text in texts]]
    return vectors
