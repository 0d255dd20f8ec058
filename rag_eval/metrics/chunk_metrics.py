"""Set metrics on chunk ids: a repeated id counts once.

Formulas: C. D. Manning, P. Raghavan, H. Schütze, *Introduction to Information Retrieval*, 2008, chapter 8.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_eval.metrics.base import MetricName, check_cut
from rag_eval.metrics.chunk_counts import ChunkCase, ChunkCounts
from rag_eval.metrics.formulas import Values, ratio
from rag_eval.types.ids import ChunkId


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
