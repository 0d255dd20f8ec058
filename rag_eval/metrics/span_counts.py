"""What the span metrics are computed from, and its plain form for one query."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from rag_eval.metrics.formulas import Counts, Values, discounted_gain
from rag_eval.metrics.intervals import Place, measure, merge_places, shared_length, take_away


class SpanCounts(Protocol):
    """Lengths of spans, one entry a query; k counts the first k hits, None all of them.

    The unit is the character unless the places were given in tokens.
    """

    @property
    def truth(self) -> Counts:
        """The length of the merged truth."""

    @property
    def truth_total(self) -> Counts:
        """The summed length of the truth spans as given: an overlap counts again."""

    def covered(self, k: int | None) -> Counts:
        """How much of the merged truth the hits cover."""

    def uncovered_total(self, k: int | None) -> Counts:
        """How much the hits leave uncovered, summed over the truth spans as given."""

    def gains(self, k: int | None) -> Counts:
        """For each rank what the hit newly covers of the merged truth."""

    def retrieved(self, k: int | None) -> Counts:
        """The length of the merged hits."""

    def retrieved_total(self, k: int | None) -> Counts:
        """The summed length of the hits as given: an overlap counts again."""

    def ideal_gain(self, k: int | None) -> Values:
        """The largest discounted gain that any ranking of spans can reach."""


class SpanCase:
    """``SpanCounts`` of one query."""

    def __init__(self, retrieved: Sequence[Place], truth: Sequence[Place]) -> None:
        self._retrieved = retrieved
        self._truth_places = truth

    @cached_property
    def _truth(self) -> dict[str, list[tuple[int, int]]]:
        return merge_places(self._truth_places)

    @property
    def truth(self) -> Counts:
        """As in ``SpanCounts``."""
        return _one(measure(self._truth))

    @property
    def truth_total(self) -> Counts:
        """As in ``SpanCounts``."""
        return _one(_summed(self._truth_places))

    def covered(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return _one(shared_length(merge_places(self._retrieved[:k]), self._truth))

    def uncovered_total(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        hits = merge_places(self._retrieved[:k])
        covered = sum(shared_length(hits, merge_places([place])) for place in self._truth_places)
        return self.truth_total - covered

    def gains(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        left = dict(self._truth)
        gains = []
        for doc_id, start, end in self._retrieved[:k]:
            left[doc_id], gain = take_away(left.get(doc_id, []), start, end)
            gains.append(gain)
        return np.array(gains, dtype=np.int64).reshape(-1, 1)

    def retrieved(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return _one(measure(merge_places(self._retrieved[:k])))

    def retrieved_total(self, k: int | None) -> Counts:
        """As in ``SpanCounts``."""
        return _one(_summed(self._retrieved[:k]))

    def ideal_gain(self, k: int | None) -> Values:
        """As in ``SpanCounts``."""
        by_document = sorted((sum(e - s for s, e in spans) for spans in self._truth.values()), reverse=True)
        return discounted_gain(np.array(by_document[:k], dtype=np.int64).reshape(-1, 1))


def _one(value: int) -> Counts:
    return np.array([value], dtype=np.int64)


def _summed(places: Sequence[Place]) -> int:
    return sum(end - start for _, start, end in places)
