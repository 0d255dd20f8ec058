"""Stretches of documents as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rag_eval.metrics.formulas import Counts


@dataclass(frozen=True)
class Places:
    """Stretches of documents by number, ``[start, end)`` in code points, one a row."""

    document: Counts
    start: Counts
    end: Counts

    def __len__(self) -> int:
        return len(self.document)

    @classmethod
    def together(cls, parts: Sequence["Places"]) -> "Places":
        """All of them, one after the other."""
        columns = zip(*((part.document, part.start, part.end) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns)) if parts else cls(*np.zeros((3, 0), np.int64))

    @property
    def characters(self) -> int:
        """The summed length."""
        return int((self.end - self.start).sum())

    @property
    def longest(self) -> int:
        """The length of the longest."""
        return int((self.end - self.start).max(initial=0))

    def rows(self) -> Counts:
        """Document, start and end, a row for each stretch."""
        return np.stack([self.document, self.start, self.end], axis=1)

    def taken(self, rows: Counts) -> "Places":
        """The stretches with these numbers."""
        return Places(self.document[rows], self.start[rows], self.end[rows])

    def merged(self) -> "Places":
        """By document and start; those that overlap or touch become one."""
        # All documents on one line with a position between them: one sort and one pass merge them all.
        size = int(self.end.max(initial=0)) + 1
        start, end = self.document * size + self.start, self.document * size + self.end
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        first = np.flatnonzero(np.append(True, start[1:] > reach[:-1])[: len(start)])
        last = np.append(first[1:], len(start))[: len(first)] - 1
        document = self.document[order][first]
        return Places(document, start[first] - document * size, reach[last] - document * size)

    def touching(self, others: "Places") -> Counts:
        """The rows that share a character with one of the others, which are merged."""
        size = int(max(self.end.max(initial=0), others.end.max(initial=0))) + 1
        begins = np.append(others.document * size + others.start, np.iinfo(np.int64).max)
        after = np.searchsorted(others.document * size + others.end, self.document * size + self.start, side="right")
        # Documents that are not looked at have the number -1.
        return np.flatnonzero((self.document >= 0) & (begins[after] < self.document * size + self.end))
