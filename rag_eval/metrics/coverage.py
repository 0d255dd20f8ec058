"""Measure how much of the ground truth the hits cover at a cut, for a block of queries at once.

All spans of all queries are put on one line of positions and sorted once, which serves every cut. Arrays have one entry
per query; arrays with one row per rank have 0 beyond a query's cut.

At chunk level each chunk id is a document of one character, so that chunks are counted and a repeated chunk adds
nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rag_eval.errors import TableError
from rag_eval.metrics.metric import Counts, Cut, Values
from rag_eval.metrics.span_sets import merge_sorted, overlapping_pairs

LAST_POSITION = 2**62


@dataclass(frozen=True)
class SpanRows:
    """Spans of many queries; ``offsets[i]:offsets[i + 1]`` are those of query i, hits best first.

    Ground truth may have ``group``, the number of each span's group of evidence within its query. The spans of a group
    are adjacent, the first member first. Without it, every span is its own group. Hits may have ``tokens``, the token
    counts of their texts.
    """

    offsets: Counts
    doc: Counts
    start: Counts
    end: Counts
    group: Counts | None = None
    tokens: Counts | None = None

    @cached_property
    def query(self) -> Counts:
        """The query of each span."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @cached_property
    def rank(self) -> Counts:
        """The rank of each span within its query, from 1."""
        return np.arange(1, len(self.doc) + 1) - self.offsets[self.query]

    @cached_property
    def lengths(self) -> Counts:
        """The length of each span."""
        return self.end - self.start

    @cached_property
    def firsts(self) -> Counts:
        """The rows with the first members of groups."""
        if self.group is None:
            return np.arange(len(self.doc))
        is_new = (self.query[1:] != self.query[:-1]) | (self.group[1:] != self.group[:-1])
        return np.flatnonzero(np.append(True, is_new)[: len(self.doc)])

    @cached_property
    def group_sizes(self) -> Counts:
        """The number of members of each group."""
        return np.diff(np.append(self.firsts, len(self.doc)))

    def take(self, rows: Counts | slice, offsets: Counts) -> "SpanRows":
        """Return some spans, with their new offsets."""
        group, tokens = (None if column is None else column[rows] for column in (self.group, self.tokens))
        return SpanRows(offsets, self.doc[rows], self.start[rows], self.end[rows], group, tokens)

    def block(self, first: int, last: int) -> "SpanRows":
        """Return the spans of the queries from ``first`` to before ``last``."""
        offsets = self.offsets[first : last + 1]
        return self.take(slice(offsets[0], offsets[-1]), offsets - offsets[0])

    def select(self, rows: Counts) -> "SpanRows":
        """Return some spans of all queries, in their order."""
        return self.take(rows, np.searchsorted(self.query[rows], np.arange(len(self.offsets))))

    def join(self, other: "SpanRows") -> "SpanRows":
        """Return the spans of both, by query; the spans of ``other`` come last, each as its own group."""
        order = np.argsort(np.concatenate([self.query, other.query]), kind="stable")
        doc, start, end = (
            np.concatenate([getattr(side, name) for side in (self, other)])[order] for name in ("doc", "start", "end")
        )
        group = None
        if self.group is not None:
            numbers = self.group.max(initial=-1) + 1 + np.arange(len(other.doc))
            group = np.concatenate([self.group, numbers])[order]
        return SpanRows(self.offsets + other.offsets, doc, start, end, group)

    def first_members(self) -> "SpanRows":
        """Return the first span of every group, without groups."""
        return self if self.group is None else replace(self.select(self.firsts), group=None)


def line_of(*sides: SpanRows, queries: int = 1) -> tuple[int, int, int]:
    """Return the number of documents, the bits of the last end, and how many queries fit on a line.

    Raises ``TableError`` unless ``queries`` fit.
    """
    documents = max(int(spans.doc.max(initial=0)) for spans in sides) + 1
    last_end = max(int(spans.end.max(initial=0)) for spans in sides)
    most = LAST_POSITION // (documents << last_end.bit_length())
    if queries > most:
        raise TableError(
            f"{documents} documents with ends up to {last_end} are more than can be numbered: check the ends"
        )
    return documents, last_end.bit_length(), most


def spans_outside(spans: SpanRows, others: SpanRows) -> SpanRows:
    """Return the parts of the spans that are in none of the ``others`` of their query, without overlaps.

    Raises ``TableError`` like ``line_of``.
    """
    queries = len(spans.offsets) - 1
    documents, bits, _ = line_of(spans, others, queries=queries)
    bases = [(side.query * documents + side.doc) << bits for side in (spans, others)]
    # A border is one integer: the query, the document and, in the last bits, the position. Sorted, all starts and ends
    # are on one line; running sums of +1 and -1 tell how many spans, and how many others, hold the piece that follows.
    borders = [base + end for side, base in zip((spans, others), bases, strict=True) for end in (side.start, side.end)]
    border = np.concatenate(borders)
    in_spans, in_others = (np.repeat(step, [len(part) for part in borders]) for step in ([1, -1, 0, 0], [0, 0, 1, -1]))
    order = np.argsort(border, kind="stable")
    border, in_spans, in_others = border[order], np.cumsum(in_spans[order]), np.cumsum(in_others[order])
    rows = np.flatnonzero((in_spans[:-1] > 0) & (in_others[:-1] == 0) & (border[1:] > border[:-1]))
    start, end = border[rows], border[rows + 1]
    query, doc = np.divmod(start >> bits, documents)
    offsets, low = np.searchsorted(query, np.arange(queries + 1)), start & ((1 << bits) - 1)
    return SpanRows(offsets, doc, low, low + end - start)


@dataclass(frozen=True)
class _Segments:
    """Intervals on the line, by start; ``mark`` is the rank of a hit, or the number of truth spans there."""

    start: Counts
    end: Counts
    mark: Counts
    query: Counts


Reach = int | Counts
"""How many hits count: one number for all queries, or one for each."""


class _Union:
    """The length of the union of the segments up to a rank; ``times`` is how often a segment's length counts.

    The union is shorter than the sum of lengths only where segments overlap, so only these are processed again for
    every rank.
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
        length = _at_rank(self.summed, reach) - repeated.astype(np.int64)
        if isinstance(reach, int):
            self._lengths[reach] = length
        return length


def _at_rank(sums: Counts, reach: Reach) -> Counts:
    """Return the sums at ``reach`` from the cumulative sums of ranks from 0."""
    at_rank: Counts = sums[reach] if isinstance(reach, int) else sums[reach, np.arange(len(reach))]
    return at_rank


class SpanCoverage:
    """How much of the ground truth the hits of a block of queries cover, at any cut.

    Args:
        hits: What was retrieved; with tokens for cuts by tokens and for costs.
        truth: What is relevant.
        fewest: How many chunks touch the truth of each query; needed for the cut ``min``.
        is_merged: Whether hits that overlap are one, so that no part of them is paid for twice.

    Raises:
        TableError: The spans do not fit on the line.
    """

    def __init__(self, hits: SpanRows, truth: SpanRows, fewest: Counts | None = None, is_merged: bool = False) -> None:
        self.hits, self.spans = hits, truth
        self._fewest, self._is_merged = fewest, is_merged
        self._queries = len(hits.offsets) - 1
        self._depth = int(np.diff(hits.offsets).max(initial=0))
        self._documents, self._bits, _ = line_of(hits, truth, queries=self._queries)
        self._hits, self._spans = self._on_line(hits), self._on_line(truth)
        start, end, first = merge_sorted(self._spans.start, self._spans.end)
        self._truth = _Segments(start, end, np.ones_like(start), self._spans.query[first])
        self.truth: Counts = np.bincount(self._truth.query, end - start, self._queries).astype(np.int64)
        """The length of the merged truth."""

    def covered(self, cut: Cut) -> Counts | Values:
        """Return how much of the merged truth the hits cover."""
        return self._cover.length(self._reach(cut))

    def gains(self, cut: Cut) -> Counts | Values:
        """Return for each rank how much of the merged truth the hit adds."""
        reach = self._reach(cut)
        if isinstance(reach, int):
            return self._gains[:reach]
        return self._gains * (np.arange(1, self._depth + 1)[:, np.newaxis] <= reach)

    def relevant(self, cut: Cut) -> Counts | Values:
        """Return how much of the text of the hits is relevant."""
        return self.covered(cut)

    def relevant_gains(self, cut: Cut) -> Counts | Values:
        """Return for each rank how much relevant text the hit has that no earlier hit has."""
        return self.gains(cut)

    def weakest(self, cut: Cut) -> Values:
        """Return the covered share of each query's least covered group; 0 without truth."""
        spans = self.spans
        shares = self.by_span(slice(None)).covered(cut) / np.maximum(spans.lengths, 1)
        least = np.where(np.diff(spans.offsets) > 0, 1.0, 0.0)
        if len(spans.firsts):
            np.minimum.at(least, spans.query[spans.firsts], np.maximum.reduceat(shares, spans.firsts))
        return least

    def by_span(self, rows: Counts | slice) -> "SpanCoverage":
        """Return the coverage of some truth spans, each as its own query with the hits of its query."""
        hits, spans = self.hits, self.spans
        query = spans.query[rows]
        counts = np.diff(hits.offsets)[query]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        repeated = np.arange(offsets[-1]) + np.repeat(hits.offsets[query] - offsets[:-1], counts)
        return SpanCoverage(
            hits.take(repeated, offsets),
            spans.take(rows, np.arange(len(query) + 1)),
            fewest=None if self._fewest is None else self._fewest[query],
        )

    def merged_truth(self) -> SpanRows:
        """Return the merged truth as spans."""
        truth, within = self._truth, (1 << self._bits) - 1
        # If an end is the last possible position, it is also the first of the next document.
        start = truth.start & within
        doc = (truth.start >> self._bits) - truth.query * self._documents
        offsets = np.searchsorted(truth.query, np.arange(self._queries + 1))
        return SpanRows(offsets, doc, start, start + truth.end - truth.start)

    def best_gains(self, cut: Cut) -> Counts | Values:
        """Return the gains of the best possible ranking of any spans; a budget does not limit their number.

        A span lies in one document, so each rank has the truth of one document, the largest first.
        """
        return self._truth_by_document[: cut.hits]

    def retrieved(self, cut: Cut) -> Counts:
        """Return the length of the merged hits."""
        return self._retrieved.length(self._reach(cut))

    def retrieved_total(self, cut: Cut) -> Counts:
        """Return the summed length of the hits. Overlaps count repeatedly, unless overlapping hits are merged."""
        return self.retrieved(cut) if self._is_merged else _at_rank(self._retrieved.summed, self._reach(cut))

    @cached_property
    def truth_total(self) -> Counts:
        """The summed length of the truth spans. Overlaps count repeatedly."""
        spans = self._spans
        return np.bincount(spans.query, spans.end - spans.start, self._queries).astype(np.int64)

    def uncovered_total(self, cut: Cut) -> Counts | Values:
        """Return the summed uncovered length of the truth spans. Overlaps count repeatedly."""
        return self.truth_total - self._cover_of_spans.length(self._reach(cut))

    def tokens(self, cut: Cut) -> Counts:
        """Return the summed tokens of the hits' texts."""
        return _at_rank(self.spent, self._reach(cut))

    @cached_property
    def spent(self) -> Counts:
        """For each rank, from 0, the tokens of the hits up to it."""
        rows = np.zeros((self._depth + 1, self._queries), dtype=np.int64)
        rows[self.hits.rank, self.hits.query] = self._known_tokens
        return np.cumsum(rows, axis=0)

    @property
    def _known_tokens(self) -> Counts:
        if self.hits.tokens is None:
            raise ValueError("the tokens of the hits were not counted")
        return self.hits.tokens

    @cached_property
    def _most_spent(self) -> Counts:
        """The running maximum: merging can reduce the tokens, but a hit that did not fit before must not fit later."""
        return np.maximum.accumulate(self.spent[1:], axis=0)

    def on_truth(self) -> tuple[Counts | Values, Counts | Values]:
        """Return the starts and ends of the hits on the truth without its gaps, for all queries in a row, by start.

        Queries are one position apart, so that the end of one is not the start of the next.
        """
        lengths = self._truth.end - self._truth.start
        before = np.cumsum(lengths) - lengths
        ends = []
        for position in (self._hits.start, self._hits.end):
            segment = np.searchsorted(self._truth.start, position, side="right") - 1
            reached = np.minimum(position - self._truth.start[segment], lengths[segment]) + before[segment]
            ends.append(np.where(segment < 0, 0, reached) + self._hits.query)
        return ends[0], ends[1]

    def costs(self) -> Counts:
        """Return the tokens of the hits, in the order of ``on_truth``."""
        costs: Counts = self._known_tokens[self.hits.offsets[self._hits.query] + self._hits.mark - 1]
        return costs

    def _reach(self, cut: Cut) -> Reach:
        if cut.kind == "tokens":
            fitting: Counts = np.sum(self._most_spent <= cut.size, axis=0)
            return fitting
        if cut.kind == "min":
            if self._fewest is None:
                raise ValueError("the chunks that touch the truth were not counted")
            return np.minimum(self._fewest, self._depth)
        return self._depth if cut.hits is None else min(cut.hits, self._depth)

    def _on_line(self, rows: SpanRows) -> _Segments:
        """Put the spans on the line, by start, marked with their ranks."""
        base = (rows.query * self._documents + rows.doc) << self._bits
        start = base + rows.start
        # Queries are in order already, so the stable sort takes half the time of the default.
        order = np.argsort(start, kind="stable")
        return _Segments(start[order], (base + rows.end)[order], order + 1 - rows.offsets[rows.query], rows.query)

    @cached_property
    def _retrieved(self) -> _Union:
        return _Union(self._hits, 1, self._queries, self._depth)

    @cached_property
    def _cover(self) -> _Union:
        return self._cover_of(self._truth)

    @cached_property
    def _cover_of_spans(self) -> _Union:
        """The covered part of the truth spans: a character counts once for each span that holds it."""
        if (self.truth == self.truth_total).all():
            return self._cover
        spans = self._spans
        border = np.concatenate([spans.start, spans.end])
        order = np.argsort(border)
        border = border[order]
        holding = np.cumsum(np.where(order < len(spans.start), 1, -1))[:-1]
        held = (holding > 0) & (border[1:] > border[:-1])
        start = border[:-1][held]
        query = (start >> self._bits) // self._documents
        return self._cover_of(_Segments(start, border[1:][held], holding[held], query))

    def _cover_of(self, truth: _Segments) -> _Union:
        """Return how much of the disjoint truth segments the hits cover; each segment counts as often as its mark."""
        hits = self._hits
        segment, hit = overlapping_pairs(hits.start, hits.end, truth.start, truth.end)
        # Sorted along the line: the segments are disjoint, and hits within one are sorted by start.
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
        """The amount of truth in each document of a query, largest first; one column per query."""
        firsts = np.flatnonzero(np.diff(self._truth.start >> self._bits, prepend=-1))
        if not len(firsts):
            return np.zeros((0, self._queries), dtype=np.int64)
        amounts = np.add.reduceat(self._truth.end - self._truth.start, firsts)
        return largest_first(self._truth.query[firsts], amounts, self._queries)


def largest_first(query: Counts, amounts: Counts, queries: int) -> Counts:
    """Return the amounts of each query, largest first, padded with 0; one column per query."""
    # One key sorts by query, then by amount, and contains both.
    bits = int(amounts.max(initial=0)).bit_length()
    most = (1 << bits) - 1
    key = np.sort((query << bits) + (most - amounts), kind="stable")
    query, amounts = key >> bits, most - (key & most)
    counts = np.bincount(query, minlength=queries)
    place = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    by_place = np.zeros((int(place.max(initial=-1)) + 1, queries), dtype=np.int64)
    by_place[place, query] = amounts
    return by_place


def touching_chunks(truth: SpanRows, chunks: SpanRows) -> SpanRows:
    """Return for each query the chunks that touch its truth, each once; ``chunks`` are those of the whole corpus.

    A chunk touches a reference of its document if they share a character or one ends where the other begins. Chroma
    defines it this way, and its published figures depend on it.
    """
    # Leave a gap after the last end, so that a chunk at the end of a document does not touch the next document.
    length = 2 << line_of(truth, chunks, queries=2)[1]
    starts, ends = chunks.doc * length + chunks.start, chunks.doc * length + chunks.end
    order = np.lexsort((ends, starts))
    base = truth.doc * length
    reference, chunk = overlapping_pairs(starts[order], ends[order], base + truth.start - 1, base + truth.end + 1)
    count = len(order) + 1
    query, chunk = np.divmod(np.unique(truth.query[reference] * count + chunk), count)
    return chunks.take(order[chunk], np.searchsorted(query, np.arange(len(truth.offsets))))
