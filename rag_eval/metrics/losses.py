"""Where recall is lost on the way from the documents to the hits.

Every recall below is that of one query; at token level it is ``span_recall`` in characters, at chunk level
``chunk_recall``. *Oracle@all* is the recall if every chunk were retrieved, *oracle@k* the best that any choice of k
chunks could reach, *exact@k*, *approximate@k* and *final@k* those of the first k hits of exact search, of the index
that was really used, and after the reranker.

==============  ============================  ========================================================================
part            formula                       what it tells
==============  ============================  ========================================================================
``uncovered``   1 - oracle@all                in no chunk at all: the chunker lost it, and nothing after can find it
``boundary``    oracle@all - oracle@k         spread over more than k chunks: cut otherwise, or retrieve more
``search``      oracle@k - exact@k            in chunks that would have fitted, but others were nearer to the query
``index``       exact@k - approximate@k       found by the exact search, missed by the approximate one
``reranker``    approximate@k - final@k       moved out of the first k by the reranker
==============  ============================  ========================================================================

The five add up to 1 - final@k. The first three are never negative. A negative ``reranker`` is a gain: it brought truth
into the first k that had not been there. A negative ``index`` is luck: a hit that the exact search ranks lower holds
more truth than the one that was missed. Without an approximate index, or without a reranker, that part is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.metrics.metric import ALL, Counts, Cut, check_cut
from rag_eval.metrics.sweep import SpanRows, SpanSweep, touching_chunks
from rag_eval.metrics.table_rows import TableRows, read_rows
from rag_eval.tables import TruthTables, as_passages, check_schema, schema_of
from rag_eval.types.ids import EvaluationType

LOSS_PARTS = ("uncovered", "boundary", "search", "index", "reranker")
"""The parts, in the order in which they come about."""

SHARES = (*LOSS_PARTS, "final_recall")

LOSSES = schema_of(query_id=pa.string(), k=pa.int32(), **dict.fromkeys(SHARES, pa.float64()))
"""A row for each k and answerable query: the parts of 1 - ``final_recall``, and this."""

AVERAGE_LOSSES = schema_of(k=pa.int32(), **dict.fromkeys(SHARES, pa.float64()), n=pa.int64())
"""A row for each k: the means over n queries."""


@dataclass(frozen=True)
class HitStages:
    """The hits of one retrieval at its three stages, each at least as deep as the largest k.

    They are ``HITS`` tables.
    ``approximate`` is left out where the search is exact, ``final`` where nothing is reranked. A hit that was not
    fetched counts as not found: where the exact hits are fewer than k, that is lost by the search.
    """

    exact: pa.Table
    approximate: pa.Table | None = None
    final: pa.Table | None = None

    def tables(self) -> dict[str, pa.Table]:
        """The hits, as passages, by the name of their stage; a stage that was left out has those of the one before."""
        approximate = self.exact if self.approximate is None else self.approximate
        final = approximate if self.final is None else self.final
        return {"exact": as_passages(self.exact), "approximate": as_passages(approximate), "final": as_passages(final)}


def average_losses(losses: pa.Table) -> pa.Table:
    """The mean of each part and of the final recall, and the number of queries, for each k in the order of its rows.

    The means of the parts add up to 1 - the mean final recall. No rows give no rows. Raises ``TableError`` when the
    table is not one of ``LOSSES``.
    """
    check_schema(losses, LOSSES, "losses")
    # On several threads the order of the groups would be left to chance.
    groups = losses.group_by("k", use_threads=False)
    means = groups.aggregate([*((name, "mean") for name in SHARES), ("k", "count")])
    columns = [means.column("k"), *(means.column(f"{name}_mean") for name in SHARES), means.column("k_count")]
    return pa.Table.from_arrays(columns, names=AVERAGE_LOSSES.names).cast(AVERAGE_LOSSES)


def check_ks(ks: Sequence[int]) -> None:
    """Raise ``ConfigurationError`` unless there are ks, whole numbers of 1 or more, each once."""
    if not ks or None in ks:
        raise ConfigurationError(f"ks is {list(ks)!r}: a loss is that of the first k hits, give at least one number")
    for k in ks:
        check_cut(k, "ks")
    if len(set(ks)) < len(ks):
        raise ConfigurationError(f"ks is {list(ks)!r}, with an entry twice: ask for each k once")


def token_level_losses(chunks: pa.Table, truth: TruthTables, stages: HitStages, ks: Sequence[int]) -> pa.Table:
    """The parts of the loss in ``span_recall``: a ``LOSSES`` row for each k and answerable query, in this order.

    ``chunks`` are all that were indexed. The parts are those of ``rag_eval.metrics.losses``; the oracle@k is exact.
    ``final_recall`` equals the ``span_recall`` of ``score_token_level``; a query without hits has 0.
    Raises ``ConfigurationError`` on ks that cannot be used; ``TableError`` on a row that holds no character, has a
    wrong rank or names an unknown query, and on a hit that is not one of the chunks; ``GroundTruthError`` on a query
    without truth that is not declared unanswerable.
    """
    return _losses("token-level", chunks, truth, stages, ks)


def chunk_level_losses(chunks: pa.Table, truth: TruthTables, stages: HitStages, ks: Sequence[int]) -> pa.Table:
    """The parts of the loss in ``chunk_recall``: a ``LOSSES`` row for each k and answerable query, in this order.

    ``chunks`` are all that were indexed. The parts are those of ``rag_eval.metrics.losses`` with
    oracle@all = relevant ids among the chunks / relevant ids, and
    oracle@k = min(k, relevant ids among the chunks) / relevant ids. ``final_recall`` equals the ``chunk_recall`` of
    ``score_chunk_level``. Raises as ``token_level_losses`` does.
    """
    return _losses("chunk-level", chunks, truth, stages, ks)


def _losses(
    level: EvaluationType, chunks: pa.Table, truth: TruthTables, stages: HitStages, ks: Sequence[int]
) -> pa.Table:
    check_ks(ks)
    tables = {f"{stage} hits": table for stage, table in stages.tables().items()}
    rows = read_rows(level, truth, tables, chunks, max(ks))
    wanted = rows.truth_at(Cut("hits", max(ks)), "final hits")
    everything = SpanSweep(useful_chunks(rows.chunks, wanted), wanted)
    best = best_cover(everything, max(ks))
    reached = [everything.truth, everything.covered(ALL), np.stack([best[min(k, len(best)) - 1] for k in ks])]
    for what, hits in rows.hits.items():
        _check_places(rows, what, level)
        sweep = SpanSweep(hits, wanted)
        reached.append(np.stack([sweep.covered(Cut("hits", k)) for k in ks]))
    # Whole numbers until the one division: what is not lost is 0, not nearly 0.
    parts = [(more - less) / everything.truth for more, less in pairwise(np.broadcast_arrays(*reached))]
    columns = [
        pa.chunked_array([rows.query_ids for _ in ks], pa.string()),
        pa.array(np.repeat(np.array(ks, dtype=np.int32), len(rows.query_ids))),
        *(pa.array(part.ravel()) for part in (*parts, reached[-1] / everything.truth)),
    ]
    return pa.Table.from_arrays(columns, schema=LOSSES)


def _check_places(rows: TableRows, what: str, level: EvaluationType) -> None:
    """Raise ``TableError`` unless every hit is at the place of a chunk: no oracle bounds what is not."""
    chunks, hits = rows.chunks, rows.hits[what]
    size = int(max(chunks.end.max(initial=0), hits.end.max(initial=0))) + 1
    start = np.concatenate([chunks.doc * size + chunks.start, hits.doc * size + hits.start])
    # Numbered starts leave room for the end in one integer.
    place = np.unique(start, return_inverse=True)[1] * size + np.concatenate([chunks.end, hits.end])
    chunk_place, hit_place = np.split(place, [len(chunks.doc)])
    strange = np.flatnonzero(~np.isin(hit_place, chunk_place))
    if len(strange):
        row = int(strange[0])
        of_document = f"[{hits.start[row]}, {hits.end[row]}) of " if level == "token-level" else ""
        raise TableError(
            f"the {what} have {of_document}{rows.ids[int(hits.doc[row])].as_py()!r}, "
            f"which is not a chunk ({len(strange)} such hits): give the chunks that were searched"
        )


def useful_chunks(chunks: SpanRows, truth: SpanRows) -> SpanRows:
    """For each query the chunks that reach its truth, without those that lie within another chunk.

    ``chunks`` are those of the corpus, as the rows of one query. A chunk within another covers nothing that the other
    does not: leaving it out changes no oracle.
    """
    size = int(chunks.end.max(initial=0)) + 1
    start, end = chunks.doc * size + chunks.start, chunks.doc * size + chunks.end
    order = np.lexsort((-end, start))
    reach = np.maximum.accumulate(end[order])
    widest = order[np.append(True, reach[1:] > reach[:-1])[: len(order)]]
    return touching_chunks(truth, chunks.take(widest, np.array([0, len(widest)])))


def best_cover(chunks: SpanSweep, most: int) -> Counts:
    """How much of the truth 1, 2, … chunks of a query can cover together at most, a row a number; hits are the chunks.

    The truth of a query without its gaps is one line, and a chunk covers an interval of it.
    There are at most ``most`` rows; where there are fewer, further chunks add nothing to the last row.

    With B(j, x) the most that j chunks cover before position x, and s the earliest start of all chunks that hold the
    character before x: B(j, x) is the larger of B(j, x') at the border x' before x, and B(j - 1, s) + x - s, for if
    that character is covered at all, then no chunk does it better than the one that starts at s. Only the borders of
    chunks are looked at, and a character within two chosen chunks counts once.
    """
    first, last = np.cumsum(chunks.truth + 1) - chunks.truth - 1, np.cumsum(chunks.truth + 1) - 1
    start, end = chunks.on_truth()
    reach = np.maximum.accumulate(end)
    border = np.unique(np.concatenate([first, start, end]))
    # The first chunk, by start, that reaches a border holds the character before it, or none does.
    earliest = np.append(start, border[-1:])[np.searchsorted(reach, border)]
    held = np.flatnonzero(earliest < border)
    before, gain = np.searchsorted(border, earliest[held]), border[held] - earliest[held]
    # A query's amounts are counted from its first position: none before can pass them.
    nothing = first[np.searchsorted(first, border, side="right") - 1]
    at_last = np.searchsorted(border, last, side="right") - 1
    best = nothing
    rows: list[Counts] = []
    for _ in range(most):
        reached = nothing.copy()
        reached[held] = best[before] + gain
        reached = np.maximum.accumulate(reached)
        if rows and np.array_equal(reached, best):
            break
        best = reached
        rows.append(best[at_last] - first)
    return np.stack(rows)
