import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.metrics.formulas import (
    ChunkF1,
    ChunkHitRate,
    ChunkMAP,
    ChunkMRR,
    ChunkNDCG,
    ChunkPrecision,
    ChunkRecall,
)
from rag_eval.types.ids import ChunkId

some_ids = st.lists(st.sampled_from("abcdefg").map(ChunkId), max_size=9)


@given(some_ids, some_ids, st.one_of(st.none(), st.integers(1, 10)))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_every_chunk_metric_equals_its_naive_twin(
    retrieved: list[ChunkId], truth: list[ChunkId], k: int | None
) -> None:
    hits, relevant = retrieved[:k], set(truth)
    useful = [rank for rank, one in enumerate(hits, start=1) if one in relevant and one not in hits[: rank - 1]]
    precision = len(set(hits) & relevant) / len(set(hits)) if hits else 0.0
    recall = len(set(hits) & relevant) / len(relevant) if relevant else 0.0
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, len(relevant) + 1) if k is None or rank <= k)
    expected = {
        ChunkRecall: recall,
        ChunkPrecision: precision,
        ChunkF1: 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        ChunkHitRate: float(bool(useful)),
        ChunkMRR: 1 / useful[0] if useful else 0.0,
        ChunkMAP: sum((n + 1) / rank for n, rank in enumerate(useful)) / len(relevant) if relevant else 0.0,
        ChunkNDCG: sum(1 / math.log2(rank + 1) for rank in useful) / ideal if ideal else 0.0,
    }
    for metric, value in expected.items():
        assert metric(k).calculate(retrieved, truth) == pytest.approx(value, abs=1e-12), metric.label


def test_a_repeated_id_counts_once_and_keeps_its_rank() -> None:
    retrieved = [ChunkId("a"), ChunkId("a"), ChunkId("b"), ChunkId("x")]
    truth = [ChunkId("a"), ChunkId("b"), ChunkId("b")]
    assert ChunkPrecision().calculate(retrieved, truth) == 2 / 3
    assert ChunkRecall().calculate(retrieved, truth) == 1.0
    assert ChunkMAP().calculate(retrieved, truth) == pytest.approx((1 + 2 / 3) / 2)
    assert ChunkNDCG(2).calculate(retrieved, truth) == pytest.approx(1 / (1 + 1 / math.log2(3)))


@pytest.mark.parametrize("metric", [ChunkRecall, ChunkPrecision, ChunkF1, ChunkHitRate, ChunkMRR, ChunkMAP, ChunkNDCG])
def test_an_empty_side_scores_nothing(metric: type[ChunkRecall]) -> None:
    one = [ChunkId("a")]
    assert [metric().calculate(*sides) for sides in (([], []), (one, []), ([], one))] == [0.0, 0.0, 0.0]
    assert metric(3).calculate(one, one) == 1.0
