"""Rank-aware metrics on character spans.

The gain of a hit is the number of truth characters that it covers and that no hit before it covered; a hit that only
repeats what was seen has no gain and keeps its rank. T is the number of truth characters. Every value is in [0, 1].
"""

from rag_eval.metrics.formulas import Values, average_precision, discounted_gain, hit_rate, ratio, reciprocal_rank
from rag_eval.metrics.span_counts import SpanCounts
from rag_eval.metrics.span_metrics import SpanMetric


class SpanHitRate(SpanMetric):
    """1 when a hit has a gain, else 0; 0 on empty truth or retrieval."""

    label = "span_hit_rate"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """1 when a hit has a gain, else 0."""
        return hit_rate(counts.gains(k))


class SpanMRR(SpanMetric):
    """1 / rank of the first hit that has a gain; 0 when none has, also on empty truth or retrieval.

    E. M. Voorhees, *The TREC-8 Question Answering Track Report*, 1999. The mean over queries is the MRR.
    """

    label = "span_mrr"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """1 / rank of the first gain."""
        return reciprocal_rank(counts.gains(k))


class SpanMAP(SpanMetric):
    """Σᵢ gain(i) · P(i) / T, P(i) being the share of the first i hits that have a gain; 0 on empty truth or retrieval.

    1 when all truth is covered and no hit without a gain comes before one with a gain. How much else a hit holds is
    left to ``SpanPrecision``. Where the truth is whole chunks of one length it is the average precision of
    C. Buckley, E. M. Voorhees, *Evaluating Evaluation Measure Stability*, 2000. The mean over queries is the MAP.
    """

    label = "span_map"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """Σᵢ gain(i) · P(i) / T."""
        return average_precision(counts.gains(k), counts.truth)


class SpanNDCG(SpanMetric):
    """DCG / ideal DCG, where DCG = Σᵢ gain(i) / log₂(i + 1); 0 on empty truth or retrieval.

    A hit lies in one document, so the first m hits cover at most the truth of the m documents that hold most of it.
    The ideal is that bound reached at every m ≤ k: the truth of each document at one rank, the largest first.
    As the discounts fall, no ranking of spans has a larger DCG, whatever the chunks are.
    K. Järvelin, J. Kekäläinen, *Cumulated Gain-Based Evaluation of IR Techniques*, 2002.
    """

    label = "span_ndcg"

    @staticmethod
    def formula(counts: SpanCounts, k: int | None) -> Values:
        """DCG / ideal DCG."""
        return ratio(discounted_gain(counts.gains(k)), counts.ideal_gain(k))
