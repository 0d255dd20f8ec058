"""Set metrics on character spans: spans of one side are merged per document first, so a character counts once.

Formulas: recall, precision and Jaccard index (intersection over union) of two sets of characters, as in C. D. Manning,
P. Raghavan, H. Schütze, *Introduction to Information Retrieval*, 2008, chapters 3 and 8.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_eval.metrics.base import MetricName, check_cut
from rag_eval.metrics.formulas import Values, ratio
from rag_eval.metrics.span_counts import SpanCase, SpanCounts
from rag_eval.metrics.units import CHARACTERS, SpanUnit
from rag_eval.types.span import CharacterSpan


@dataclass(frozen=True)
class SpanMetric(ABC):
    """A metric on the first k spans retrieved (None: all), counted in characters or in tokens of a ``TokenUnit``.

    Raises ``ConfigurationError`` when k is not a whole number of 1 or more.
    """

    label: ClassVar[str]
    k: int | None = None
    unit: SpanUnit = CHARACTERS

    def __post_init__(self) -> None:
        check_cut(self.k, self.label)

    @property
    def name(self) -> str:
        """Such as ``span_recall``, ``span_recall@5`` or ``span_recall(cl100k_base)@5``."""
        return str(MetricName(self.label, self.unit.name, self.k))

    @staticmethod
    @abstractmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """The metric for every query that was counted."""

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query."""
        case = SpanCase(self.unit.places(retrieved[: self.k]), self.unit.places(ground_truth))
        return float(self.formula(case, self.k)[0])


class SpanRecall(SpanMetric):
    """|retrieved ∩ truth| / |truth|; 0 on empty truth."""

    label = "span_recall"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|retrieved ∩ truth| / |truth|."""
        return ratio(counts.covered(k), counts.truth)


class SpanPrecision(SpanMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    label = "span_precision"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|retrieved ∩ truth| / |retrieved|."""
        return ratio(counts.covered(k), counts.retrieved(k))


class SpanIoU(SpanMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    label = "span_iou"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|retrieved ∩ truth| / |retrieved ∪ truth|."""
        covered = counts.covered(k)
        return ratio(covered, counts.retrieved(k) + counts.truth - covered, empty=1.0)
