"""Compute the exact maximum of ground truth that k chunks, or chunks of at most k tokens, can cover.

The truth of a query without its gaps is one line, and a chunk covers an interval of it. Only borders of chunks matter,
and a character in two chosen chunks counts once.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from rag_eval.metrics.coverage import SpanCoverage, SpanRows, touching_chunks
from rag_eval.metrics.groups import GroupedCoverage, coverage_of
from rag_eval.metrics.metric import Counts, Values
from rag_eval.metrics.table_rows import NO_SPANS

Amounts = Any  # a row for each k: whole numbers, or floats where truth has groups

Costs = Callable[[SpanRows], Counts]
"""Returns the tokens of chunks of the corpus."""

MOST_CHOICES = 64
"""Maximum number of choices of one member per group; beyond it, members that single chunks cover badly are dropped."""

_ROUNDING = 1e-9


class WeightedCoverage(SpanCoverage):
    """Coverage of truth whose characters count by the ``weights`` of their spans; the sum is a whole number."""

    def __init__(self, hits: SpanRows, truth: SpanRows, weights: Values) -> None:
        super().__init__(hits, truth)
        self._weights = weights
        self.truth = np.rint(np.bincount(truth.query, weights * truth.lengths, len(truth.offsets) - 1)).astype(np.int64)

    def on_truth(self) -> tuple[Values, Values]:
        """Return positions as ``SpanCoverage.on_truth`` does, with characters as long as their weight."""
        spans = self._spans
        weights = self._weights[self.spans.offsets[spans.query] + spans.mark - 1]
        border, step = np.concatenate([spans.start, spans.end]), np.concatenate([weights, -weights])
        order = np.argsort(border, kind="stable")
        border, density = border[order], np.cumsum(step[order])
        # Remove rounding errors in gaps, which are long.
        density[np.abs(density) < _ROUNDING] = 0.0
        before = np.concatenate([[0.0], np.cumsum(density[:-1] * np.diff(border))])[: len(border)]
        first = (np.cumsum(self.truth) - self.truth)[self._hits.query]
        ends: list[Values] = []
        for position in (self._hits.start, self._hits.end):
            piece = np.searchsorted(border, position, side="right") - 1
            reached = np.where(piece < 0, 0.0, before[piece] + density[piece] * (position - border[piece]))
            ends.append(np.clip(reached, first, first + self.truth[self._hits.query]) + self._hits.query)
        return ends[0], ends[1]


def most_covered(chunks: SpanRows, truth: SpanRows, ks: Sequence[int], costs: Costs | None) -> Amounts:
    """Return the most that k chunks (with ``costs``: chunks of k tokens) cover of each query's truth, a row for each k.

    ``chunks`` are those of the corpus, as the rows of one query. For each group, the best choice of one member counts.
    """
    wanted = coverage_of(NO_SPANS.take(slice(0), np.zeros_like(truth.offsets)), truth)
    if isinstance(wanted, GroupedCoverage):
        return _best_of_groups(chunks, wanted, ks, costs)
    return _cover(chunks, truth, ks, costs)


def _cover(
    chunks: SpanRows, truth: SpanRows, ks: Sequence[int], costs: Costs | None, weights: Values | None = None
) -> Amounts:
    # Within a budget, a chunk inside another one may be all that fits.
    near = useful_chunks(chunks, truth) if costs is None else touching_chunks(truth, chunks)
    near = near if costs is None else replace(near, tokens=costs(near))
    coverage = SpanCoverage(near, truth) if weights is None else WeightedCoverage(near, truth, weights)
    if costs is not None:
        return best_within(coverage, ks)
    best = best_cover(coverage, max(ks))
    return np.stack([best[min(k, len(best)) - 1] for k in ks])


def _best_of_groups(chunks: SpanRows, wanted: GroupedCoverage, ks: Sequence[int], costs: Costs | None) -> Amounts:
    """Return the best over the choices of one member of each group."""
    queries = len(wanted.truth)
    ways = _members_of(chunks, wanted)
    single = wanted.single.merged_truth()
    pieces = [np.arange(begin, stop) for begin, stop in pairwise(single.offsets)]
    choices = [(query, np.array(choice, np.int64)) for query, groups in enumerate(ways) for choice in product(*groups)]
    # Groups of one come first, then all members: a choice is a selection of these rows.
    picked = [np.concatenate([pieces[query], len(single.query) + choice]) for query, choice in choices]
    rows, members = np.concatenate(picked), wanted.spans.take(wanted.members, wanted.spans.offsets)
    columns = [
        np.concatenate([getattr(single, name), getattr(members, name)])[rows] for name in ("doc", "start", "end")
    ]
    truth = SpanRows(np.cumsum([0, *map(len, picked)]), *columns)
    weights = np.concatenate([np.ones(len(single.query)), wanted.weights / wanted.lengths])[rows]
    best = _cover(chunks, truth, ks, costs, weights)
    return np.maximum.reduceat(best, np.searchsorted([query for query, _ in choices], np.arange(queries)), axis=1)


def _members_of(chunks: SpanRows, wanted: GroupedCoverage) -> list[list[list[int]]]:
    """Return the members to choose from, by query and group, limited to ``MOST_CHOICES`` combinations."""
    of_group = [list(range(begin, begin + size)) for begin, size in zip(wanted.begins, wanted.sizes, strict=True)]
    firsts = np.searchsorted(wanted.of, np.arange(len(wanted.truth) + 1))
    ways = [of_group[first:last] for first, last in pairwise(firsts)]
    too_many = [groups for groups in ways if prod(map(len, groups)) > MOST_CHOICES]
    if too_many:
        each = wanted.spans.take(wanted.members, np.arange(len(wanted.members) + 1))
        by_one = best_cover(SpanCoverage(useful_chunks(chunks, each), each), 1)[0] / wanted.lengths
        for groups in too_many:
            for group in groups:
                group.sort(key=lambda member: -by_one[member])
            while prod(map(len, groups)) > MOST_CHOICES:
                max(groups, key=len).pop()
    return ways


def useful_chunks(chunks: SpanRows, truth: SpanRows) -> SpanRows:
    """Return for each query the chunks that reach its truth, without chunks inside other chunks, which add nothing."""
    size = int(chunks.end.max(initial=0)) + 1
    start, end = chunks.doc * size + chunks.start, chunks.doc * size + chunks.end
    order = np.lexsort((-end, start))
    reach = np.maximum.accumulate(end[order])
    widest = order[np.append(True, reach[1:] > reach[:-1])[: len(order)]]
    return touching_chunks(truth, chunks.take(widest, np.array([0, len(widest)])))


def best_cover(chunks: SpanCoverage, most: int) -> Amounts:
    """Return how much of the truth 1, 2, … chunks of a query can cover together, a row a number; hits are the chunks.

    There are at most ``most`` rows; where there are fewer, further chunks add nothing to the last row.

    With B(j, x) the most that j chunks cover before position x, and s the earliest start of all chunks that hold the
    character before x: B(j, x) is the larger of B(j, x') at the border x' before x, and B(j - 1, s) + x - s, for if
    that character is covered at all, then no chunk does it better than the one that starts at s.
    """
    first, last = np.cumsum(chunks.truth + 1) - chunks.truth - 1, np.cumsum(chunks.truth + 1) - 1
    start, end = chunks.on_truth()
    reach = np.maximum.accumulate(end)
    border = np.unique(np.concatenate([first, start, end]))
    # The first chunk, by start, that reaches a border holds the character before it, or none does.
    earliest = np.append(start, border[-1:])[np.searchsorted(reach, border)]
    held = np.flatnonzero(earliest < border)
    before, gain = np.searchsorted(border, earliest[held]), border[held] - earliest[held]
    # A query's amounts are counted from its first position, so no earlier position can exceed them.
    nothing = first[np.searchsorted(first, border, side="right") - 1].astype(border.dtype)
    at_last = np.searchsorted(border, last, side="right") - 1
    best = nothing
    rows: list[Amounts] = []
    for _ in range(most):
        reached = nothing.copy()
        reached[held] = best[before] + gain
        reached = np.maximum.accumulate(reached)
        if rows and np.array_equal(reached, best):
            break
        best = reached
        rows.append(best[at_last] - first)
    return np.stack(rows)


def best_within(chunks: SpanCoverage, budgets: Sequence[int]) -> Amounts:
    """Return how much of the truth chunks of a query can cover that have no more tokens than a budget, a row each.

    As ``best_cover``, with B(c, x) the most that chunks of c tokens together cover before position x: the larger of
    B(c, x') at the border x' before x, and the best B(c - t, s) + x - s of all chunks that hold the character before x,
    a chunk of t tokens that starts at s. Where all chunks fit, that is what they cover.
    """
    (start, end), cost, most = chunks.on_truth(), chunks.costs(), max(budgets)
    query_of = chunks.hits.query
    before = np.append(start[:1], np.maximum.accumulate(end)[:-1])[: len(end)]
    queries = len(chunks.truth)
    covered = np.bincount(query_of, np.maximum(end - np.maximum(start, before), 0), queries).astype(start.dtype)
    amounts = np.tile(covered, (len(budgets), 1))
    for query in np.flatnonzero(np.bincount(query_of, cost, queries) > min(budgets)).tolist():
        some = np.arange(*chunks.hits.offsets[query : query + 2])
        some = some[(end[some] > start[some]) & (cost[some] <= most)]
        reached = np.zeros(most + 1, start.dtype)
        best: dict[float, Amounts] = {}
        for border in np.unique(np.concatenate([start[some], end[some]])).tolist():
            for chunk in some[(start[some] < border) & (end[some] >= border)].tolist():
                spent, begin = int(cost[chunk]), start[chunk].item()
                with_it = best[begin][: most + 1 - spent] + (border - begin)
                reached = np.append(reached[:spent], np.maximum(reached[spent:], with_it))
            best[border] = reached
        amounts[:, query] = reached[list(budgets)]
    return amounts
