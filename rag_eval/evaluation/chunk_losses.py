"""The loss decomposition at chunk level."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rag_eval.errors import TableError
from rag_eval.evaluation.losses import HitStages, check_ks, losses_table
from rag_eval.metrics.chunk_sweep import ChunkSweep
from rag_eval.metrics.formulas import Counts
from rag_eval.metrics.span_sweep import running_sums
from rag_eval.metrics.table_input import match_rows, number_strings
from rag_eval.tables import CHUNK_HITS, PLAIN_CHUNKS, TRUTH_CHUNKS, ChunkLevelTruthTables, check_schema


def chunk_level_losses(
    chunks: pa.Table, truth: ChunkLevelTruthTables, stages: HitStages, ks: Sequence[int]
) -> pa.Table:
    """The parts of the loss in ``chunk_recall``: a ``LOSSES`` row for each k and answerable query, in this order.

    ``chunks`` are all that were indexed, the hits have the schema ``CHUNK_HITS``. The parts are those of
    ``rag_eval.evaluation.losses`` with oracle@all = relevant ids among the chunks / relevant ids, and
    oracle@k = min(k, relevant ids among the chunks) / relevant ids. ``final_recall`` equals the ``chunk_recall`` of
    ``score_chunk_level``; a query without hits has 0.
    Raises ``ConfigurationError`` on ks that cannot be used; ``TableError`` on a row that has a wrong rank or names an
    unknown query, and on a hit that is not one of the chunks; ``GroundTruthError`` on a query without truth that is
    not declared unanswerable.
    """
    check_ks(ks)
    check_schema(chunks, PLAIN_CHUNKS, "chunks")
    check_schema(truth.chunks, TRUTH_CHUNKS, "truth chunks")
    hits = stages.tables()
    matched = {stage: match_rows(truth.queries, table, truth.chunks, CHUNK_HITS) for stage, table in hits.items()}
    columns = [table.column("chunk_id") for table in (chunks, truth.chunks, *hits.values())]
    (indexed, relevant, *found), ids = number_strings(columns)
    offsets = matched["exact"].truth.offsets
    relevant = relevant[matched["exact"].truth.rows]
    reached = {}
    for stage, retrieved in zip(hits, found, strict=True):
        _check_ids(retrieved, indexed, ids, stage)
        order = matched[stage].hits
        sweep = ChunkSweep(retrieved[order.rows], order.offsets, relevant, offsets, len(ids))
        reached[stage] = np.stack([sweep.gains(k).sum(axis=0) for k in ks])
    kept = np.isin(relevant, indexed)
    everything = ChunkSweep(relevant[kept], running_sums(kept.astype(np.int64))[offsets], relevant, offsets, len(ids))
    present = everything.distinct(None)
    oracle = np.minimum(np.array(ks)[:, np.newaxis], present)
    return losses_table(matched["exact"].query_ids, ks, everything.relevant, present, oracle, reached)


def _check_ids(retrieved: Counts, indexed: Counts, ids: pa.Array, stage: str) -> None:
    """Raise ``TableError`` unless every hit is one of the chunks: no oracle bounds what is not."""
    strange = retrieved[~np.isin(retrieved, indexed)]
    if len(strange):
        raise TableError(
            f"the {stage} hits have {ids[int(strange[0])].as_py()!r}, which is not a chunk ({len(strange)} such hits): "
            "give the chunks that were searched"
        )
