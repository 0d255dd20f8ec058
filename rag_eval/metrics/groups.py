"""Groups of evidence: truth that is found by finding any one of several spans that say the same.

For a query with the groups g, let its *truth* be the first member of each, as it was written down, merged: T characters
in all. With share(m) the share of a member that the hits cover, and wᵍ the characters of the first member of g that no
group before it holds (groups of one member come before the others):

- a group is covered by its best covered member and counts once: covered = Σ wᵍ · max share(m) over the members of g;
  groups of one member are merged and counted in characters, as without groups;
- a hit on any member is relevant: relevant = the characters of the merged hits that are in any member of any group.

T does not depend on what was retrieved, covered can only grow with further hits, and both are what they are without
groups where every group has one member. The gain of a hit is what it adds to covered.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar, Unpack

import numpy as np

from rag_eval.metrics.coverage import SpanRows, SpanSweep, SweepSettings
from rag_eval.metrics.intervals import Place
from rag_eval.metrics.metric import ALL, Counts, Cut, Values

T = TypeVar("T")

ROUNDING = 1e-9


class GroupedSweep(SpanSweep):
    """A sweep of truth with groups of several members; as a plain sweep it would be that of all members."""

    def __init__(self, hits: SpanRows, truth: SpanRows, **given: Unpack[SweepSettings]) -> None:
        super().__init__(hits, truth, **given)
        firsts, sizes = truth.firsts, np.diff(np.append(truth.firsts, len(truth.doc)))
        several = sizes > 1
        self.alone = SpanSweep(hits, truth.of(firsts[~several]), **given)
        """The sweep of the groups of one member."""
        self.members = np.flatnonzero(np.repeat(several, sizes))
        """Which of the truth spans are in groups of several."""
        self.begins = np.concatenate([[0], np.cumsum(sizes[several])])[:-1]
        """Where each of these groups begins among their members."""
        self.of = truth.query[firsts[several]]
        """The query of each of these groups."""
        self.lengths = np.maximum((truth.end - truth.start)[self.members], 1)
        # Groups of one come first, then each first member adds what is new of it.
        order = np.lexsort((several, truth.query[firsts]))
        written = truth.of(firsts[order])
        new = np.empty(len(firsts), dtype=np.int64)
        new[order] = SpanSweep(written, written).gains(ALL)[written.rank - 1, written.query]
        self._new = new[several]
        self.weights = np.repeat(self._new, sizes[several])
        """For each member what its group counts."""
        self._written = (truth.end - truth.start)[firsts[several]]
        self._apart = self.apart(self.members)
        self.truth = self.alone.truth + self._summed(self._new).astype(np.int64)

    def covered(self, cut: Cut) -> Values:
        """How much of the truth is covered, each group by its best covered member."""
        # The product is whole: where all members are equally long, so is the quotient.
        amounts = np.maximum.reduceat(self._apart.covered(cut) * self.weights / self.lengths, self.begins)
        covered: Values = self.alone.covered(cut) + self._summed(amounts)
        return covered

    def gains(self, cut: Cut) -> Values:
        """For each rank what the hit adds to what is covered."""
        so_far = np.cumsum(self._apart.gains(cut), axis=0) * self.weights / self.lengths
        best = np.maximum.reduceat(so_far, self.begins, axis=1)
        gains = self.alone.gains(cut).astype(np.float64)
        for rank, added in enumerate(np.diff(best, axis=0, prepend=0)):
            gains[rank] += self._summed(added)
        return gains

    def relevant(self, cut: Cut) -> Counts | Values:
        """How much of what the hits hold is in any member."""
        return super().covered(cut)

    def relevant_gains(self, cut: Cut) -> Counts | Values:
        """For each rank how much of members the hit holds that none before it holds."""
        return super().gains(cut)

    def best_gains(self, cut: Cut) -> Counts:
        """The gains of a bound that no ranking passes: the groups of the m documents with most, and no more than all.

        A group is in every document that has a member of it.
        """
        documents, sizes = self._documents, np.diff(np.append(self.begins, len(self.members)))
        group = np.repeat(np.arange(len(self.begins)), sizes)
        own = np.unique(np.stack([group, self.given.doc[self.members]]), axis=1)
        query, doc, start, end = self.alone.merged_truth()
        key = np.concatenate([query * documents + doc, self.of[own[0]] * documents + own[1]])
        amount = np.concatenate([end - start, self._new[own[0]]])
        places, number = np.unique(key, return_inverse=True)
        sums = np.bincount(number, amount, len(places)).astype(np.int64)
        query = places // documents
        order = np.lexsort((-sums, query))
        query, sums = query[order], sums[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        by_rank = np.zeros((int(rank.max(initial=-1)) + 1, self._queries), dtype=np.int64)
        by_rank[rank, query] = sums
        bound = np.minimum(np.cumsum(by_rank, axis=0), self.truth)
        return np.diff(bound, axis=0, prepend=0)[: cut.hits]

    @cached_property
    def truth_total(self) -> Counts:
        """The summed length of the first members as given: an overlap counts again."""
        return self.alone.truth_total + self._summed(self._written).astype(np.int64)

    def uncovered_total(self, cut: Cut) -> Values:
        """How much is left uncovered, summed over the groups: an overlap counts again."""
        shares = np.maximum.reduceat(self._apart.covered(cut) / self.lengths, self.begins)
        uncovered: Values = self.alone.uncovered_total(cut) + self._summed(self._written * (1 - shares))
        return uncovered

    def _summed(self, amounts: Counts | Values) -> Values:
        """Amounts of the groups of several, by query."""
        return np.bincount(self.of, amounts, self._queries).astype(np.float64, copy=False)


class WeightedSweep(SpanSweep):
    """A sweep of truth whose characters count by the ``weights`` of the spans that hold them, whole in sum."""

    def __init__(self, hits: SpanRows, truth: SpanRows, weights: Values, **given: Unpack[SweepSettings]) -> None:
        super().__init__(hits, truth, **given)
        self._weights = weights
        total = np.bincount(truth.query, weights * (truth.end - truth.start), len(truth.offsets) - 1)
        self.truth = np.rint(total).astype(np.int64)

    def on_truth(self) -> tuple[Values, Values]:
        """As that of a sweep, a character being as long on the line as its weight."""
        given = self._truth_as_given
        weights = self._weights[self.given.offsets[given.query] + given.mark - 1]
        border, step = np.concatenate([given.start, given.end]), np.concatenate([weights, -weights])
        order = np.argsort(border, kind="stable")
        border, density = border[order], np.cumsum(step[order])
        # What is left of a sum of weights after all of them ended is rounding, and gaps are long.
        density[np.abs(density) < ROUNDING] = 0.0
        before = np.concatenate([[0.0], np.cumsum(density[:-1] * np.diff(border))])[: len(border)]
        first = (np.cumsum(self.truth) - self.truth)[self._hits.query]
        ends: list[Values] = []
        for position in (self._hits.start, self._hits.end):
            piece = np.searchsorted(border, position, side="right") - 1
            reached = np.where(piece < 0, 0.0, before[piece] + density[piece] * (position - border[piece]))
            ends.append(np.clip(reached, first, first + self.truth[self._hits.query]) + self._hits.query)
        return ends[0], ends[1]


def sweep_of(hits: SpanRows, truth: SpanRows, **given: Unpack[SweepSettings]) -> SpanSweep:
    """The sweep of a block of queries, with groups where the truth has any of several members."""
    is_grouped = truth.group is not None and len(truth.firsts) < len(truth.doc)
    return (GroupedSweep if is_grouped else SpanSweep)(hits, truth, **given)


def sweep_places(
    hits: Sequence[Sequence[Place]],
    truth: Sequence[Sequence[Place]],
    tokens: Sequence[Sequence[int]] | None = None,
    fewest: Sequence[int] | None = None,
    groups: Sequence[Sequence[int]] | None = None,
) -> SpanSweep:
    """The sweep of queries that are given as lists, an entry a query; ``groups`` are those of the truth."""
    places = [place for side in (hits, truth) for query in side for place in query]
    numbers = {doc_id: number for number, doc_id in enumerate({place[0]: 0 for place in places})}
    doc = np.array([numbers[place[0]] for place in places], dtype=np.int64)
    start = np.array([place[1] for place in places], dtype=np.int64)
    end = np.array([place[2] for place in places], dtype=np.int64)
    hit_offsets, truth_offsets = (np.cumsum([0, *map(len, side)]) for side in (hits, truth))
    every, count = SpanRows(hit_offsets, doc, start, end), int(hit_offsets[-1])
    relevant = every.take(slice(count, None), truth_offsets)
    if groups is not None:
        relevant = replace(relevant, group=_flat(groups))
    return sweep_of(
        every.take(slice(count), hit_offsets),
        relevant,
        tokens=None if tokens is None else _flat(tokens),
        fewest=None if fewest is None else np.array(fewest, dtype=np.int64),
    )


def _flat(numbers: Sequence[Sequence[int]]) -> Counts:
    return np.array([number for query in numbers for number in query], dtype=np.int64)


def ungrouped(truth: Sequence[T | tuple[T, ...]]) -> tuple[list[T], list[int]]:
    """The members of truth in which a tuple is a group, and the number of each member's group."""
    groups = [one if isinstance(one, tuple) else (one,) for one in truth]
    return [member for group in groups for member in group], [
        number for number, group in enumerate(groups) for _ in group
    ]
