from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.evaluate import evaluate_chunk_level, evaluate_token_level
from rag_eval.metrics.formulas import ChunkPrecision, ChunkRecall, SpanIoU, SpanRecall
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelRunOutput
from rag_eval.types.ids import ChunkId, DocumentId
from tests.type_checking import type_errors


def result(retrieved: list[Any], truth: list[Any]) -> dict[str, list[Any]]:
    return {"retrieved": retrieved, "ground_truth": truth}


def span(start: int, end: int) -> CharacterSpan:
    return CharacterSpan(DocumentId("a.md"), start, end, "x" * (end - start))


@dataclass(frozen=True)
class LongestSpan:
    """A metric of a user's own: nothing but a name and a method."""

    name: str = "longest_span"

    def calculate(self, retrieved: Sequence[CharacterSpan], ground_truth: Sequence[CharacterSpan]) -> float:
        return float(max((one.length for one in retrieved), default=0))


def test_token_level_averages_by_name() -> None:
    results = [result([span(0, 10)], [span(5, 15)]), result([span(0, 4)], [span(0, 4)])]
    metrics = [SpanRecall(), SpanIoU(k=1), LongestSpan()]
    assert evaluate_token_level(results, metrics) == {
        "span_recall": 0.75,
        "span_iou@1": pytest.approx((5 / 15 + 1) / 2),
        "longest_span": 7.0,
    }


def test_chunk_level_averages_of_several_cuts_from_one_retrieval() -> None:
    results = [result([ChunkId("a"), ChunkId("b")], [ChunkId("b")]), result([], [ChunkId("a")])]
    metrics = [ChunkRecall(k=1), ChunkRecall(k=2), ChunkPrecision()]
    assert evaluate_chunk_level(results, metrics) == {
        "chunk_recall@1": 0,
        "chunk_recall@2": 0.5,
        "chunk_precision": 0.25,
    }


def test_plain_records_are_results_too() -> None:
    ids = {"retrieved": [ChunkId("a")], "ground_truth": [ChunkId("a")]}
    assert evaluate_chunk_level([ids], [ChunkRecall()]) == {"chunk_recall": 1.0}
    spans = {"retrieved": [span(0, 2)], "ground_truth": [span(0, 4)]}
    assert evaluate_token_level([spans], [SpanRecall()]) == {"span_recall": 0.5}
    mixed = [span(0, 2), {"doc_id": "a.md", "start": 2, "end": 3, "text": "x"}]
    assert evaluate_token_level([{**spans, "retrieved": mixed}], [SpanRecall()]) == {"span_recall": 0.75}  # type: ignore[typeddict-item]


def test_no_results_are_zero_for_each_metric() -> None:
    assert evaluate_token_level([], [SpanRecall(), SpanIoU()]) == {"span_recall": 0.0, "span_iou": 0.0}
    assert evaluate_chunk_level([], [ChunkRecall()]) == {"chunk_recall": 0.0}


def test_a_mix_of_levels_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"token-level evaluation expects character spans.*'chunk_1'"):
        evaluate_token_level([{"retrieved": ["chunk_1"], "ground_truth": []}], [SpanRecall()])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match=r"chunk-level evaluation expects chunk ids.*CharacterSpan"):
        evaluate_chunk_level([result([span(0, 1)], [])], [ChunkRecall()])  # type: ignore[list-item]


@pytest.mark.parametrize("retrieved", ["abc", None, 5, {ChunkId("a")}, ChunkLevelRunOutput([ChunkId("a")])])
def test_a_side_that_is_not_a_list_is_named(retrieved: object) -> None:
    with pytest.raises(ConfigurationError, match="chunk-level evaluation expects a list of chunk ids"):
        evaluate_chunk_level([{"retrieved": retrieved, "ground_truth": []}], [ChunkRecall()])  # type: ignore[typeddict-item]
    with pytest.raises(ConfigurationError, match="token-level evaluation expects a list of character spans"):
        evaluate_token_level([{"retrieved": [], "ground_truth": retrieved}], [SpanRecall()])  # type: ignore[typeddict-item]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None, "1", 1j])
def test_a_metric_that_gives_no_finite_number_is_named(score: object) -> None:
    class Odd:
        name = "odd"

        def calculate(self, retrieved: object, ground_truth: object) -> object:
            return score

    with pytest.raises(ConfigurationError, match=r"the metric 'odd' returned .*: return a finite number"):
        evaluate_token_level([result([], [])], [Odd()])  # type: ignore[list-item]


def test_a_metric_may_give_numbers_of_numpy() -> None:
    class Half:
        name = "half"

        def calculate(self, retrieved: object, ground_truth: object) -> float:
            return np.float32(0.5)  # type: ignore[return-value]

    assert evaluate_token_level([result([], [])], [Half()]) == {"half": 0.5}


@pytest.mark.parametrize("record", [{"retrieved": []}, ChunkLevelRunOutput([]), None])
def test_a_record_without_its_sides_is_named(record: object) -> None:
    with pytest.raises(ConfigurationError, match="needs retrieved and ground_truth"):
        evaluate_chunk_level([record], [ChunkRecall()])  # type: ignore[list-item]


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'span_recall'"):
        evaluate_token_level([], [SpanRecall(), SpanRecall()])


MIX = """
from rag_eval import ChunkRecall, SpanRecall, evaluate_chunk_level, evaluate_token_level
evaluate_token_level([], [SpanRecall()])
evaluate_chunk_level([], [ChunkRecall()])
evaluate_token_level([], [ChunkRecall()])
evaluate_chunk_level([], [SpanRecall()])
"""


def test_a_type_checker_rejects_a_mix_of_levels(tmp_path: Path) -> None:
    assert list(type_errors(tmp_path, MIX)) == [5, 6]
