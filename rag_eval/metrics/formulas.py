"""Define every built-in metric: its formula, its value on empty input and its source.

A formula reads a ``SpanCoverage`` (``rag_eval.metrics.coverage``): arrays with one entry a query, or a row a rank and a
column a query. The same formula serves both levels. At token level it counts characters (or tokens): the spans of one
side are merged first, so a character counts once. At chunk level it counts chunk ids: a repeated id keeps its rank and
is not relevant again. The gain of a hit is what it adds to the covered truth. Where truth has groups
(``rag_eval.metrics.groups``), a group counts once, and a hit on any of its members is relevant.

Values are in [0, 1], and 0 on empty truth or retrieval, unless the class says otherwise. Sums over ranks are added rank
by rank, so that a query has the same value, to the last bit, alone and among many.
"""

import math
from functools import cache
from typing import ClassVar

import numpy as np

from rag_eval.metrics.coverage import SpanCoverage
from rag_eval.metrics.metric import Bounds, Counts, Cut, RetrievalMetric, Values, score_name
from rag_eval.metrics.object_scoring import ChunkMetric, ObjectMetric, SpanMetric

COMPLETE = 0.9
"""The covered share at which evidence counts as complete, because a boundary may cut off a word or a line end."""


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


class SpanRecall(Recall, SpanMetric):
    """|retrieved ∩ truth| / |truth|; 0 on empty truth."""

    label = "span_recall"
    meaning = "finds {} of the relevant text"


class ChunkRecall(Recall, ChunkMetric):
    """|retrieved ∩ relevant| / |relevant|; 0 on empty truth."""

    label = "chunk_recall"
    meaning = "finds {} of the relevant chunks"


class Precision(RetrievalMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    bounds = "both"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.relevant(cut), hits.retrieved(cut), cls.empty)


class SpanPrecision(Precision, SpanMetric):
    """|retrieved ∩ truth| / |retrieved|; 0 on empty retrieval."""

    label = "span_precision"
    meaning = "retrieves text of which {} is relevant"


class ChunkPrecision(Precision, ChunkMetric):
    """|retrieved ∩ relevant| / |retrieved|; 0 on empty retrieval.

    The divisor is what was retrieved, not k: a store with fewer than k chunks is not penalised.
    """

    label = "chunk_precision"
    meaning = "retrieves chunks of which {} are relevant"


class IoU(RetrievalMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    empty = 1.0
    bounds: ClassVar[Bounds] = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(hits.relevant(cut), hits.retrieved(cut) + hits.truth - hits.covered(cut), cls.empty)


class SpanIoU(IoU, SpanMetric):
    """|retrieved ∩ truth| / |retrieved ∪ truth|; 1 when both are empty, 0 when one is."""

    label = "span_iou"


class F1(RetrievalMetric):
    """The harmonic mean of precision and recall; 0 on empty truth, on empty retrieval and on both."""

    bounds = "above"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        covered, relevant = hits.covered(cut), hits.relevant(cut)
        return ratio(2 * relevant * covered, relevant * hits.truth + covered * hits.retrieved(cut), cls.empty)


class SpanF1(F1, SpanMetric):
    """2 · |retrieved ∩ truth| / (|retrieved| + |truth|), the harmonic mean of precision and recall.

    0 on empty truth, on empty retrieval and on both.
    """

    label = "span_f1"


class ChunkF1(F1, ChunkMetric):
    """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|), the harmonic mean of precision and recall.

    0 on empty truth, on empty retrieval and on both.
    """

    label = "chunk_f1"


class HitRate(RetrievalMetric):
    """1 if any hit is relevant, else 0."""

    only_rises = True
    bounds = "both"
    meaning = "finds something relevant for {} of the questions"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        is_hit: Counts = np.any(hits.relevant_gains(cut) > 0, axis=0)
        return is_hit.astype(np.float64)


class SpanHitRate(HitRate, SpanMetric):
    """1 when a hit is relevant, else 0; 0 on empty truth or retrieval."""

    label = "span_hit_rate"


class ChunkHitRate(HitRate, ChunkMetric):
    """1 when a hit is useful, else 0; 0 on empty truth or retrieval."""

    label = "chunk_hit_rate"


class ReciprocalRank(RetrievalMetric):
    """1 / the rank of the first relevant hit; 0 if there is none.

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


class SpanMRR(ReciprocalRank, SpanMetric):
    """1 / rank of the first relevant hit; 0 when none is, also on empty truth or retrieval."""

    label = "span_mrr"


class ChunkMRR(ReciprocalRank, ChunkMetric):
    """1 / rank of the first useful hit; 0 when there is none."""

    label = "chunk_mrr"


class AveragePrecision(RetrievalMetric):
    """Σ gain(i) · P(i) / |truth|, P(i) being the share of the first i ranks with new truth; 0 on empty truth.

    With a cut at k the divisor stays the whole truth, as in trec_eval.
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


class SpanMAP(AveragePrecision, SpanMetric):
    """Σᵢ gain(i) · P(i) / T, P(i) being the share of the first i hits that have a gain; 0 on empty truth or retrieval.

    1 when all truth is covered and no hit without a gain precedes one with a gain. How much irrelevant text a hit
    holds is measured by ``SpanPrecision``. For truth of whole chunks of one length it is the usual average precision.
    """

    label = "span_map"


class ChunkMAP(AveragePrecision, ChunkMetric):
    """Σ P(i) / R over the ranks i of useful hits, P(i) being the share of useful hits among the first i.

    Cut at k the divisor stays R, as in trec_eval; 0 on empty truth or retrieval.
    """

    label = "chunk_map"


class NormalisedGain(RetrievalMetric):
    """DCG / ideal DCG, where DCG = Σ gain(i) / log₂(i + 1); 0 on empty truth or retrieval.

    The ideal has as many ranks as the cut has hits, so the value may fall with more of them; a budget of tokens does
    not bound the ideal. K. Järvelin, J. Kekäläinen, *Cumulated Gain-Based Evaluation of IR Techniques*, 2002.
    """

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return ratio(discounted_gain(hits.gains(cut)), discounted_gain(hits.best_gains(cut)), cls.empty)


class SpanNDCG(NormalisedGain, SpanMetric):
    """DCG / ideal DCG, where DCG = Σᵢ gain(i) / log₂(i + 1); 0 on empty. Favours large chunks: the ideal has none.

    A hit lies in one document, so the first m hits cover at most the truth of the m documents that hold most of it.
    The ideal reaches that bound at every m ≤ k: the truth of each document at one rank, the largest first.
    As the discounts fall, no ranking of spans has a larger DCG, whatever the chunks are. Chunks smaller than the
    evidence cannot reach it, so compare rankings of the same chunks, and chunk sizes by ``recall_within_tokens``.
    """

    label = "span_ndcg"


class ChunkNDCG(NormalisedGain, ChunkMetric):
    """DCG / ideal DCG, where DCG = Σ 1 / log₂(i + 1) over the ranks i of useful hits.

    The ideal has useful hits at the ranks 1 … min(k, R); 0 on empty truth or retrieval.
    """

    label = "chunk_ndcg"


class CompleteEvidence(ObjectMetric):
    """1 when every group of the truth is covered to 0.9 at least, by its best covered member; else 0, and on no truth.

    For questions that need several passages: the mean is the share of the questions that can be answered completely.
    A chunk id is covered if it was retrieved.
    """

    label = "complete_evidence"
    only_rises = True
    bounds = "above"
    meaning = "brings all of the evidence for {} of the questions"

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return (hits.weakest(cut) >= COMPLETE).astype(np.float64)


class Unjudged(ObjectMetric):
    """|retrieved − judged| / |retrieved|, judged being the truth and all that was judged; 0 on empty retrieval.

    Retrieved text outside the truth counts as irrelevant, although nobody may have judged it. Let U be the
    unjudged text retrieved within a cut. Every metric has its usual value, with U irrelevant, and one with U relevant,
    each piece of it as a group of evidence of its own: ``score_passages(…, unjudged="relevant")``. Whichever part of
    the unjudged text, in U or elsewhere, is relevant, the ``bounds`` of a metric are

    - *both* for what is found among the hits: precision, hit rate and reciprocal rank can only rise as a part of U is
      relevant, and nothing else matters to them;
    - the one *above* for what is found of the truth: recall, IoU, F1 and complete evidence. With T the truth and C its
      covered part, recall is (C + r) / (T + r + s) where r of U and s of what was not retrieved are relevant. It is
      largest at r = |U| and s = 0, and falls with s, so the usual value is a lower bound only if s = 0;
    - *neither* for average precision, nDCG and the area under recall: relevant text at a low rank lowers them.

    The hits within ``@min`` are those of the truth as it is. ``calculate`` takes the truth as all that was judged.
    """

    label = "unjudged"
    higher_is_better = False
    meaning = "retrieves text of which {} is unjudged"
    reads = frozenset({"hits", "judged"})

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        retrieved = hits.retrieved(cut)
        return ratio(retrieved - hits.relevant(cut), retrieved, cls.empty)


class TokensRetrieved(ObjectMetric):
    """Σ over the first k spans retrieved (None: all) of the tokens of the span's text; 0 on empty retrieval.

    Each text is tokenised separately, as in a prompt, and overlaps count repeatedly. Not in [0, 1].
    Chunk ids have no text here: score them from tables.
    """

    label = "tokens_retrieved"
    higher_is_better = False
    only_rises = True
    measures = "tokens"
    reads = frozenset({"tokens"})

    @classmethod
    def score(cls, hits: SpanCoverage, cut: Cut) -> Values:
        return hits.tokens(cut).astype(np.float64)


class TokensFetched(TokensRetrieved):
    """The tokens of all hits that were fetched; 0 on empty retrieval. Not in [0, 1].

    If the budget is larger, the hits ended before it was full, and more hits might have fitted.
    """

    label = "tokens_fetched"
    cuts = frozenset({"all"})


# Recall at equal cost. At equal k, large chunks win because they bring more text, but a prompt is paid in tokens. So
# hits are taken best first, whole, as long as they fit into the budget B. t(r) are the tokens of the first r hits, each
# text tokenised on its own, and recall(r) is their recall. Other metrics take a budget too: ``span_iou@2000tokens``.

BUDGET = 2_000
"""Default budget: tokens of context per question, counted by cl100k_base."""

STRIP = tuple(round(250 * 2 ** (step / 6)) for step in range(37))
"""The budgets at which every run is scored, from 250 to 16,000 tokens: six per doubling."""


class RecallWithinTokens(Recall, ObjectMetric):
    """recall(r) for the largest r with t(r) <= B; 0 where not even the first hit fits, or on empty truth.

    The budget B is its k. Chunk ids have no text, whose tokens are the cost: score them from tables.
    """

    label = "recall_within_tokens"
    meaning = "finds {} of what is relevant"
    cuts = frozenset({"tokens"})
    number = "tokens"
    reads = frozenset({"hits", "tokens"})


@cache
def context_cost(cut: Cut) -> str:
    """Return the metric for the cost of the context at a cut; for a cut without a number, of all fetched hits."""
    return score_name(TokensRetrieved.label, cut.kind, cut.size) if cut.size else TokensFetched.label


@cache
def strip_metrics() -> tuple[str, ...]:
    """Return the metrics that every run is scored by: recall at each budget of ``STRIP``, and the tokens fetched.

    At each doubling, the cost of the context is added, for readers who choose a different budget.
    """
    at_budgets = [score_name(RecallWithinTokens.label, "tokens", budget) for budget in STRIP]
    costs = [context_cost(Cut("tokens", budget)) for budget in STRIP[::6]]
    return (*at_budgets, *costs, TokensFetched.label)


# The redundancy-penalised metrics of B. Smith, A. Troynikov, *Evaluating Chunking Strategies for Retrieval*, Chroma
# Technical Report, 2024. N is the number of truth characters that the retrieved chunks cover, each counted once. Sums
# are over chunks and references as given: text that is retrieved twice is paid for twice.


class ChromaMetric(SpanMetric):
    """A metric on the first k spans; "min" is the number of chunks that touch a reference, at most 20."""

    cuts = frozenset({"all", "hits", "tokens", "min"})


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


class PrecisionOmega(IoU, SpanMetric):
    """The precision that perfect retrieval would reach with these chunks: a property of the chunking alone.

    With C the union of all chunks that touch a reference: |C ∩ truth| / |C ∪ truth|. The retrieved hits do not matter.
    0 on empty truth, and when no chunk touches it.
    """

    label = "precision_omega"
    only_rises = True
    empty = 0.0
    bounds = "neither"
    cuts = frozenset({"all"})
    reads = frozenset({"chunks"})
