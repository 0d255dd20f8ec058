"""The most recall that any k chunks could reach: what a chunking allows, whatever is searched with.

The truth of a query without its gaps is one line, and a chunk covers an interval of it. The best k intervals are found
exactly, for all queries at once.
"""

import numpy as np

from rag_eval.metrics.chroma import touching_chunks
from rag_eval.metrics.intervals import merge_sorted
from rag_eval.metrics.metric import Counts
from rag_eval.metrics.sweep import SpanRows


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
