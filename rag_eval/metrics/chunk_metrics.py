"""Metrics on chunk ids.

A hit is useful when its chunk is relevant and was not retrieved before; a repeated id keeps its rank and is not useful
again. R is the number of relevant chunks. Every value is in [0, 1], and 0 on empty truth or retrieval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.formulas import F1, AveragePrecision, HitRate, NormalisedGain, Precision, Recall, ReciprocalRank
from rag_eval.metrics.groups import coverage_of_places, ungrouped
from rag_eval.metrics.metric import Cut, RetrievalMetric, Values
from rag_eval.types.ids import ChunkId, EvaluationType

IdOrGroup = ChunkId | tuple[ChunkId, ...]


@dataclass(frozen=True)
class ChunkMetric(RetrievalMetric):
    """A metric on the first k chunk ids (None: all), or within a ``Cut``; raises ``ConfigurationError`` on others."""

    levels: ClassVar[tuple[EvaluationType, ...]] = ("chunk-level",)
    k: int | Cut | None = None

    def calculate(self, retrieved: Sequence[ChunkId], ground_truth: Sequence[IdOrGroup]) -> float:
        """Return the metric for one query; a tuple of ids is a group. Raises as ``calculate_many`` does."""
        return float(self.calculate_many([(retrieved, ground_truth)])[0])

    def calculate_many(self, cases: Sequence[tuple[Sequence[ChunkId], Sequence[IdOrGroup]]]) -> Values:
        """Return the metric for several queries; raises ``ConfigurationError`` at a budget, as ids have no tokens."""
        if self.cut.kind == "tokens":
            raise ConfigurationError(f"{self.name} counts the tokens of chunks: score tables, with chunks=…")
        members = [ungrouped(truth) for _, truth in cases]
        sides = [hits for hits, _ in cases], [ids for ids, _ in members]
        hits, truth = ([[(str(chunk_id), 0, 1) for chunk_id in ids] for ids in side] for side in sides)
        return self.score(coverage_of_places(hits, truth, groups=[numbers for _, numbers in members]), self.cut)


class ChunkRecall(Recall, ChunkMetric):
    """|retrieved ∩ relevant| / |relevant|; 0 on empty truth."""

    label = "chunk_recall"
    meaning = "finds {} of the relevant chunks"


class ChunkPrecision(Precision, ChunkMetric):
    """|retrieved ∩ relevant| / |retrieved|; 0 on empty retrieval.

    The divisor is what was retrieved, not k: a store that holds fewer than k chunks is not punished for it.
    """

    label = "chunk_precision"
    meaning = "retrieves chunks of which {} are relevant"


class ChunkF1(F1, ChunkMetric):
    """2 · |retrieved ∩ relevant| / (|retrieved| + |relevant|), the harmonic mean of precision and recall.

    0 on empty truth, on empty retrieval and on both.
    """

    label = "chunk_f1"


class ChunkHitRate(HitRate, ChunkMetric):
    """1 when a hit is useful, else 0; 0 on empty truth or retrieval."""

    label = "chunk_hit_rate"


class ChunkMRR(ReciprocalRank, ChunkMetric):
    """1 / rank of the first useful hit; 0 when there is none."""

    label = "chunk_mrr"


class ChunkMAP(AveragePrecision, ChunkMetric):
    """Σ P(i) / R over the ranks i of useful hits, P(i) being the share of useful hits among the first i.

    Cut at k the divisor stays R, as in trec_eval; 0 on empty truth or retrieval.
    """

    label = "chunk_map"


class ChunkNDCG(NormalisedGain, ChunkMetric):
    """DCG / ideal DCG, where DCG = Σ 1 / log₂(i + 1) over the ranks i of useful hits.

    The ideal has useful hits at the ranks 1 … min(k, R); 0 on empty truth or retrieval.
    """

    label = "chunk_ndcg"
