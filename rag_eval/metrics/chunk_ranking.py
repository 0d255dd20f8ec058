"""Rank-aware metrics on chunk ids.

A hit is useful when its chunk is relevant and was not retrieved before; a repeated id keeps its rank and is not useful
again. R is the number of relevant chunks. Every value is in [0, 1], and 0 on empty truth or retrieval.
"""

import numpy as np

from rag_eval.metrics.chunk_counts import ChunkCounts
from rag_eval.metrics.chunk_metrics import ChunkMetric
from rag_eval.metrics.formulas import (
    Counts,
    Values,
    average_precision,
    discounted_gain,
    discounts,
    hit_rate,
    ratio,
    reciprocal_rank,
)


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
