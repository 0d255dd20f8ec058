"""Rank-aware metrics on chunk ids.

A hit is useful when its chunk is relevant and was not retrieved before; a repeated id keeps its rank and is not useful
again. R is the number of relevant chunks. Every value is in [0, 1], and 0 on empty truth or retrieval.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from rag_eval.metrics.metric import (
    Counts,
    MetricName,
    Values,
    average_precision,
    check_cut,
    discounted_gain,
    discounts,
    hit_rate,
    ratio,
    reciprocal_rank,
)
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


@dataclass(frozen=True)
class ChunkMetric(ABC):
    """A metric on the first k chunk ids retrieved (None: all).

    Raises ``ConfigurationError`` when k is not a whole number of 1 or more.
    """

    label: ClassVar[str]
    k: int | None = None

    def __post_init__(self) -> None:
        check_cut(self.k, self.label)

    @property
    def name(self) -> str:
        """Such as ``chunk_recall`` or ``chunk_recall@5``."""
        return str(MetricName(self.label, None, self.k))

    @staticmethod
    @abstractmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """The metric for every query that was counted."""

    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[ChunkId]) -> float:
        """The metric for one query."""
        return float(self.formula(ChunkCase(retrieved, ground_truth), self.k)[0])


class ChunkRecall(ChunkMetric):
    """|retrieved ∩ relevant| / |relevant|; 0 on empty truth."""

    label = "chunk_recall"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """|retrieved ∩ relevant| / |relevant|."""
        return ratio(counts.gains(k).sum(axis=0), counts.relevant)


class ChunkPrecision(ChunkMetric):
    """|retrieved ∩ relevant| / |retrieved|; 0 on empty retrieval.

    The divisor is what was retrieved, not k: a store that holds fewer than k chunks is not punished for it.
    """

    label = "chunk_precision"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """|retrieved ∩ relevant| / |retrieved|."""
        return ratio(counts.gains(k).sum(axis=0), counts.distinct(k))


class ChunkF1(ChunkMetric):
    """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|), the harmonic mean of precision and recall.

    0 on empty truth, on empty retrieval and on both.
    """

    label = "chunk_f1"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|)."""
        return ratio(2 * counts.gains(k).sum(axis=0), counts.distinct(k) + counts.relevant)


class ChunkHitRate(ChunkMetric):
    """1 when a hit is useful, else 0; 0 on empty truth or retrieval."""

    label = "chunk_hit_rate"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """1 when a hit is useful, else 0."""
        return hit_rate(counts.gains(k))


class ChunkMRR(ChunkMetric):
    """1 / rank of the first useful hit; 0 when there is none.

    E. M. Voorhees, *The TREC-8 Question Answering Track Report*, 1999. The mean over queries is the MRR.
    """

    label = "chunk_mrr"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """1 / rank of the first useful hit."""
        return reciprocal_rank(counts.gains(k))


class ChunkMAP(ChunkMetric):
    """Σ P(i) / R over the ranks i of useful hits, P(i) being the share of useful hits among the first i.

    Cut at k the divisor stays R, as in trec_eval; 0 on empty truth or retrieval.
    C. Buckley, E. M. Voorhees, *Evaluating Evaluation Measure Stability*, 2000. The mean over queries is the MAP.
    """

    label = "chunk_map"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """Σ P(i) / R."""
        return average_precision(counts.gains(k), counts.relevant)


class ChunkNDCG(ChunkMetric):
    """DCG / ideal DCG, where DCG = Σ 1 / log₂(i + 1) over the ranks i of useful hits.

    The ideal has useful hits at the ranks 1 … min(k, R); 0 on empty truth or retrieval.
    K. Järvelin, J. Kekäläinen, *Cumulated Gain-Based Evaluation of IR Techniques*, 2002.
    """

    label = "chunk_ndcg"

    @staticmethod
    def formula(counts: ChunkCounts, k: int | None) -> Values:
        """DCG / ideal DCG."""
        return ratio(discounted_gain(counts.gains(k)), _ideal_gain(counts.relevant, k))


def _ideal_gain(relevant: Counts, k: int | None) -> Values:
    reachable = relevant if k is None else np.minimum(relevant, k)
    largest = int(reachable.max(initial=0))
    return np.concatenate([[0.0], np.cumsum(discounts(largest))])[reachable]
