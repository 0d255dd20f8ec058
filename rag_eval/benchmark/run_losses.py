"""Where a retriever loses recall, from its parts and the ground truth alone."""

from collections.abc import Sequence
from typing import Any, overload

import pyarrow as pa

from rag_eval.benchmark.experiment import CheckedSystem, check_truth, checked_truth
from rag_eval.benchmark.hits import chunk_hits_table, span_hits_table
from rag_eval.errors import ConfigurationError, preview
from rag_eval.metrics.losses import HitStages, check_ks, chunk_level_losses, token_level_losses
from rag_eval.retrieval.vector import VectorRAGRetriever
from rag_eval.tables import chunk_truth_to_tables, chunks_to_table, token_truth_to_tables
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus, check_corpus
from rag_eval.types.ground_truth import ChunkLevelGroundTruth, TokenLevelGroundTruth


@overload
def retrieval_losses(
    retriever: VectorRAGRetriever[PositionAwareChunk],
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth],
    ks: Sequence[int],
) -> pa.Table: ...


@overload
def retrieval_losses(
    retriever: VectorRAGRetriever[Chunk],
    corpus: Corpus,
    ground_truth: Sequence[ChunkLevelGroundTruth],
    ks: Sequence[int],
) -> pa.Table: ...


def retrieval_losses(
    retriever: VectorRAGRetriever[Any],
    corpus: Corpus,
    ground_truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth],
    ks: Sequence[int],
) -> pa.Table:
    """Index the corpus, retrieve at every stage, and split what is missing: a ``LOSSES`` row for each k and query.

    The parts are those of ``rag_eval.metrics.losses``; ``average_losses`` gives their means. With another store
    than the one in memory the chunks are embedded once more, for the exact search: a ``CachedEmbedder`` saves that.
    Raises as ``run_experiment`` does.
    """
    check_ks(ks)
    check_corpus(corpus)
    if not isinstance(retriever, VectorRAGRetriever):
        raise ConfigurationError(f"{preview(repr(retriever))} has no stages to compare: give a VectorRAGRetriever")
    if retriever.evaluation_type == "token-level":
        truth = checked_truth(ground_truth, TokenLevelGroundTruth)
        check_truth("token-level", truth, corpus)
        retriever.index(corpus)
        queries = [item.query for item in truth]
        tables = [span_hits_table(queries, found, corpus) for found in retriever.stages(queries, max(ks))]
        chunks = chunks_to_table(retriever.indexed_chunks())
        return token_level_losses(chunks, token_truth_to_tables(truth), HitStages(*tables), ks)
    chunk_truth = checked_truth(ground_truth, ChunkLevelGroundTruth)
    check_truth("chunk-level", chunk_truth, corpus)
    CheckedSystem(retriever, chunk_truth).index(corpus)
    queries = [item.query for item in chunk_truth]
    tables = [chunk_hits_table(queries, found) for found in retriever.stages(queries, max(ks))]
    chunks = chunks_to_table(retriever.indexed_chunks())
    return chunk_level_losses(chunks, chunk_truth_to_tables(chunk_truth), HitStages(*tables), ks)
