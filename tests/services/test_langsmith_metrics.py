"""The metrics for LangSmith one by one: names, extraction, and the feedback on a run."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langsmith.schemas import Example, Run

from rag_eval.errors import ConfigurationError, GroundTruthError
from rag_eval.evaluation.metrics import (
    ChunkLevelF1,
    ChunkLevelPrecision,
    ChunkLevelRecall,
    Metrics,
    TokenLevelPrecision,
    TokenLevelRecall,
    get_langsmith_evaluators,
)
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.evidence import ChunkLevelRunOutput, TokenLevelRunOutput
from rag_eval.types.ids import ChunkId, DocumentId
from tests.doubles.langsmith_sample import SeedPrecision, a_run, an_example, record

ROOT = Path(__file__).parents[2]


class Retrieved(Metrics):
    """Only a calculation: how many were retrieved."""

    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        return len(retrieved_chunk_ids)


class NotANumber(Metrics):
    def calculate(self, retrieved_chunk_ids: list[str], ground_truth_chunk_ids: list[str]) -> float:
        return float("nan")


def test_importing_the_metrics_does_not_import_langsmith() -> None:
    code = "import sys, rag_eval.evaluation.metrics, rag_eval.services.langsmith_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"langsmith", "openai", "lancedb"} & set(done.stdout.split())


def test_the_built_in_metrics_calculate() -> None:
    retrieved, relevant = ["a", "x", "a", "b"], ["a", "b", "c", "d"]
    assert ChunkLevelRecall().calculate(retrieved, relevant) == 2 / 4
    assert ChunkLevelPrecision().calculate(retrieved, relevant) == 2 / 3
    assert ChunkLevelF1().calculate(retrieved, relevant) == 4 / 7
    assert [metric.calculate([], []) for metric in (ChunkLevelRecall(), ChunkLevelPrecision(), ChunkLevelF1())] == [
        0
    ] * 3


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [
        (None, None, "ChunkLevelRecall"),
        (None, 5, "ChunkLevelRecall@5"),
        ("recall", 5, "recall@5"),
        ("recall@5", 5, "recall@5"),
        ("recall@5", None, "recall@5"),
        ("recall@home", 5, "recall@home@5"),
    ],
)
def test_an_evaluator_is_named_by_key_or_class_and_k(name: str | None, k: int | None, expected: str) -> None:
    evaluator = ChunkLevelRecall().to_langsmith_evaluator(metric_name=name, k=k)
    assert evaluator.name == expected
    assert evaluator(a_run(["a"]), an_example({"chunk_ids": ["a"]})) == {"key": expected, "score": 1.0}


@pytest.mark.parametrize(("name", "k"), [("recall@5", 10), ("recall", 0), ("recall", -1), ("recall", True), ("", 5)])
def test_a_name_and_a_k_that_disagree_or_make_no_sense_are_refused(name: str, k: int) -> None:
    with pytest.raises(ConfigurationError):
        ChunkLevelRecall().to_langsmith_evaluator(name, k)


def test_metrics_come_as_a_mapping_a_list_or_a_set() -> None:
    recall, precision, own = ChunkLevelRecall(), ChunkLevelPrecision(), SeedPrecision()
    by_name = get_langsmith_evaluators({"recall": recall, "own@5": own, "again": recall}, k=5)
    assert [evaluator.name for evaluator in by_name] == ["recall@5", "own@5", "again@5"]
    in_a_list = get_langsmith_evaluators([recall, own, precision], k=5)
    assert [evaluator.name for evaluator in in_a_list] == [
        "ChunkLevelRecall@5",
        "SeedPrecision@5",
        "ChunkLevelPrecision@5",
    ]
    in_a_set = get_langsmith_evaluators({recall, own, precision}, k=5)
    assert [evaluator.name for evaluator in in_a_set] == sorted(evaluator.name for evaluator in in_a_list)
    assert [evaluator.name for evaluator in get_langsmith_evaluators({recall}, 5)] == ["ChunkLevelRecall@5"]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([ChunkLevelRecall(), ChunkLevelRecall()], "ChunkLevelRecall@5"),
        ({"recall": ChunkLevelRecall(), "recall@5": ChunkLevelRecall()}, "recall@5"),
        (["recall"], "'recall'"),
        ([ChunkLevelRecall], "derive its class from Metrics"),
        ("recall", "mapping"),
        (ChunkLevelRecall(), "mapping"),
        ({3: ChunkLevelRecall()}, "3"),
        (
            [ChunkLevelRecall(), TokenLevelRecall()],
            "ChunkLevelRecall is chunk-level and TokenLevelRecall is token-level",
        ),
    ],
)
def test_metrics_that_cannot_be_used_are_refused(metrics: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        get_langsmith_evaluators(metrics, k=5)


@pytest.mark.parametrize("key", ["relevant_chunk_ids", "relevantChunkIds", "chunk_ids"])
def test_ground_truth_is_read_under_each_name(key: str) -> None:
    assert ChunkLevelRecall().extract_ground_truth_chunks_ids(an_example({key: ["a", "b"]})) == ["a", "b"]


@pytest.mark.parametrize("example", [None, an_example(None), an_example({}), an_example({"answer": "42"})])
def test_without_an_example_or_its_outputs_there_is_no_ground_truth(example: Example | None) -> None:
    assert ChunkLevelRecall().extract_ground_truth_chunks_ids(example) == []
    assert TokenLevelRecall().extract_ground_truth_spans(example) == []


@pytest.mark.parametrize("value", ["abc", {"a": 1}, None, [1], ["a", None]])
def test_ground_truth_that_is_no_list_of_ids_is_refused(value: Any) -> None:
    with pytest.raises(GroundTruthError, match="chunk_ids"):
        ChunkLevelRecall().extract_ground_truth_chunks_ids(an_example({"chunk_ids": value}))


@pytest.mark.parametrize(
    "outputs",
    [
        ["a", "b"],
        {"retrieved_chunk_ids": ["a", "b"]},
        {"retrievedChunkIds": ["a", "b"], "answer": "42"},
        {"chunk_ids": ["a", "b"]},
        {"output": ["a", "b"]},
        {"outputs": ("a", "b")},
        {"output": {"retrieved_chunk_ids": ["a", "b"]}},
        {"output": ChunkLevelRunOutput([ChunkId("a"), ChunkId("b")])},
    ],
)
def test_what_was_retrieved_is_read_from_a_list_or_a_dict(outputs: Any) -> None:
    assert ChunkLevelRecall().extract_retrieved_chunks_ids(a_run(outputs)) == ["a", "b"]


@pytest.mark.parametrize("outputs", [None, {}, [], {"output": []}])
def test_no_outputs_are_nothing_retrieved(outputs: Any) -> None:
    assert ChunkLevelRecall().extract_retrieved_chunks_ids(a_run(outputs)) == []


@pytest.mark.parametrize(
    "outputs", [{"answer": "42"}, {"output": "abc"}, {"output": None}, [1, 2], {"chunk_ids": [[]]}]
)
def test_outputs_that_hold_no_ids_are_refused(outputs: Any) -> None:
    with pytest.raises(ConfigurationError):
        ChunkLevelRecall().extract_retrieved_chunks_ids(a_run(outputs))


def span(start: int, end: int, doc: str = "d.md") -> CharacterSpan:
    return CharacterSpan(DocumentId(doc), start, end, "x" * (end - start))


@pytest.mark.parametrize(
    "spans", [[record(0, 4)], [span(0, 4)], [{"docId": "d.md", "start": 0, "end": 4, "text": "xxxx", "score": 0.5}]]
)
def test_spans_are_read_from_records(spans: list[Any]) -> None:
    metric = TokenLevelRecall()
    for outputs in (spans, {"retrieved_spans": spans}, {"retrievedSpans": spans}, {"spans": spans}, {"output": spans}):
        assert metric.extract_retrieved_spans(a_run(outputs)) == [span(0, 4)]
    assert metric.extract_retrieved_spans(a_run({"output": TokenLevelRunOutput([span(0, 4)])})) == [span(0, 4)]
    for key in ("relevant_spans", "relevantSpans"):
        assert metric.extract_ground_truth_spans(an_example({key: spans})) == [span(0, 4)]


@pytest.mark.parametrize(
    "item", ["a", {}, record(0, 4) | {"end": "4"}, record(0, 4) | {"text": "xxx"}, record(4, 5) | {"start": 5}]
)
def test_what_is_no_span_is_refused_by_number(item: Any) -> None:
    with pytest.raises(GroundTruthError, match="'relevant_spans', item 1"):
        TokenLevelRecall().extract_ground_truth_spans(an_example({"relevant_spans": [record(0, 4), item]}))
    with pytest.raises(ConfigurationError, match="'spans', item 0"):
        TokenLevelRecall().extract_retrieved_spans(a_run({"spans": [item]}))


class OtherKeys(Retrieved):
    """A user's metric for a dataset and a target with keys of their own."""

    def extract_ground_truth_chunks_ids(self, example: Example | None) -> list[str]:
        return (example.outputs or {}).get("expected_chunks", []) if example else []

    def extract_retrieved_chunks_ids(self, run: Run) -> list[str]:
        return run.outputs.get("found", []) if isinstance(run.outputs, dict) else []


class OldKeys(SeedPrecision):
    """Another spelling than the dataset's, and than the target's."""

    def extract_ground_truth_chunks_ids(self, example: Example | None) -> list[str]:
        return (example.outputs or {}).get("chunk_ids", []) if example else []

    def extract_retrieved_chunks_ids(self, run: Run) -> list[str]:
        return run.outputs.get("retrieved_ids", []) if isinstance(run.outputs, dict) else []


@pytest.mark.parametrize("outputs", [["a", "x"], {"output": ["a", "x"]}, {"retrieved_chunk_ids": ["a", "x"], "n": 2}])
@pytest.mark.parametrize("metric", [SeedPrecision(), OldKeys()])
def test_an_extraction_for_a_list_or_another_spelling_finds_what_is_there(metric: Metrics, outputs: Any) -> None:
    feedback = metric.to_langsmith_evaluator("precision", 5)(a_run(outputs), an_example({"relevant_chunk_ids": ["a"]}))
    assert feedback["score"] == 0.5


def test_an_extraction_that_looks_past_what_is_there_is_an_error_and_no_0() -> None:
    evaluator = OtherKeys().to_langsmith_evaluator("own", 5)
    truth, own_truth = an_example({"relevant_chunk_ids": ["a"]}), an_example({"expected_chunks": ["a"]})
    with pytest.raises(ConfigurationError, match="OtherKeys finds nothing in the outputs of the example"):
        evaluator(a_run({"found": ["a"]}), truth)
    for outputs in (["a"], {"output": ["a"]}, {"retrieved_chunk_ids": ["a"]}):
        with pytest.raises(ConfigurationError, match="OtherKeys finds nothing in the outputs of the run"):
            evaluator(a_run(outputs), own_truth)
    # What it was written for, and a target that found nothing.
    found: list[Any] = [{"found": ["a"]}, {"found": [], "output": ["an answer"]}, {"output": []}, [], None]
    assert [evaluator(a_run(outputs), own_truth)["score"] for outputs in found] == [1, 0, 0, 0, 0]


def test_what_was_retrieved_is_cut_at_k() -> None:
    run, example = a_run({"output": ["x", "a", "b"]}), an_example({"relevant_chunk_ids": ["a", "b"]})
    assert [ChunkLevelRecall().to_langsmith_evaluator("r", k)(run, example)["score"] for k in (1, 2, 3, None)] == [
        0.0, 0.5, 1.0, 1.0,
    ]  # fmt: skip
    assert Retrieved().to_langsmith_evaluator(k=2)(run, None) == {"key": "Retrieved@2", "score": 2.0}


@pytest.mark.parametrize(
    ("retrieved", "score"), [(["a"], 0.5), (["copy"], 0.5), (["copy", "a"], 0.5), (["b", "copy"], 1)]
)
def test_a_group_of_chunk_ids_is_found_by_any_of_them(retrieved: list[str], score: float) -> None:
    example = an_example({"relevant_chunk_ids": ["a", "b"], "alternatives": {"a": ["other", "copy"]}})
    assert ChunkLevelRecall().to_langsmith_evaluator()(a_run(retrieved), example)["score"] == score
    bad = an_example({"relevant_chunk_ids": ["a"], "alternatives": {"a": "copy"}})
    with pytest.raises(GroundTruthError, match=r"alternatives\.a: "):
        ChunkLevelRecall().to_langsmith_evaluator()(a_run(retrieved), bad)


def test_a_group_of_spans_is_covered_by_its_best_covered_member() -> None:
    first, copy, other = record(0, 4), record(10, 14), record(20, 24)
    example = an_example({"relevant_spans": [first | {"alternatives": [copy]}, other]})
    recall, precision = (kind().to_langsmith_evaluator() for kind in (TokenLevelRecall, TokenLevelPrecision))
    for found, expected in (
        ([record(10, 14)], (0.5, 1.0)),
        ([record(0, 1), record(10, 13)], (3 / 8, 1.0)),
        ([record(0, 4), record(10, 14)], (0.5, 1.0)),
        ([record(30, 34)], (0.0, 0.0)),
    ):
        run = a_run({"retrieved_spans": found})
        assert (recall(run, example)["score"], precision(run, example)["score"]) == expected


@pytest.mark.parametrize("example", [None, an_example({}), an_example({"relevant_chunk_ids": []})])
def test_without_ground_truth_ours_has_no_score_and_a_users_own_decides(example: Example | None) -> None:
    feedback = ChunkLevelRecall().to_langsmith_evaluator("recall", 5)(a_run(["a"]), example)
    assert (feedback["score"], feedback["extra"]) == (None, {"error": True})
    assert "relevant_chunk_ids" in feedback["comment"]
    assert SeedPrecision().to_langsmith_evaluator("own", 5)(a_run(["a"]), example)["score"] == 0.0


def test_an_unanswerable_query_has_no_score_and_is_no_error() -> None:
    for example in (an_example({"unanswerable": True}), an_example({"chunk_ids": []}, {"unanswerable": True})):
        feedback = ChunkLevelRecall().to_langsmith_evaluator("recall", 5)(a_run(["a"]), example)
        assert feedback["score"] is None
        assert "extra" not in feedback


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"NotANumber\.calculate returned 'nan'"):
        NotANumber().to_langsmith_evaluator()(a_run(["a"]), None)
