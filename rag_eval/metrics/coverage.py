"""What metrics count, of a block of queries at once: how much of the truth the hits cover at a cut, and at what cost.

A sweep puts every span of every query on one line of positions, sorts it once, and answers for any cut. Its arrays have
one entry a query; where there is a row a rank, rows beyond a query's cut are 0. One query is a block like any other.

At chunk level each chunk id is a document that is one character long, and what is counted is chunks: one that is
retrieved again adds nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypedDict, Unpack

import numpy as np

from rag_eval.errors import TableError
from rag_eval.metrics.intervals import merge_sorted, overlapping_pairs
from rag_eval.metrics.metric import Counts, Cut, Values

LAST_POSITION = 2**62


@dataclass(frozen=True)
class SpanRows:
    """Spans of many queries, by query; ``offsets[i]:offsets[i + 1]`` are those of query i, hits best first.

    Truth may have ``group``, the number of each span's group of evidence within its query: the spans of a group stand
    together, the one that was written down first. Without it every span is a group of its own.
    """

    offsets: Counts
    doc: Counts
    start: Counts
    end: Counts
    group: Counts | None = None

    @cached_property
    def query(self) -> Counts:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @cached_property
    def rank(self) -> Counts:
        """The rank of each span within its query, from 1."""
        return np.arange(1, len(self.doc) + 1) - self.offsets[self.query]

    def take(self, rows: Counts | slice, offsets: Counts) -> "SpanRows":
        """Some of the spans, with the offsets that these have."""
        group = None if self.group is None else self.group[rows]
        return SpanRows(offsets, self.doc[rows], self.start[rows], self.end[rows], group)

    def block(self, first: int, last: int) -> "SpanRows":
        """The spans of the queries from ``first`` to before ``last``."""
        offsets = self.offsets[first : last + 1]
        return self.take(slice(offsets[0], offsets[-1]), offsets - offsets[0])

    def of(self, rows: Counts) -> "SpanRows":
        """Some of the spans, in their order."""
        return self.take(rows, np.searchsorted(self.query[rows], np.arange(len(self.offsets))))

    def joined(self, other: "SpanRows") -> "SpanRows":
        """The spans of both, query by query; those of ``other`` come last, each as a group of its own."""
        order = np.argsort(np.concatenate([self.query, other.query]), kind="stable")
        doc, start, end = (
            np.concatenate([getattr(side, name) for side in (self, other)])[order] for name in ("doc", "start", "end")
        )
        group = None
        if self.group is not None:
            numbers = self.group.max(initial=-1) + 1 + np.arange(len(other.doc))
            group = np.concatenate([self.group, numbers])[order]
        return SpanRows(self.offsets + other.offsets, doc, start, end, group)

    @cached_property
    def firsts(self) -> Counts:
        """Which spans are the first of their group."""
        if self.group is None:
            return np.arange(len(self.doc))
        is_other = (self.query[1:] != self.query[:-1]) | (self.group[1:] != self.group[:-1])
        return np.flatnonzero(np.append(True, is_other)[: len(self.doc)])

    def as_written(self) -> "SpanRows":
        """The first span of every group, each now a group of its own."""
        return self if self.group is None else replace(self.of(self.firsts), group=None)


def line_of(*rows: SpanRows, queries: int = 1) -> tuple[int, int, int]:
    """How many documents, the bits of the last end, and how many queries fit on a line; raises ``TableError``."""
    documents = max(int(spans.doc.max(initial=0)) for spans in rows) + 1
    last_end = max(int(spans.end.max(initial=0)) for spans in rows)
    most = LAST_POSITION // (documents << last_end.bit_length())
    if queries > most:
        raise TableError(
            f"{documents} documents with ends up to {last_end} are more than can be numbered: check the ends"
        )
    return documents, last_end.bit_length(), most


def spans_outside(spans: SpanRows, others: SpanRows) -> SpanRows:
    """What of the spans is in none of the ``others`` of its query, as spans of which no two overlap.

    Raises ``TableError`` as ``line_of`` does.
    """
    queries = len(spans.offsets) - 1
    documents, bits, _ = line_of(spans, others, queries=queries)
    bases = [(side.query * documents + side.doc) << bits for side in (spans, others)]
    borders = [base + end for side, base in zip((spans, others), bases, strict=True) for end in (side.start, side.end)]
    border = np.concatenate(borders)
    # A border enters or leaves a span, or one of the others.
    inside, among = (np.repeat(step, [len(one) for one in borders]) for step in ([1, -1, 0, 0], [0, 0, 1, -1]))
    order = np.argsort(border, kind="stable")
    border, inside, among = border[order], np.cumsum(inside[order]), np.cumsum(among[order])
    kept = np.flatnonzero((inside[:-1] > 0) & (among[:-1] == 0) & (border[1:] > border[:-1]))
    start, end = border[kept], border[kept + 1]
    query, doc = np.divmod(start >> bits, documents)
    offsets, low = np.searchsorted(query, np.arange(queries + 1)), start & ((1 << bits) - 1)
    return SpanRows(offsets, doc, low, low + end - start)


@dataclass(frozen=True)
class _Segments:
    """Intervals on the line, by start; ``mark`` is the rank of a hit, or how many truth spans hold the segment."""

    start: Counts
    end: Counts
    mark: Counts
    query: Counts


Reach = int | Counts
"""How many hits count: so many of every query, or so many of each."""


class _Union:
    """How long the union of the segments up to a rank is, by query; ``times`` is how often a segment's length counts.

    Only segments that overlap another make the union shorter than the sum of their lengths, so the way along the line,
    which every rank needs again, is over these.
    """

    def __init__(self, segments: _Segments, times: Counts | int, queries: int, depth: int) -> None:
        lengths = (segments.end - segments.start) * times
        sums = np.bincount(segments.mark * queries + segments.query, lengths, (depth + 1) * queries)
        self.summed = np.cumsum(sums.astype(np.int64).reshape(depth + 1, queries), axis=0)
        late = segments.start[1:] < np.maximum.accumulate(segments.end)[:-1]
        crowded = np.flatnonzero(np.append(late, False) | np.append(False, late))[: len(segments.end)]
        self._start, self._end = segments.start[crowded], segments.end[crowded]
        self._rank, self._query = segments.mark[crowded], segments.query[crowded]
        self._times = times if isinstance(times, int) else times[crowded][1:]
        self._lengths: dict[int, Counts] = {0: np.zeros(queries, dtype=np.int64)}

    def length(self, reach: Reach) -> Counts:
        if isinstance(reach, int) and reach in self._lengths:
            return self._lengths[reach]
        end = np.where(self._rank <= (reach if isinstance(reach, int) else reach[self._query]), self._end, 0)
        again = np.minimum(np.maximum.accumulate(end)[:-1], end[1:]) - self._start[1:]
        repeated = np.bincount(self._query[1:], np.maximum(again, 0) * self._times, self.summed.shape[1])
        length = at_rank(self.summed, reach) - repeated.astype(np.int64)
        if isinstance(reach, int):
            self._lengths[reach] = length
        return length


def at_rank(sums: Counts, reach: Reach) -> Counts:
    """Of sums up to each rank, from 0, those up to ``reach``."""
    found: Counts = sums[reach] if isinstance(reach, int) else sums[reach, np.arange(len(reach))]
    return found


class SweepSettings(TypedDict, total=False):
    """What a sweep may be given beside its spans.

    ``tokens`` (of each hit's text) are needed for cuts by tokens and for costs, ``fewest`` (how many chunks touch the
    truth) for the cut ``min``. Where the sweep ``is_merged``, hits that overlap are one.
    """

    tokens: Counts | None
    fewest: Counts | None
    is_merged: bool


class SpanSweep:
    """Lengths of hits and truth of a block of queries; raises ``TableError`` when they do not fit on the line."""

    def __init__(self, hits: SpanRows, truth: SpanRows, **given: Unpack[SweepSettings]) -> None:
        self._tokens, self._fewest = given.get("tokens"), given.get("fewest")
        self._is_merged = given.get("is_merged", False)
        self._rows, self.given = hits, truth
        self._queries = len(hits.offsets) - 1
        self._depth = int(np.diff(hits.offsets).max(initial=0))
        self._documents, self._bits, _ = line_of(hits, truth, queries=self._queries)
        self._hits, self._truth_as_given = self._on_line(hits), self._on_line(truth)
        start, end, first = merge_sorted(self._truth_as_given.start, self._truth_as_given.end)
        self._truth = _Segments(start, end, np.ones_like(start), self._truth_as_given.query[first])
        self.truth: Counts = np.bincount(self._truth.query, end - start, self._queries).astype(np.int64)
        """The length of the merged truth."""

    def covered(self, cut: Cut) -> Counts | Values:
        """How much of the merged truth the hits cover."""
        return self._cover.length(self._reach(cut))

    def gains(self, cut: Cut) -> Counts | Values:
        """For each rank what the hit newly covers of the merged truth."""
        reach = self._reach(cut)
        if isinstance(reach, int):
            return self._gains[:reach]
        return self._gains * (np.arange(1, self._depth + 1)[:, np.newaxis] <= reach)

    def relevant(self, cut: Cut) -> Counts | Values:
        """How much of what the hits hold is truth."""
        return self.covered(cut)

    def relevant_gains(self, cut: Cut) -> Counts | Values:
        """For each rank how much truth the hit holds that none before it holds."""
        return self.gains(cut)

    def weakest(self, cut: Cut) -> Values:
        """The share that is covered of the group of each query that is covered least; 0 without truth."""
        given, firsts = self.given, self.given.firsts
        shares = self.apart(slice(None)).covered(cut) / np.maximum(given.end - given.start, 1)
        least = np.where(np.diff(given.offsets) > 0, 1.0, 0.0)
        if len(firsts):
            np.minimum.at(least, given.query[firsts], np.maximum.reduceat(shares, firsts))
        return least

    def apart(self, rows: Counts | slice) -> "SpanSweep":
        """Some of the truth spans, each as the truth of a query of its own that has the hits of its query."""
        hits, given = self._rows, self.given
        query = given.query[rows]
        counts = np.diff(hits.offsets)[query]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        repeated = np.arange(offsets[-1]) + np.repeat(hits.offsets[query] - offsets[:-1], counts)
        return SpanSweep(
            hits.take(repeated, offsets),
            given.take(rows, np.arange(len(query) + 1)),
            tokens=None if self._tokens is None else self._tokens[repeated],
            fewest=None if self._fewest is None else self._fewest[query],
        )

    def merged_truth(self) -> tuple[Counts, Counts, Counts, Counts]:
        """Of each piece of the merged truth the query, the document, the start and the end."""
        truth, within = self._truth, (1 << self._bits) - 1
        # An end may be the last position there is, and then it is the next document's first.
        start = truth.start & within
        doc = (truth.start >> self._bits) - truth.query * self._documents
        return truth.query, doc, start, start + truth.end - truth.start

    def best_gains(self, cut: Cut) -> Counts | Values:
        """The gains of the best ranking that any spans could have; a budget bounds no number of them.

        A span lies in one document, so each has the truth of one document, the largest first.
        """
        return self._truth_by_document[: cut.hits]

    def retrieved(self, cut: Cut) -> Counts:
        """The length of the merged hits."""
        return self._found.length(self._reach(cut))

    def retrieved_total(self, cut: Cut) -> Counts:
        """The summed length of the hits as given: an overlap counts again, unless overlapping ones are one."""
        if self._is_merged:
            return self.retrieved(cut)
        return at_rank(self._found.summed, self._reach(cut))

    @cached_property
    def truth_total(self) -> Counts:
        """The summed length of the truth spans as given: an overlap counts again."""
        given = self._truth_as_given
        return np.bincount(given.query, given.end - given.start, self._queries).astype(np.int64)

    def uncovered_total(self, cut: Cut) -> Counts | Values:
        """How much the hits leave uncovered, summed over the truth spans as given."""
        return self.truth_total - self._cover_as_given.length(self._reach(cut))

    def tokens(self, cut: Cut) -> Counts:
        """The summed tokens of the hits' texts."""
        return at_rank(self.spent, self._reach(cut))

    @cached_property
    def spent(self) -> Counts:
        """For each rank, from 0, the tokens of the hits up to it."""
        if self._tokens is None:
            raise ValueError("this sweep was not given the tokens of its hits")
        rows = np.zeros((self._depth + 1, self._queries), dtype=np.int64)
        rows[self._rows.rank, self._rows.query] = self._tokens
        return np.cumsum(rows, axis=0)

    @cached_property
    def _most_spent(self) -> Counts:
        """Of two texts that become one, the tokens may be fewer: what did not fit before does not fit after."""
        return np.maximum.accumulate(self.spent[1:], axis=0)

    def on_truth(self) -> tuple[Counts | Values, Counts | Values]:
        """Where hits start and end on the truth without its gaps, that of all queries in a row, hits by start.

        One position lies between two queries, so that the end of one is not the start of the next.
        """
        lengths = self._truth.end - self._truth.start
        before = np.cumsum(lengths) - lengths
        ends = []
        for position in (self._hits.start, self._hits.end):
            segment = np.searchsorted(self._truth.start, position, side="right") - 1
            reached = np.minimum(position - self._truth.start[segment], lengths[segment]) + before[segment]
            ends.append(np.where(segment < 0, 0, reached) + self._hits.query)
        return ends[0], ends[1]

    @property
    def hit_offsets(self) -> Counts:
        """Where the hits of each query begin, and where the last ones end."""
        return self._rows.offsets

    def costs(self) -> Counts:
        """The tokens of the hits, in the order of ``on_truth``."""
        if self._tokens is None:
            raise ValueError("this sweep was not given the tokens of its hits")
        costs: Counts = self._tokens[self._rows.offsets[self._hits.query] + self._hits.mark - 1]
        return costs

    def _reach(self, cut: Cut) -> Reach:
        if cut.kind == "tokens":
            fitting: Counts = np.sum(self._most_spent <= cut.size, axis=0)
            return fitting
        if cut.kind == "min":
            if self._fewest is None:
                raise ValueError("this sweep was not given how many chunks touch the truth")
            return np.minimum(self._fewest, self._depth)
        return self._depth if cut.hits is None else min(cut.hits, self._depth)

    def _on_line(self, rows: SpanRows) -> _Segments:
        """The spans on the line, by start, marked with their ranks."""
        base = (rows.query * self._documents + rows.doc) << self._bits
        start = base + rows.start
        # The queries are in order already: the stable sort goes along with that and takes half the time of the default.
        order = np.argsort(start, kind="stable")
        return _Segments(start[order], (base + rows.end)[order], order + 1 - rows.offsets[rows.query], rows.query)

    @cached_property
    def _found(self) -> _Union:
        return _Union(self._hits, 1, self._queries, self._depth)

    @cached_property
    def _cover(self) -> _Union:
        return self._cover_of(self._truth)

    @cached_property
    def _cover_as_given(self) -> _Union:
        """What is covered of the truth spans as given: a character counts for each of them that holds it."""
        if (self.truth == self.truth_total).all():
            return self._cover
        given = self._truth_as_given
        border = np.concatenate([given.start, given.end])
        order = np.argsort(border)
        border = border[order]
        holding = np.cumsum(np.where(order < len(given.start), 1, -1))[:-1]
        held = (holding > 0) & (border[1:] > border[:-1])
        start = border[:-1][held]
        query = (start >> self._bits) // self._documents
        return self._cover_of(_Segments(start, border[1:][held], holding[held], query))

    def _cover_of(self, truth: _Segments) -> _Union:
        """What the hits hold of disjoint segments of truth, each of which counts as often as it is marked."""
        hits = self._hits
        segment, hit = overlapping_pairs(hits.start, hits.end, truth.start, truth.end)
        # In order along the line: the segments are disjoint, and within one the hits come by start.
        start = np.maximum(hits.start[hit], truth.start[segment])
        end = np.minimum(hits.end[hit], truth.end[segment])
        pieces = _Segments(start, end, hits.mark[hit], truth.query[segment])
        return _Union(pieces, truth.mark[segment], self._queries, self._depth)

    @cached_property
    def _gains(self) -> Counts:
        lengths = np.stack([self._cover.length(rank) for rank in range(self._depth + 1)])
        gains: Counts = lengths[1:] - lengths[:-1]
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


def touching_chunks(truth: SpanRows, chunks: SpanRows) -> SpanRows:
    """For each query the chunks that touch its truth, each once; ``chunks`` are those of the whole corpus.

    A chunk touches a reference of its document when they share a character or one ends where the other begins:
    Chroma counts it so, and its published figures depend on it.
    """
    # Room for one more than the last end: a chunk at the end of one document does not touch the next.
    length = 2 << line_of(truth, chunks, queries=2)[1]
    starts, ends = chunks.doc * length + chunks.start, chunks.doc * length + chunks.end
    order = np.lexsort((ends, starts))
    base = truth.doc * length
    reference, chunk = overlapping_pairs(starts[order], ends[order], base + truth.start - 1, base + truth.end + 1)
    count = len(order) + 1
    query, chunk = np.divmod(np.unique(truth.query[reference] * count + chunk), count)
    return chunks.take(order[chunk], np.searchsorted(query, np.arange(len(truth.offsets))))
