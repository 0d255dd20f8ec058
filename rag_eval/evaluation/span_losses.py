"""The loss decomposition at token level."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from rag_eval.errors import TableError
from rag_eval.evaluation.losses import HitStages, check_ks, losses_table
from rag_eval.evaluation.oracle import TruthLine, best_cover, useful_chunks
from rag_eval.metrics.formulas import Counts
from rag_eval.metrics.span_sweep import SpanRows, SpanSweep
from rag_eval.metrics.table_input import LAST_POSITION, RowOrder, match_rows, number_strings, span_rows
from rag_eval.tables import CHUNKS, TRUTH_SPANS, TokenLevelTruthTables, check_schema


def token_level_losses(
    chunks: pa.Table, truth: TokenLevelTruthTables, stages: HitStages, ks: Sequence[int]
) -> pa.Table:
    """The parts of the loss in ``span_recall``: a ``LOSSES`` row for each k and answerable query, in this order.

    ``chunks`` are all that were indexed. The parts are those of ``rag_eval.evaluation.losses``; the oracle@k is exact.
    ``final_recall`` equals the ``span_recall`` of ``score_token_level``; a query without hits has 0.
    Raises ``ConfigurationError`` on ks that cannot be used; ``TableError`` on a row that holds no character, has a
    wrong rank or names an unknown query, and on a hit that is not one of the chunks; ``GroundTruthError`` on a query
    without truth that is not declared unanswerable.
    """
    check_ks(ks)
    check_schema(chunks, CHUNKS, "chunks")
    check_schema(truth.spans, TRUTH_SPANS, "truth spans")
    hits = stages.tables()
    matched = {stage: match_rows(truth.queries, table, truth.spans) for stage, table in hits.items()}
    columns = [table.column("doc_id") for table in (chunks, truth.spans, *hits.values())]
    (chunk_doc, truth_doc, *hit_docs), doc_ids = number_strings(columns)
    chunk_rows = span_rows(chunks, chunk_doc, RowOrder(slice(None), np.array([0, len(chunk_doc)])), "chunks")
    truth_rows = span_rows(truth.spans, truth_doc, matched["exact"].truth, "truth spans")
    hit_rows = {
        stage: span_rows(table, doc, matched[stage].hits, f"{stage} hits").first(max(ks))
        for (stage, table), doc in zip(hits.items(), hit_docs, strict=True)
    }
    last_end = _last_end([chunk_rows, truth_rows, *hit_rows.values()])
    for stage, rows in hit_rows.items():
        _check_places(rows, chunk_rows, doc_ids, stage)

    line = TruthLine(truth_rows, last_end)
    candidates = line.project(useful_chunks(chunk_rows, truth_rows))
    best = best_cover(candidates, line.lengths, max(ks))
    return losses_table(
        matched["exact"].query_ids,
        ks,
        line.lengths,
        _covered(candidates, line.lengths, [None])[0],
        np.stack([best[min(k, len(best)) - 1] for k in ks]),
        {stage: _covered(line.project(rows), line.lengths, ks) for stage, rows in hit_rows.items()},
    )


def _covered(projected: SpanRows, lengths: Counts, ks: Sequence[int | None]) -> Counts:
    """How much of the truth the first k spans cover, a row for each k, from intervals of the truth."""
    queries = len(lengths)
    whole = SpanRows(np.arange(queries + 1), np.zeros_like(lengths), np.zeros_like(lengths), lengths)
    sweep = SpanSweep(projected, whole, documents=1, last_end=int(lengths.max(initial=0)))
    return np.stack([sweep.covered(k) for k in ks])


def _last_end(rows: Sequence[SpanRows]) -> int:
    """The furthest end; raises ``TableError`` when it leaves no room for all rows on one line of positions."""
    furthest = max(int(spans.end.max(initial=0)) for spans in rows)
    if sum(len(spans.end) for spans in rows) * (furthest + 2) > LAST_POSITION:
        raise TableError(
            f"ends up to {furthest} are more than tables of this size can be numbered with: check the ends"
        )
    return furthest


def _check_places(hits: SpanRows, chunks: SpanRows, doc_ids: pa.Array, stage: str) -> None:
    """Raise ``TableError`` unless every hit is at the place of a chunk: no oracle bounds what is not."""
    size = int(max(chunks.end.max(initial=0), hits.end.max(initial=0))) + 1
    start = np.concatenate([chunks.doc * size + chunks.start, hits.doc * size + hits.start])
    # Numbered starts leave room for the end in one integer.
    place = np.unique(start, return_inverse=True)[1] * size + np.concatenate([chunks.end, hits.end])
    chunk_place, hit_place = np.split(place, [len(chunks.doc)])
    strange = np.flatnonzero(~np.isin(hit_place, chunk_place))
    if len(strange):
        row = int(strange[0])
        raise TableError(
            f"the {stage} hits have [{hits.start[row]}, {hits.end[row]}) of {doc_ids[int(hits.doc[row])].as_py()!r}, "
            f"which is not a chunk ({len(strange)} such hits): give the chunks that were searched"
        )
