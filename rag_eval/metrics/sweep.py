"""What metrics count, of a block of queries at once: how much of the truth the hits cover at a cut, and at what cost.

A sweep puts every span of every query on one line of positions, sorts it once, and answers for any cut. Its arrays have
one entry a query; where there is a row a rank, rows beyond a query's cut are 0. One query is a block like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rag_eval.metrics.formulas import discounted_gain, discounts
from rag_eval.metrics.intervals import Place, merge_sorted, overlapping_pairs
from rag_eval.metrics.metric import Counts, Cut, Values


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

    def first(self, k: int) -> "SpanRows":
        """The first k spans of every query."""
        counts = np.diff(self.offsets)
        if (counts <= k).all():
            return self
        kept = self.ranks() <= k
        offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, k))])
        return SpanRows(offsets, self.doc[kept], self.start[kept], self.end[kept])

    def ranks(self) -> Counts:
        """The rank of each span within its query, from 1."""
        return np.arange(1, len(self.doc) + 1) - np.repeat(self.offsets[:-1], np.diff(self.offsets))

    def numbers(self) -> Counts:
        """The number of the query of each span."""
        return query_numbers(self.offsets)


@dataclass(frozen=True)
class _Segments:
    """Intervals on the line, by start; ``mark`` is the rank of a hit, or how many truth spans hold the segment."""

    start: Counts
    end: Counts
    mark: Counts
    query: Counts


Reach = int | Counts | None
"""How many hits count: so many of every query, so many of each, or all."""


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

    def repeated(self, k: Reach) -> Counts:
        """By how much the sum of the segments up to rank k exceeds their union, by query."""
        if isinstance(k, np.ndarray):
            return self._exceeding(np.where(self._rank <= k[self._query], self._end, 0))
        if k not in self._repeated:
            self._repeated[k] = self._exceeding(self._end if k is None else np.where(self._rank <= k, self._end, 0))
        return self._repeated[k]

    def _exceeding(self, end: Counts) -> Counts:
        again = np.minimum(np.maximum.accumulate(end)[:-1], end[1:]) - self._start[1:]
        return np.bincount(self._query[1:], np.maximum(again, 0), self._queries).astype(np.int64)


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

    def covered(self, k: Reach) -> Counts:
        depth = len(self._summed) - 1
        if isinstance(k, np.ndarray):
            summed = self._summed[np.minimum(k, depth), np.arange(len(k))]
        else:
            summed = self._summed[depth if k is None else min(k, depth)]
        covered: Counts = summed - self._crowd.repeated(k)
        return covered


class _Reaches:
    """How many hits of each query a cut takes; ``tokens`` are those of each hit, ``fewest`` what ``@min`` takes."""

    def __init__(self, offsets: Counts, tokens: Counts | None, fewest: Counts | None) -> None:
        self._offsets = offsets
        self._tokens = tokens
        self._fewest = fewest
        self._within: dict[int, Counts] = {}

    def of(self, cut: Cut) -> Reach:
        if cut.kind == "min":
            return _given(self._fewest, cut)
        if cut.kind != "tokens":
            return cut.hits
        if cut.size not in self._within:
            query = query_numbers(self._offsets)
            fitting = query[self.spent <= cut.size]
            self._within[cut.size] = np.bincount(fitting, minlength=len(self._offsets) - 1)
        return self._within[cut.size]

    @cached_property
    def sums(self) -> Counts:
        """The running sums of the tokens over all hits."""
        return running_sums(_given(self._tokens, Cut("tokens")))

    @cached_property
    def spent(self) -> Counts:
        """The tokens of each hit and of those before it in its query."""
        counts = np.diff(self._offsets)
        spent: Counts = self.sums[1:] - np.repeat(self.sums[self._offsets[:-1]], counts)
        return spent

    def tokens(self, cut: Cut) -> Counts:
        return first_totals(self.sums, self._offsets, self.of(cut))

    def spent_by_rank(self) -> Counts:
        """The tokens up to each rank, one query a column; 0 where a query has no such rank."""
        return by_rank(self.spent, self._offsets)


def _given(counts: Counts | None, cut: Cut) -> Counts:
    if counts is None:
        raise ValueError(f"this sweep was not given what a cut by {cut.kind} counts")
    return counts


class SpanSweep:
    """Lengths of hits and truth of a block of queries; document numbers are below ``documents``.

    Ends are up to ``last_end``. ``tokens`` (of each hit's text) are needed for cuts by tokens and for costs, ``fewest``
    (how many chunks touch the truth) for the cut ``min``.
    """

    def __init__(
        self,
        hits: SpanRows,
        truth: SpanRows,
        documents: int,
        last_end: int,
        *,
        tokens: Counts | None = None,
        fewest: Counts | None = None,
    ) -> None:
        self._hit_rows = hits
        self._truth_rows = truth
        self._documents = documents
        self._bits = last_end.bit_length()
        self._queries = hits.queries
        self._depth = int(np.diff(hits.offsets).max(initial=0))
        self._reaches = _Reaches(hits.offsets, tokens, fewest)

    @cached_property
    def truth(self) -> Counts:
        """The length of the merged truth."""
        lengths = self._truth.end - self._truth.start
        return np.bincount(self._truth.query, lengths, self._queries).astype(np.int64)

    @cached_property
    def truth_total(self) -> Counts:
        """The summed length of the truth spans as given: an overlap counts again."""
        return first_totals(running_sums(self._truth_rows.end - self._truth_rows.start), self._truth_rows.offsets, None)

    def covered(self, cut: Cut) -> Counts:
        """How much of the merged truth the hits cover."""
        return self._cover.covered(self._reaches.of(cut))

    def uncovered_total(self, cut: Cut) -> Counts:
        """How much the hits leave uncovered, summed over the truth spans as given."""
        k = self._reaches.of(cut)
        uncovered = self.truth_total - self._cover.covered(k)
        for cover in self._covers_again:
            uncovered -= cover.covered(k)
        return uncovered

    def gains(self, cut: Cut) -> Counts:
        """For each rank what the hit newly covers of the merged truth."""
        return first_ranks(self._gains, self._reaches.of(cut))

    def retrieved(self, cut: Cut) -> Counts:
        """The length of the merged hits."""
        return self.retrieved_total(cut) - self._crowd.repeated(self._reaches.of(cut))

    def retrieved_total(self, cut: Cut) -> Counts:
        """The summed length of the hits as given: an overlap counts again."""
        return first_totals(self._hit_sums, self._hit_rows.offsets, self._reaches.of(cut))

    def ideal_gain(self, cut: Cut) -> Values:
        """The largest discounted gain that any ranking of so many spans can reach; a budget bounds no number."""
        return discounted_gain(self._truth_by_document[: cut.hits])

    def tokens(self, cut: Cut) -> Counts:
        """The summed tokens of the hits' texts."""
        return self._reaches.tokens(cut)

    def spent(self) -> Counts:
        """For each rank the tokens of the hits up to it."""
        return self._reaches.spent_by_rank()

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
        start, end, first = merge_sorted(start[order], end[order])
        return _Segments(start, end, np.ones_like(first), query[first])

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
            before = self._cover.covered(rank - 1) if rank > 1 else 0
            np.subtract(self._cover.covered(rank), before, out=gains[rank - 1])
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
        query = rows.numbers()
        base = (query * self._documents + rows.doc) << self._bits
        return base + rows.start, base + rows.end, query


def _order(positions: Counts) -> NDArray[np.intp]:
    # The queries stand in order already: the stable sort goes along with that and takes half the time of the default.
    return np.argsort(positions, kind="stable")


def running_sums(amounts: Counts) -> Counts:
    """0, the first amount, the sum of the first two, and so on."""
    sums = np.zeros(len(amounts) + 1, dtype=np.int64)
    np.cumsum(amounts, out=sums[1:])
    return sums


def first_totals(sums: Counts, offsets: Counts, k: Reach) -> Counts:
    """The sum over the first k rows of every query, rows standing best first, from their running sums."""
    last = offsets[1:] if k is None else np.minimum(offsets[:-1] + k, offsets[1:])
    totals: Counts = sums[last] - sums[offsets[:-1]]
    return totals


def first_ranks(by_rank: Counts, k: Reach) -> Counts:
    """The rows of the first k ranks, one query a column; where k differs by query, the ranks beyond are 0."""
    if not isinstance(k, np.ndarray):
        return by_rank[:k]
    return by_rank * (np.arange(1, len(by_rank) + 1)[:, np.newaxis] <= k)


def by_rank(amounts: Counts, offsets: Counts) -> Counts:
    """Amounts of hits, best first by query, as a row a rank and a column a query."""
    counts = np.diff(offsets)
    rows = np.zeros((int(counts.max(initial=0)), len(counts)), dtype=np.int64)
    rows[np.arange(len(amounts)) - np.repeat(offsets[:-1], counts), query_numbers(offsets)] = amounts
    return rows


def query_numbers(offsets: Counts) -> Counts:
    """The number of the query of each row."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


class ChunkSweep:
    """Numbers of chunks of a block of queries: hits by query and rank, truth by query, chunks as numbers.

    It has the counts of a ``SpanSweep`` that chunk ids can have; a chunk that is retrieved again adds nothing.
    """

    def __init__(
        self,
        hits: Counts,
        hit_offsets: Counts,
        truth: Counts,
        truth_offsets: Counts,
        chunks: int,
        *,
        tokens: Counts | None = None,
    ) -> None:
        self._queries = len(hit_offsets) - 1
        self._hit_offsets = hit_offsets
        self._hits = hits + query_numbers(hit_offsets) * chunks
        self._truth = np.unique(truth + query_numbers(truth_offsets) * chunks)
        self._chunks = chunks
        self._reaches = _Reaches(hit_offsets, tokens, None)

    @cached_property
    def truth(self) -> Counts:
        """How many different chunks are relevant."""
        return np.bincount(self._truth // self._chunks, minlength=self._queries)

    def covered(self, cut: Cut) -> Counts:
        """How many of the relevant chunks were retrieved."""
        counts: Counts = self.gains(cut).sum(axis=0)
        return counts

    def gains(self, cut: Cut) -> Counts:
        """For each rank 1 when the hit is relevant and not a repetition, else 0."""
        return first_ranks(self._gains, self._reaches.of(cut))

    def retrieved(self, cut: Cut) -> Counts:
        """How many different chunks were retrieved."""
        counts: Counts = np.sum(first_ranks(self._fresh, self._reaches.of(cut)), axis=0)
        return counts

    def ideal_gain(self, cut: Cut) -> Values:
        """The largest discounted gain that any ranking of so many chunks can reach; a budget bounds no number."""
        reachable = self.truth if cut.hits is None else np.minimum(self.truth, cut.hits)
        largest = int(reachable.max(initial=0))
        return np.concatenate([[0.0], np.cumsum(discounts(largest))])[reachable]

    def tokens(self, cut: Cut) -> Counts:
        """The summed tokens of the hits' texts."""
        return self._reaches.tokens(cut)

    def spent(self) -> Counts:
        """For each rank the tokens of the hits up to it."""
        return self._reaches.spent_by_rank()

    @cached_property
    def _fresh(self) -> Counts:
        """For each rank 1 where the hit repeats no earlier one."""
        _, firsts = np.unique(self._hits, return_index=True)
        return self._marked(firsts)

    @cached_property
    def _gains(self) -> Counts:
        distinct, firsts = np.unique(self._hits, return_index=True)
        return self._marked(firsts[np.isin(distinct, self._truth, assume_unique=True)])

    def _marked(self, hits: Counts) -> Counts:
        marks = np.zeros(len(self._hits), dtype=np.int64)
        marks[hits] = 1
        return by_rank(marks, self._hit_offsets)


def sweep_places(
    hits: Sequence[Sequence[Place]],
    truth: Sequence[Sequence[Place]],
    tokens: Sequence[Sequence[int]] | None = None,
    fewest: Sequence[int] | None = None,
) -> SpanSweep:
    """The sweep of queries that are given as lists, an entry a query."""
    places = [place for side in (hits, truth) for query in side for place in query]
    numbers = {doc_id: number for number, doc_id in enumerate({place[0]: 0 for place in places})}
    doc = np.array([numbers[place[0]] for place in places], dtype=np.int64)
    start = np.array([place[1] for place in places], dtype=np.int64)
    end = np.array([place[2] for place in places], dtype=np.int64)
    hit_offsets, truth_offsets = _offsets(hits), _offsets(truth)
    count = int(hit_offsets[-1])
    return SpanSweep(
        SpanRows(hit_offsets, doc[:count], start[:count], end[:count]),
        SpanRows(truth_offsets, doc[count:], start[count:], end[count:]),
        max(1, len(numbers)),
        int(end.max(initial=0)),
        tokens=None if tokens is None else _in_row(tokens),
        fewest=None if fewest is None else np.array(fewest, dtype=np.int64),
    )


def sweep_ids(hits: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> ChunkSweep:
    """The sweep of queries that are given as lists, an entry a query."""
    numbers: dict[str, int] = {}
    rows = [[[numbers.setdefault(one, len(numbers)) for one in query] for query in side] for side in (hits, truth)]
    return ChunkSweep(_in_row(rows[0]), _offsets(hits), _in_row(rows[1]), _offsets(truth), max(1, len(numbers)))


def _offsets(lists: Sequence[Sequence[object]]) -> Counts:
    return running_sums(np.array([len(one) for one in lists], dtype=np.int64))


def _in_row(lists: Sequence[Sequence[int]]) -> Counts:
    return np.array([number for one in lists for number in one], dtype=np.int64)
