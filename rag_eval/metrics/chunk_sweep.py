"""``ChunkCounts`` of many queries at once."""

from functools import cached_property

import numpy as np

from rag_eval.metrics.formulas import Counts


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
