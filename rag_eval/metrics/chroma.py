"""The redundancy-penalised metrics that Chroma published, beside the merged ones.

B. Smith, A. Troynikov, *Evaluating Chunking Strategies for Retrieval*, Chroma Technical Report, 2024.
N is the number of truth characters that the retrieved chunks cover, each counted once. Sums are over chunks and
references as they are given: text that is retrieved twice is paid for twice. With k = "min" a query gets as many hits
as there are chunks that touch one of its references, at most 20.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.intervals import Place
from rag_eval.metrics.metric import Counts, Depth, MetricName, Values, check_cut, ratio
from rag_eval.metrics.span_metrics import CHARACTERS, SpanCase, SpanCounts
from rag_eval.metrics.sweep import overlapping_pairs
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk

MAX_MIN_K = 20
"""The most hits that k = "min" takes."""


@dataclass(frozen=True)
class ChunkLine:
    """Chunks on one line of positions, sorted by start; ends need not be in order."""

    starts: Counts
    ends: Counts

    @classmethod
    def build(cls, starts: Counts, ends: Counts) -> "ChunkLine":
        """The line of the given chunks, in any order."""
        order = np.lexsort((ends, starts))
        return cls(starts[order], ends[order])

    def touching(self, starts: Counts, ends: Counts) -> tuple[Counts, Counts]:
        """The pairs (reference, chunk), by number, that share a position or a border."""
        return overlapping_pairs(self.starts, self.ends, starts - 1, ends + 1)


class ChunkedCorpus:
    """All chunks of a corpus, to be asked which of them touch a reference.

    A chunk touches a reference of its document when they share a character or one ends where the other begins:
    Chroma counts it so, and its published figures depend on it.
    """

    def __init__(self, chunks: Iterable[PositionAwareChunk]) -> None:
        places: dict[str, list[tuple[int, int]]] = {}
        for chunk in chunks:
            places.setdefault(chunk.doc_id, []).append((chunk.start, chunk.end))
        self._lines = {
            doc_id: ChunkLine.build(*np.array(spans, dtype=np.int64).T.copy()) for doc_id, spans in places.items()
        }

    def touching(self, references: Sequence[CharacterSpan]) -> list[Place]:
        """The places of the chunks that touch a reference, each chunk once."""
        places: list[Place] = []
        for doc_id in sorted({reference.doc_id for reference in references}):
            line = self._lines.get(doc_id)
            if line is None:
                continue
            spans = [(r.start, r.end) for r in references if r.doc_id == doc_id]
            _, chunks = line.touching(*np.array(spans, dtype=np.int64).T)
            numbers = np.unique(chunks)
            pairs = zip(line.starts[numbers].tolist(), line.ends[numbers].tolist(), strict=True)
            places.extend((doc_id, start, end) for start, end in pairs)
        return places

    def min_k(self, references: Sequence[CharacterSpan]) -> int:
        """How many chunks touch a reference, at most 20: what k = "min" stands for."""
        return min(len(self.touching(references)), MAX_MIN_K)


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
