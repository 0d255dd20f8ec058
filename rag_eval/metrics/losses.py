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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.metrics.chroma import touching_chunks
from rag_eval.metrics.groups import best_members, has_groups
from rag_eval.metrics.intervals import merge_sorted
from rag_eval.metrics.metric import ALL, Counts, Cut, check_cut
from rag_eval.metrics.sweep import ChunkSweep, SpanRows, SpanSweep, running_sums
from rag_eval.metrics.table_rows import LAST_POSITION, RowOrder, match_rows, number_strings, span_rows
from rag_eval.tables import CHUNKS, PLACE, TruthTables, as_passages, check_schema, schema_of

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


def losses_table(
    query_ids: pa.Array,
    ks: Sequence[int],
    truth: Counts,
    present: Counts,
    oracle: Counts,
    reached: Mapping[str, Counts],
) -> pa.Table:
    """The ``LOSSES`` table from counts.

    ``truth`` and ``present`` are, by query, how much there is to find and how much of it all chunks hold together.
    ``oracle`` and the stages of ``reached`` have a row for each k: how much of it k chunks could reach, and did.
    """
    steps = np.broadcast_arrays(truth, present, oracle, reached["exact"], reached["approximate"], reached["final"])
    # Whole numbers until the one division: what is not lost is 0, not nearly 0.
    parts = [(more - less) / truth for more, less in pairwise(steps)]
    columns = [
        pa.chunked_array([query_ids for _ in ks], pa.string()),
        pa.array(np.repeat(np.array(ks, dtype=np.int32), len(query_ids))),
        *(pa.array(part.ravel()) for part in (*parts, reached["final"] / truth)),
    ]
    return pa.Table.from_arrays(columns, schema=LOSSES)


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
    check_ks(ks)
    check_schema(chunks, CHUNKS, "chunks", PLACE)
    hits = stages.tables()
    if has_groups(truth):
        truth = best_members(truth, hits["final"], Cut("hits", max(ks)), {})
    matched = {stage: match_rows(truth, table) for stage, table in hits.items()}
    columns = [table.column("doc_id") for table in (chunks, truth.answers, *hits.values())]
    (chunk_doc, truth_doc, *hit_docs), doc_ids = number_strings(columns)
    chunk_rows = span_rows(chunks, chunk_doc, RowOrder(slice(None), np.array([0, len(chunk_doc)])), "chunks")
    truth_rows = span_rows(truth.answers, truth_doc, matched["exact"].truth, "truth")
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
        _covered(candidates, line.lengths, [ALL])[0],
        np.stack([best[min(k, len(best)) - 1] for k in ks]),
        {stage: _covered(line.project(rows), line.lengths, _cuts(ks)) for stage, rows in hit_rows.items()},
    )


def _cuts(ks: Sequence[int]) -> list[Cut]:
    return [Cut("hits", k) for k in ks]


def _covered(projected: SpanRows, lengths: Counts, cuts: Sequence[Cut]) -> Counts:
    """How much of the truth the first spans cover, a row for each cut, from intervals of the truth."""
    queries = len(lengths)
    whole = SpanRows(np.arange(queries + 1), np.zeros_like(lengths), np.zeros_like(lengths), lengths)
    sweep = SpanSweep(projected, whole, documents=1, last_end=int(lengths.max(initial=0)))
    return np.stack([sweep.covered(cut) for cut in cuts])


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


def chunk_level_losses(chunks: pa.Table, truth: TruthTables, stages: HitStages, ks: Sequence[int]) -> pa.Table:
    """The parts of the loss in ``chunk_recall``: a ``LOSSES`` row for each k and answerable query, in this order.

    ``chunks`` are all that were indexed. The parts are those of
    ``rag_eval.metrics.losses`` with oracle@all = relevant ids among the chunks / relevant ids, and
    oracle@k = min(k, relevant ids among the chunks) / relevant ids. ``final_recall`` equals the ``chunk_recall`` of
    ``score_chunk_level``; a query without hits has 0.
    Raises ``ConfigurationError`` on ks that cannot be used; ``TableError`` on a row that has a wrong rank or names an
    unknown query, and on a hit that is not one of the chunks; ``GroundTruthError`` on a query without truth that is
    not declared unanswerable.
    """
    check_ks(ks)
    check_schema(chunks, CHUNKS, "chunks")
    hits = stages.tables()
    if has_groups(truth):
        truth = best_members(truth, hits["final"], Cut("hits", max(ks)), {})
    matched = {stage: match_rows(truth, table, ["chunk_id"]) for stage, table in hits.items()}
    columns = [table.column("chunk_id") for table in (chunks, truth.answers, *hits.values())]
    (indexed, relevant, *found), ids = number_strings(columns)
    offsets = matched["exact"].truth.offsets
    relevant = relevant[matched["exact"].truth.rows]
    reached = {}
    for stage, retrieved in zip(hits, found, strict=True):
        _check_ids(retrieved, indexed, ids, stage)
        order = matched[stage].hits
        sweep = ChunkSweep(retrieved[order.rows], order.offsets, relevant, offsets, len(ids))
        reached[stage] = np.stack([sweep.covered(cut) for cut in _cuts(ks)])
    kept = np.isin(relevant, indexed)
    everything = ChunkSweep(relevant[kept], running_sums(kept.astype(np.int64))[offsets], relevant, offsets, len(ids))
    present = everything.retrieved(ALL)
    oracle = np.minimum(np.array(ks)[:, np.newaxis], present)
    return losses_table(matched["exact"].query_ids, ks, everything.truth, present, oracle, reached)


def _check_ids(retrieved: Counts, indexed: Counts, ids: pa.Array, stage: str) -> None:
    """Raise ``TableError`` unless every hit is one of the chunks: no oracle bounds what is not."""
    strange = retrieved[~np.isin(retrieved, indexed)]
    if len(strange):
        raise TableError(
            f"the {stage} hits have {ids[int(strange[0])].as_py()!r}, which is not a chunk ({len(strange)} such hits): "
            "give the chunks that were searched"
        )


# The oracle. The truth of a query without its gaps is one line, and a chunk covers an interval of it. The best k
# intervals are found exactly, for all queries at once.


class TruthLine:
    """The truth of every query without its gaps; no end, of truth or of what is projected, is beyond ``last_end``."""

    def __init__(self, truth: SpanRows, last_end: int) -> None:
        query = truth.numbers()
        self._documents = int(truth.doc.max(initial=0)) + 1
        self._size = last_end + 1
        # Only the pairs (query, document) that have truth get a stretch: the numbers stay small in a large corpus.
        self._pairs, pair = np.unique(query * self._documents + truth.doc, return_inverse=True)
        start = pair * self._size + truth.start
        order = np.argsort(start, kind="stable")
        self._starts, ends, first = merge_sorted(start[order], (pair * self._size + truth.end)[order])
        self._lengths = ends - self._starts
        self._before = np.cumsum(self._lengths) - self._lengths
        self.lengths: Counts = np.bincount(query[order][first], self._lengths, truth.queries).astype(np.int64)
        """The characters of the merged truth of each query."""

    def project(self, rows: SpanRows) -> SpanRows:
        """The interval of the truth of its query that each span holds; empty where it holds none."""
        query = rows.numbers()
        key = query * self._documents + rows.doc
        pair = np.searchsorted(self._pairs, key)
        known = (rows.doc < self._documents) & (np.append(self._pairs, -1)[pair] == key)
        start, end = (
            np.where(known, self._truth_before(pair * self._size + position, query), 0)
            for position in (rows.start, rows.end)
        )
        return SpanRows(rows.offsets, np.zeros_like(rows.doc), start, end)

    def _truth_before(self, position: Counts, query: Counts) -> Counts:
        """How many truth characters of the query stand before a position of one of its documents."""
        segment = np.searchsorted(self._starts, position, side="right") - 1
        reached = np.minimum(position - self._starts[segment], self._lengths[segment]) + self._before[segment]
        before_query: Counts = (np.cumsum(self.lengths) - self.lengths)[query]
        return np.where(segment < 0, 0, reached) - before_query


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
    offsets = np.array([0, len(widest)])
    return touching_chunks(truth, SpanRows(offsets, chunks.doc[widest], chunks.start[widest], chunks.end[widest]))


def best_cover(chunks: SpanRows, lengths: Counts, most: int) -> Counts:
    """The most characters of ``[0, length)`` of each query that 1, 2, … of its chunks cover together, a row a number.

    There are at most ``most`` rows; where there are fewer, further chunks add nothing to the last row.

    With B(j, x) the most that j chunks cover before position x, and s the earliest start of all chunks that hold the
    character before x: B(j, x) is the larger of B(j, x') at the border x' before x, and B(j - 1, s) + x - s, for if
    that character is covered at all, then no chunk does it better than the one that starts at s. Only the borders of
    chunks are looked at, and a character within two chosen chunks counts once.
    """
    # One position between the queries, so that the end of one is not the start of the next.
    first = np.cumsum(lengths + 1) - lengths - 1
    query = chunks.numbers()
    start, end = first[query] + chunks.start, first[query] + chunks.end
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    border = np.unique(np.concatenate([first, start, end]))
    # The first chunk, by start, that reaches a border holds the character before it, or none does.
    earliest = np.append(start, border[-1:])[np.searchsorted(reach, border)]
    held = np.flatnonzero(earliest < border)
    before, gain = np.searchsorted(border, earliest[held]), border[held] - earliest[held]
    # A query's amounts are counted from its first position: none before can pass them.
    nothing = first[np.searchsorted(first, border, side="right") - 1]
    last = np.searchsorted(border, first + lengths, side="right") - 1
    best = nothing
    rows: list[Counts] = []
    for _ in range(most):
        reached = nothing.copy()
        reached[held] = best[before] + gain
        reached = np.maximum.accumulate(reached)
        if rows and np.array_equal(reached, best):
            break
        best = reached
        rows.append(best[last] - first)
    return np.stack(rows)
