"""The redundancy-penalised metrics that Chroma published, beside the merged ones.

B. Smith, A. Troynikov, *Evaluating Chunking Strategies for Retrieval*, Chroma Technical Report, 2024.
N is the number of truth characters that the retrieved chunks cover, each counted once. Sums are over chunks and
references as they are given: text that is retrieved twice is paid for twice. With k = "min" a query gets as many hits
as there are chunks that touch one of its references, at most 20.
"""

from dataclasses import dataclass, field

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.coverage import SpanCoverage
from rag_eval.metrics.formulas import IoU, ratio
from rag_eval.metrics.metric import MIN, Cut, Depth, Values
from rag_eval.metrics.span_metrics import ChunkedCorpus, MetricOnSpans


@dataclass(frozen=True)
class ChromaMetric(MetricOnSpans):
    """A metric on the first k spans retrieved; k is a number, "min" (which needs the chunks), a ``Cut`` or None.

    Raises ``ConfigurationError`` on another k, and on "min" without chunks.
    """

    cuts = frozenset({"all", "hits", "tokens", "min"})
    k: Depth = None
    chunks: ChunkedCorpus | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cut == MIN and self.chunks is None:
            raise ConfigurationError(f"{self.name} counts the chunks that touch a reference: give it the chunks")


class ChromaRecall(ChromaMetric):
    """N / Σ|reference|; 0 on empty truth."""

    label = "chroma_recall"
    only_rises = True
    bounds = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.covered(cut), hits.truth_total, cls.empty)


class ChromaPrecision(ChromaMetric):
    """N / Σ|chunk| over all retrieved chunks, of whatever document; 0 on empty retrieval."""

    label = "chroma_precision"
    bounds = "both"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.relevant(cut), hits.retrieved_total(cut), cls.empty)


class ChromaIoU(ChromaMetric):
    """N / (Σ|chunk| + Σ|uncovered part of a reference|); 1 when both sides are empty, 0 when one is."""

    label = "chroma_iou"
    empty = 1.0
    bounds = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.relevant(cut), hits.retrieved_total(cut) + hits.uncovered_total(cut), cls.empty)


@dataclass(frozen=True)
class PrecisionOmega(IoU, MetricOnSpans):
    """The precision that perfect retrieval would reach with these chunks: a property of the chunking alone.

    With C the union of all chunks that touch a reference: |C ∩ truth| / |C ∪ truth|. What was retrieved plays no part.
    0 on empty truth, and when no chunk touches it.
    """

    label = "precision_omega"
    only_rises = True
    empty = 0.0
    bounds = "neither"
    cuts = frozenset({"all"})
    reads = frozenset({"chunks"})
    chunks: ChunkedCorpus = field()
