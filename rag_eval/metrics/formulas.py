"""The formulas of the metrics, each stated once for both levels: on lengths of spans and on numbers of chunks.

A formula reads counts: arrays with one entry a query, or a row a rank and a column a query. The gain of a hit is what
it adds to the covered truth. Where truth has groups (``rag_eval.metrics.groups``), what is covered counts a group once,
and a hit on any member of a group is relevant. Sums over ranks are added rank by rank, so that one query has the same
value, to the last bit, as among many.
"""

import math
from typing import ClassVar

import numpy as np

from rag_eval.metrics.coverage import SpanCoverage
from rag_eval.metrics.metric import Bounds, Counts, Cut, RetrievalMetric, Values


def ratio(part: Counts | Values, whole: Counts | Values, empty: float = 0.0) -> Values:
    """Return ``part / whole``, and ``empty`` where the whole is 0."""
    values = np.full(whole.shape, empty, dtype=np.float64)
    return np.divide(part, whole, out=values, where=whole > 0)


def discounted_gain(gains: Counts | Values) -> Values:
    """Return Σ gain(i) / log₂(i + 1)."""
    values = np.zeros(gains.shape[1])
    for rank, gain in enumerate(gains, start=1):
        values += gain * (1 / math.log2(rank + 1))
    return values


class Recall(RetrievalMetric):
    """|retrieved ∩ truth| / |truth|; 0 on empty truth."""

    only_rises = True
    bounds = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.covered(cut), hits.truth, cls.empty)


class Precision(RetrievalMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    bounds = "both"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.relevant(cut), hits.retrieved(cut), cls.empty)


class IoU(RetrievalMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    empty = 1.0
    bounds: ClassVar[Bounds] = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.relevant(cut), hits.retrieved(cut) + hits.truth - hits.covered(cut), cls.empty)


class F1(RetrievalMetric):
    """2 · |retrieved ∩ truth| / (|retrieved| + |truth|) without groups: the harmonic mean; 0 on an empty side."""

    bounds = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        covered, relevant = hits.covered(cut), hits.relevant(cut)
        return ratio(2 * relevant * covered, relevant * hits.truth + covered * hits.retrieved(cut), cls.empty)


class HitRate(RetrievalMetric):
    """1 where any hit is relevant, else 0."""

    only_rises = True
    bounds = "both"
    meaning = "finds something relevant for {} of the questions"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        is_hit: Counts = np.any(hits.relevant_gains(cut) > 0, axis=0)
        return is_hit.astype(np.float64)


class ReciprocalRank(RetrievalMetric):
    """1 / the rank of the first relevant hit; 0 where none is.

    E. M. Voorhees, *The TREC-8 Question Answering Track Report*, 1999. The mean over queries is the MRR.
    """

    only_rises = True
    bounds = "both"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        gains = hits.relevant_gains(cut)
        values = np.zeros(gains.shape[1])
        for rank, gain in enumerate(gains, start=1):
            np.maximum(values, (gain > 0) / rank, out=values)
        return values


class AveragePrecision(RetrievalMetric):
    """Σ gain(i) · P(i) / |truth|, P(i) being the share of the first i ranks with new truth; 0 on empty truth.

    Cut at k the divisor stays the whole truth, as in trec_eval.
    C. Buckley, E. M. Voorhees, *Evaluating Evaluation Measure Stability*, 2000. The mean over queries is the MAP.
    """

    only_rises = True

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        gains = hits.gains(cut)
        useful = np.zeros(gains.shape[1], dtype=np.int64)
        weighted = np.zeros(gains.shape[1])
        for rank, (gain, relevant) in enumerate(zip(gains, hits.relevant_gains(cut), strict=True), start=1):
            useful += relevant > 0
            weighted += gain * (useful / rank)
        return ratio(weighted, hits.truth, cls.empty)


class NormalisedGain(RetrievalMetric):
    """DCG / ideal DCG, where DCG = Σ gain(i) / log₂(i + 1); 0 on empty truth or retrieval.

    The ideal has as many ranks as the cut has hits, so the value may fall with more of them; a budget of tokens does
    not bound the ideal. K. Järvelin, J. Kekäläinen, *Cumulated Gain-Based Evaluation of IR Techniques*, 2002.
    """

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(discounted_gain(hits.gains(cut)), discounted_gain(hits.best_gains(cut)), cls.empty)


class TokenCost(RetrievalMetric):
    """Σ of the tokens of the hits' texts, each text tokenised on its own; 0 on empty retrieval."""

    higher_is_better = False
    only_rises = True
    measures = "tokens"
    reads = frozenset({"tokens"})

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return hits.tokens(cut).astype(np.float64)
