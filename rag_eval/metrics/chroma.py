"""The redundancy-penalised metrics that Chroma published, beside the merged ones.

B. Smith, A. Troynikov, *Evaluating Chunking Strategies for Retrieval*, Chroma Technical Report, 2024.
N is the number of truth characters that the retrieved chunks cover, each counted once. Sums are over chunks and
references as they are given: text that is retrieved twice is paid for twice. With k = "min" a query gets as many hits
as there are chunks that touch one of its references, at most 20.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.base import Depth, MetricName, check_cut
from rag_eval.metrics.chunked_corpus import ChunkedCorpus
from rag_eval.metrics.formulas import Values, ratio
from rag_eval.metrics.span_counts import SpanCase, SpanCounts
from rag_eval.metrics.units import CHARACTERS
from rag_eval.types.span import CharacterSpan


@dataclass(frozen=True)
class ChromaMetric(ABC):
    """A metric on the first k spans retrieved; k is a number, "min" (which needs the chunks) or None for all.

    Raises ``ConfigurationError`` on another k, and on "min" without chunks.
    """

    label: ClassVar[str]
    k: Depth = None
    chunks: ChunkedCorpus | None = None

    def __post_init__(self) -> None:
        if self.k != "min":
            check_cut(self.k, self.label)
        elif self.chunks is None:
            raise ConfigurationError(f"{self.name} counts the chunks that touch a reference: give it the chunks")

    @property
    def name(self) -> str:
        """Such as ``chroma_iou``, ``chroma_iou@5`` or ``chroma_iou@min``."""
        return str(MetricName(self.label, None, self.k))

    @staticmethod
    @abstractmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """The metric for every query that was counted."""

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query."""
        hits = retrieved[: self._first(ground_truth)]
        case = SpanCase(CHARACTERS.places(hits), CHARACTERS.places(ground_truth))
        return float(self.formula(case, None)[0])

    def _first(self, ground_truth: Sequence[CharacterSpan]) -> int | None:
        if self.k == "min" and self.chunks is not None:
            return self.chunks.min_k(ground_truth)
        return None if self.k == "min" else self.k


class ChromaRecall(ChromaMetric):
    """N / Σ|reference|; 0 on empty truth."""

    label = "chroma_recall"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """N / Σ|reference|."""
        return ratio(counts.covered(k), counts.truth_total)


class ChromaPrecision(ChromaMetric):
    """N / Σ|chunk| over all retrieved chunks, of whatever document; 0 on empty retrieval."""

    label = "chroma_precision"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """N / Σ|chunk|."""
        return ratio(counts.covered(k), counts.retrieved_total(k))


class ChromaIoU(ChromaMetric):
    """N / (Σ|chunk| + Σ|uncovered part of a reference|); 1 when both sides are empty, 0 when one is."""

    label = "chroma_iou"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """N / (Σ|chunk| + Σ|uncovered part of a reference|)."""
        return ratio(counts.covered(k), counts.retrieved_total(k) + counts.uncovered_total(k), empty=1.0)


@dataclass(frozen=True)
class PrecisionOmega:
    """The precision that perfect retrieval would reach with these chunks: a property of the chunking alone.

    With C the union of all chunks that touch a reference: |C ∩ truth| / |C ∪ truth|. What was retrieved plays no part.
    0 on empty truth, and when no chunk touches it.
    """

    label: ClassVar[str] = "precision_omega"
    chunks: ChunkedCorpus

    @property
    def name(self) -> str:
        """``precision_omega``."""
        return self.label

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """|C ∩ truth| / |C ∪ truth|, where the hits that were counted are C."""
        covered = counts.covered(k)
        return ratio(covered, counts.retrieved(k) + counts.truth - covered)

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        """The metric for one query; ``retrieved`` is not looked at."""
        case = SpanCase(self.chunks.touching(ground_truth), CHARACTERS.places(ground_truth))
        return float(self.formula(case, None)[0])
