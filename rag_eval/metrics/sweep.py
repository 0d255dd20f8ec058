"""``ChunkCounts`` of many queries at once."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rag_eval.metrics.metric import Counts, Values, discounted_gain


@dataclass(frozen=True)
class SpanRows:
    """Spans of many queries, by query; ``offsets[i]:offsets[i + 1]`` are those of query i, hits best first."""

    offsets: Counts
    doc: Counts
    start: Counts
    end: Counts

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return len(self.offsets) - 1

    def block(self, first: int, last: int) -> "SpanRows":
        """The spans of the queries from ``first`` to before ``last``."""
        offsets = self.offsets[first : last + 1]
        rows = slice(offsets[0], offsets[-1])
        return SpanRows(offsets - offsets[0], self.doc[rows], self.start[rows], self.end[rows])

    def first(self, k: int | Counts) -> "SpanRows":
        """The first k spans of every query; k is one number, or one for each query."""
        counts = np.diff(self.offsets)
        if (counts <= k).all():
            return self
        kept = self.ranks() <= (k if isinstance(k, int) else np.repeat(k, counts))
        offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, k))])
        return SpanRows(offsets, self.doc[kept], self.start[kept], self.end[kept])

    def ranks(self) -> Counts:
        """The rank of each span within its query, from 1."""
        return np.arange(1, len(self.doc) + 1) - np.repeat(self.offsets[:-1], np.diff(self.offsets))


@dataclass(frozen=True)
class _Segments:
    """Intervals on the line, by start; ``mark`` is the rank of a hit, or how many truth spans hold the segment."""

    start: Counts
    end: Counts
    mark: Counts
    query: Counts


class _Crowd:
    """The segments that overlap another: they alone make the union of segments shorter than the sum of their lengths.

    So the sweep along the line, which every rank needs again, is over these only.
    """

    def __init__(self, segments: _Segments, queries: int) -> None:
        late = segments.start[1:] < np.maximum.accumulate(segments.end)[:-1]
        crowded = np.flatnonzero(np.append(late, False) | np.append(False, late))[: len(segments.end)]
        self._start, self._end = segments.start[crowded], segments.end[crowded]
        self._rank, self._query = segments.mark[crowded], segments.query[crowded]
        self._queries = queries
        self._repeated: dict[int | None, Counts] = {}

    def repeated(self, k: int | None) -> Counts:
        """By how much the sum of the segments up to rank k exceeds their union, by query."""
        if k not in self._repeated:
            end = self._end if k is None else np.where(self._rank <= k, self._end, 0)
            again = np.minimum(np.maximum.accumulate(end)[:-1], end[1:]) - self._start[1:]
            repeated = np.bincount(self._query[1:], np.maximum(again, 0), self._queries)
            self._repeated[k] = repeated.astype(np.int64)
        return self._repeated[k]


class _Cover:
    """How much of some truth segments the hits cover, by rank and query."""

    def __init__(self, hits: _Segments, truth: _Segments, queries: int, depth: int) -> None:
        segment, hit = overlapping_pairs(hits.start, hits.end, truth.start, truth.end)
        # In order along the line: the segments are disjoint, and within one the hits come by start.
        start = np.maximum(hits.start[hit], truth.start[segment])
        end = np.minimum(hits.end[hit], truth.end[segment])
        pieces = _Segments(start, end, hits.mark[hit], truth.query[segment])
        sums = np.bincount(pieces.mark * queries + pieces.query, end - start, (depth + 1) * queries)
        self._summed = np.cumsum(sums.astype(np.int64).reshape(depth + 1, queries), axis=0)
        self._crowd = _Crowd(pieces, queries)

    def covered(self, k: int | None) -> Counts:
        """What the first k hits cover."""
        depth = len(self._summed) - 1
        covered: Counts = self._summed[depth if k is None else min(k, depth)] - self._crowd.repeated(k)
        return covered


class SpanSweep:
    """``SpanCounts`` of a block of queries; document numbers are below ``documents``, ends are up to ``last_end``."""

    def __init__(self, hits: SpanRows, truth: SpanRows, documents: int, last_end: int) -> None:
        self._hit_rows = hits
        self._truth_rows = truth
        self._documents = documents
        self._bits = last_end.bit_length()
        self._queries = hits.queries
        self._depth = int(np.diff(hits.offsets).max(initial=0))

    @cached_property
    def truth(self) -> Counts:
        """As in ``SpanCounts``."""
        lengths = self._truth.end - self._truth.start
        return np.bincount(self._truth.query, lengths, self._queries).astype(np.int64)

    @cached_property
    def truth_total(self) -> Counts:
        """As in ``SpanCounts``."""
        return first_totals(running_sums(self._truth_rows.end - self._truth_rows.start), self._truth_rows.offsets, None)

    def covered(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return self._cover.covered(k)

    def uncovered_total(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        uncovered = self.truth_total - self.covered(k)
        for cover in self._covers_again:
            uncovered -= cover.covered(k)
        return uncovered

    def gains(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return self._gains[:k]

    def retrieved(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return self.retrieved_total(k) - self._crowd.repeated(k)

    def retrieved_total(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return first_totals(self._hit_sums, self._hit_rows.offsets, k)

    def ideal_gain(self, k: int | None) -> Values:
        """As in ``SpanCounts``."""
        return discounted_gain(self._truth_by_document[:k])

    @cached_property
    def _hits(self) -> _Segments:
        start, end, query = self._on_line(self._hit_rows)
        order = _order(start)
        rank = order + 1 - self._hit_rows.offsets[query]
        return _Segments(start[order], end[order], rank, query)

    @cached_property
    def _truth(self) -> _Segments:
        """The merged truth, each segment marked 1."""
        start, end, query = self._on_line(self._truth_rows)
        order = _order(start)
        start, reach = start[order], np.maximum.accumulate(end[order])
        first = np.flatnonzero(np.append(True, start[1:] > reach[:-1])[: len(start)])
        last = np.append(first[1:], len(start))[: len(first)] - 1
        return _Segments(start[first], reach[last], np.ones_like(first), query[first])

    @cached_property
    def _layers(self) -> _Segments:
        """The truth cut at all its borders, each segment marked with the number of truth spans that hold it."""
        start, end, _ = self._on_line(self._truth_rows)
        border = np.concatenate([start, end])
        order = np.argsort(border)
        border = border[order]
        depth = np.cumsum(np.where(order < len(start), 1, -1))[:-1]
        held = (depth > 0) & (border[1:] > border[:-1])
        start, end = border[:-1][held], border[1:][held]
        return _Segments(start, end, depth[held], (start >> self._bits) // self._documents)

    @cached_property
    def _hit_sums(self) -> Counts:
        return running_sums(self._hit_rows.end - self._hit_rows.start)

    @cached_property
    def _crowd(self) -> _Crowd:
        return _Crowd(self._hits, self._queries)

    @cached_property
    def _cover(self) -> _Cover:
        return _Cover(self._hits, self._truth, self._queries, self._depth)

    @cached_property
    def _covers_again(self) -> list[_Cover]:
        """What the hits cover of the truth that two spans or more hold, then three, and so on."""
        if (self.truth == self.truth_total).all():
            return []
        layers = self._layers
        covers = []
        for times in range(2, int(layers.mark.max()) + 1):
            held = layers.mark >= times
            layer = _Segments(layers.start[held], layers.end[held], layers.mark[held], layers.query[held])
            covers.append(_Cover(self._hits, layer, self._queries, self._depth))
        return covers

    @cached_property
    def _gains(self) -> Counts:
        gains = np.empty((self._depth, self._queries), dtype=np.int64)
        for rank in range(1, self._depth + 1):
            before = self.covered(rank - 1) if rank > 1 else 0
            np.subtract(self.covered(rank), before, out=gains[rank - 1])
        return gains

    @cached_property
    def _truth_by_document(self) -> Counts:
        """For each query, one a column, how much truth its documents hold, the largest first."""
        document = self._truth.start >> self._bits
        firsts = np.flatnonzero(np.diff(document, prepend=-1))
        if not len(firsts):
            return np.zeros((0, self._queries), dtype=np.int64)
        amounts = np.add.reduceat(self._truth.end - self._truth.start, firsts)
        # One key sorts by query, then largest first, and gives both back.
        bits = int(amounts.max()).bit_length()
        most = (1 << bits) - 1
        key = np.sort((self._truth.query[firsts] << bits) + (most - amounts), kind="stable")
        query, amounts = key >> bits, most - (key & most)
        counts = np.bincount(query, minlength=self._queries)
        place = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
        by_place = np.zeros((int(place.max()) + 1, self._queries), dtype=np.int64)
        by_place[place, query] = amounts
        return by_place

    def _on_line(self, rows: SpanRows) -> tuple[Counts, Counts, Counts]:
        """The starts and ends on the line, and the query of each row; sorting along the line keeps the queries."""
        query = np.repeat(np.arange(rows.queries), np.diff(rows.offsets))
        base = (query * self._documents + rows.doc) << self._bits
        return base + rows.start, base + rows.end, query


def _order(positions: Counts) -> NDArray[np.intp]:
    # The queries stand in order already: the stable sort goes along with that and takes half the time of the default.
    return np.argsort(positions, kind="stable")


def overlapping_pairs(starts: Counts, ends: Counts, left: Counts, right: Counts) -> tuple[Counts, Counts]:
    """The pairs (interval, span) that share a position, of intervals ``[left, right)`` and spans sorted by start."""
    # Before `first` no span reaches the interval, from `last` on none starts in time: the rest is looked at.
    first = np.searchsorted(np.maximum.accumulate(ends), left, side="right")
    last = np.searchsorted(starts, right, side="left")
    candidates = np.maximum(last - first, 0)
    interval = np.repeat(np.arange(len(left)), candidates)
    span = np.arange(len(interval)) + np.repeat(first - np.cumsum(candidates) + candidates, candidates)
    kept = ends[span] > left[interval]
    return (interval, span) if kept.all() else (interval[kept], span[kept])


def running_sums(amounts: Counts) -> Counts:
    """0, the first amount, the sum of the first two, and so on."""
    sums = np.zeros(len(amounts) + 1, dtype=np.int64)
    np.cumsum(amounts, out=sums[1:])
    return sums


def first_totals(sums: Counts, offsets: Counts, k: int | None) -> Counts:
    """The sum over the first k rows of every query, rows standing best first, from their running sums."""
    last = offsets[1:] if k is None else np.minimum(offsets[:-1] + k, offsets[1:])
    totals: Counts = sums[last] - sums[offsets[:-1]]
    return totals


class ChunkSweep:
    """``ChunkCounts`` of a block of queries: hits by query and rank, truth by query, chunks as numbers."""

    def __init__(self, hits: Counts, hit_offsets: Counts, truth: Counts, truth_offsets: Counts, chunks: int) -> None:
        self._queries = len(hit_offsets) - 1
        self._hit_offsets = hit_offsets
        self._hits = hits + _query_numbers(hit_offsets) * chunks
        self._truth = np.unique(truth + _query_numbers(truth_offsets) * chunks)
        self._chunks = chunks

    @cached_property
    def relevant(self) -> Counts:
        """As in ``ChunkCounts``."""
        return np.bincount(self._truth // self._chunks, minlength=self._queries)

    def gains(self, k: int | None) -> Counts:
        """As in ``ChunkCounts``."""
        return self._gains[:k]

    def distinct(self, k: int | None) -> Counts:
        """As in ``ChunkCounts``."""
        counts: Counts = np.sum(self._fresh[:k], axis=0)
        return counts

    @cached_property
    def _ranks(self) -> Counts:
        return np.arange(len(self._hits)) - np.repeat(self._hit_offsets[:-1], np.diff(self._hit_offsets))

    @cached_property
    def _fresh(self) -> Counts:
        """For each rank 1 where the hit repeats no earlier one."""
        _, firsts = np.unique(self._hits, return_index=True)
        return self._by_rank(firsts)

    @cached_property
    def _gains(self) -> Counts:
        distinct, firsts = np.unique(self._hits, return_index=True)
        return self._by_rank(firsts[np.isin(distinct, self._truth, assume_unique=True)])

    def _by_rank(self, hits: Counts) -> Counts:
        marks = np.zeros((int(self._ranks.max(initial=-1)) + 1, self._queries), dtype=np.int64)
        marks[self._ranks[hits], self._hits[hits] // self._chunks] = 1
        return marks


def _query_numbers(offsets: Counts) -> Counts:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
