"""Coverage of groups of evidence: ground truth where any one of several spans is enough.

For a query with the groups g, let its *truth* be the first member of each, merged: T characters in all. With share(m)
the share of a member that the hits cover, and wᵍ the characters of the first member of g that no group before it holds
(groups of one member come before the others):

- a group is covered by its best covered member and counts once: covered = Σ wᵍ · max share(m) over the members of g;
  groups of one member are merged and counted in characters, as without groups;
- a hit on any member is relevant: relevant = the characters of the merged hits that are in any member of any group.

T does not depend on what was retrieved, covered can only grow with further hits, and both are what they are without
groups where every group has one member. The gain of a hit is what it adds to covered.
"""

from functools import cached_property

import numpy as np

from rag_eval.metrics.coverage import SpanCoverage, SpanRows, largest_first
from rag_eval.metrics.metric import ALL, Counts, Cut, Values


class GroupedCoverage(SpanCoverage):
    """Coverage of truth with groups of several members."""

    def __init__(self, hits: SpanRows, truth: SpanRows, fewest: Counts | None = None, is_merged: bool = False) -> None:
        super().__init__(hits, truth, fewest, is_merged)
        firsts, sizes = truth.firsts, truth.group_sizes
        several = sizes > 1
        self.single = SpanCoverage(hits, truth.select(firsts[~several]), fewest, is_merged)
        """The coverage of the groups of one member."""
        self.members = np.flatnonzero(np.repeat(several, sizes))
        """The truth spans that are in groups of several."""
        self.sizes = sizes[several]
        self.begins = np.concatenate([[0], np.cumsum(self.sizes)])[:-1]
        """Where each of these groups starts among their members."""
        self.of = truth.query[firsts[several]]
        """The query of each of these groups."""
        self.lengths = np.maximum(truth.lengths[self.members], 1)
        # Groups of one come first, then each first member adds its new characters.
        order = np.lexsort((several, truth.query[firsts]))
        written = truth.select(firsts[order])
        new = np.empty(len(firsts), dtype=np.int64)
        new[order] = SpanCoverage(written, written).gains(ALL)[written.rank - 1, written.query]
        self._new = new[several]
        self.weights = np.repeat(self._new, self.sizes)
        """For each member, the characters that its group counts."""
        self._first_lengths = truth.lengths[firsts[several]]
        self._by_member = self.by_span(self.members)
        self.truth = self.single.truth + self._summed(self._new).astype(np.int64)

    def covered(self, cut: Cut) -> Values:
        """Return how much of the truth is covered, counting each group by its best covered member."""
        # Multiply first: the product is a whole number, and so is the quotient if all members are equally long.
        amounts = np.maximum.reduceat(self._by_member.covered(cut) * self.weights / self.lengths, self.begins)
        covered: Values = self.single.covered(cut) + self._summed(amounts)
        return covered

    def gains(self, cut: Cut) -> Values:
        """Return for each rank how much coverage the hit adds."""
        so_far = np.cumsum(self._by_member.gains(cut), axis=0) * self.weights / self.lengths
        best = np.maximum.reduceat(so_far, self.begins, axis=1)
        gains = self.single.gains(cut).astype(np.float64)
        for rank, added in enumerate(np.diff(best, axis=0, prepend=0)):
            gains[rank] += self._summed(added)
        return gains

    def relevant(self, cut: Cut) -> Counts | Values:
        """Return how much of the text of the hits is in any member."""
        return super().covered(cut)

    def relevant_gains(self, cut: Cut) -> Counts | Values:
        """Return for each rank how much text of members the hit has that no earlier hit has."""
        return super().gains(cut)

    def best_gains(self, cut: Cut) -> Counts:
        """Return the gains of an upper bound: the groups in the m documents that hold most, at most the whole truth.

        A group counts in every document that holds one of its members.
        """
        group = np.repeat(np.arange(len(self.begins)), self.sizes)
        group, doc = np.unique(np.stack([group, self.spans.doc[self.members]]), axis=1)
        single = self.single.merged_truth()
        key = np.concatenate([single.query * self._documents + single.doc, self.of[group] * self._documents + doc])
        amount = np.concatenate([single.lengths, self._new[group]])
        places, number = np.unique(key, return_inverse=True)
        sums = np.bincount(number, amount, len(places)).astype(np.int64)
        by_rank = largest_first(places // self._documents, sums, self._queries)
        bound = np.minimum(np.cumsum(by_rank, axis=0), self.truth)
        return np.diff(bound, axis=0, prepend=0)[: cut.hits]

    @cached_property
    def truth_total(self) -> Counts:
        """The summed length of the first members. Overlaps count repeatedly."""
        return self.single.truth_total + self._summed(self._first_lengths).astype(np.int64)

    def uncovered_total(self, cut: Cut) -> Values:
        """Return the uncovered length, summed over the groups. Overlaps count repeatedly."""
        shares = np.maximum.reduceat(self._by_member.covered(cut) / self.lengths, self.begins)
        uncovered: Values = self.single.uncovered_total(cut) + self._summed(self._first_lengths * (1 - shares))
        return uncovered

    def _summed(self, amounts: Counts | Values) -> Values:
        """Sum amounts of groups with several members by query."""
        return np.bincount(self.of, amounts, self._queries).astype(np.float64, copy=False)


def coverage_of(hits: SpanRows, truth: SpanRows, fewest: Counts | None = None, is_merged: bool = False) -> SpanCoverage:
    """Return the coverage of a block of queries, grouped if any group of the truth has several members."""
    is_grouped = truth.group is not None and len(truth.firsts) < len(truth.doc)
    return (GroupedCoverage if is_grouped else SpanCoverage)(hits, truth, fewest, is_merged)
