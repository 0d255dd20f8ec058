"""What the chunk metrics are computed from, and its plain form for one query."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from rag_eval.metrics.formulas import Counts
from rag_eval.types.ids import ChunkId


class ChunkCounts(Protocol):
    """Numbers of chunks, one entry a query; k counts the first k hits, None all of them."""

    @property
    def relevant(self) -> Counts:
        """How many different chunks are relevant."""

    def gains(self, k: int | None) -> Counts:
        """For each rank 1 when the hit is relevant and not a repetition, else 0."""

    def distinct(self, k: int | None) -> Counts:
        """How many different chunks were retrieved."""


class ChunkCase:
    """``ChunkCounts`` of one query."""

    def __init__(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[ChunkId]) -> None:
        self._retrieved = retrieved
        self._relevant = set(ground_truth)

    @property
    def relevant(self) -> Counts:
        """As in ``ChunkCounts``."""
        return np.array([len(self._relevant)], dtype=np.int64)

    def gains(self, k: int | None) -> Counts:
        """As in ``ChunkCounts``."""
        wanted = set(self._relevant)
        gains = []
        for chunk_id in self._retrieved[:k]:
            gains.append(int(chunk_id in wanted))
            wanted.discard(chunk_id)
        return np.array(gains, dtype=np.int64).reshape(-1, 1)

    def distinct(self, k: int | None) -> Counts:
        """As in ``ChunkCounts``."""
        return np.array([len(set(self._retrieved[:k]))], dtype=np.int64)
