"""The built-in evaluators against the libraries they stand on, and on odd texts."""

import asyncio
import inspect
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError, EvaluatorError
from rag_eval.experiments.callables import named_evaluators
from rag_eval.experiments.composition import Normalised, Weighted, convert_orq_evaluator
from rag_eval.experiments.evaluators import (
    BLEU,
    Contains,
    CosineSimilarity,
    ExactMatch,
    LevenshteinSimilarity,
    MetricEvaluator,
    RougeL,
    SemanticSimilarity,
)
from rag_eval.experiments.results import Score, score_of
from rag_eval.metrics.formulas import SpanRecall

SIMILARITIES = [LevenshteinSimilarity(), BLEU(), RougeL(), CosineSimilarity()]


def score(evaluator: Any, result: Any, expected: Any = None, row: dict[str, Any] | None = None) -> Score:
    (named,) = named_evaluators([evaluator])
    given = named.call(result, expected, row or {}) if named.wants_row else named.call(result, expected)
    return score_of(asyncio.run(given) if inspect.isawaitable(given) else given)


@pytest.mark.parametrize("evaluator", SIMILARITIES, ids=lambda one: one.name)
@given(text=st.text(max_size=60), other=st.text(max_size=60))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_similarities_lie_between_0_and_1(evaluator: Any, text: str, other: str) -> None:
    assert 0.0 <= score(evaluator, text, other).value <= 1.0


@pytest.mark.parametrize("evaluator", [*SIMILARITIES, SemanticSimilarity()], ids=lambda one: one.name)
@pytest.mark.parametrize(
    "text", ["The last ferry leaves at 22:40.", "最后一班渡轮 22:40 离开", "Fähre 🛳️ ab Storvåg um zehn"]
)
def test_a_text_is_like_itself(evaluator: Any, text: str) -> None:
    assert score(evaluator, text, text).value == pytest.approx(1.0)


def test_values_worked_out_by_hand() -> None:
    assert score(LevenshteinSimilarity, "kitten", "sitting").value == pytest.approx(1 - 3 / 7)
    assert score(CosineSimilarity, "a a b", "a c").value == pytest.approx(2 / (5**0.5 * 2**0.5))
    assert score(RougeL, "the cat sat", "the dog sat down").value == pytest.approx(2 * 2 / 7)
    assert score(CosineSimilarity, "", "").value == 1.0
    assert score(CosineSimilarity, "", "word").value == 0.0
    assert score(BLEU, "", "word").value == 0.0


def test_bleu_is_that_of_sacrebleu() -> None:
    import sacrebleu

    ours, theirs = "the quick brown fox jumps over a dog", "the quick brown fox jumped over the lazy dog"
    assert score(BLEU, ours, theirs).value == pytest.approx(sacrebleu.sentence_bleu(ours, [theirs]).score / 100)


def test_meaning_is_nearer_than_words() -> None:
    near = score(SemanticSimilarity, "The boat departs in the evening", "The ship leaves at night").value
    far = score(SemanticSimilarity, "The boat departs in the evening", "Invoices are paid in euros").value
    assert near > far


@pytest.mark.parametrize(
    ("evaluator", "result", "expected", "passed"),
    [
        (ExactMatch, "a", "a", True),
        (ExactMatch, "A ", "a", False),
        (ExactMatch(ignore_case=True, strip=True), "A ", "a", True),
        (ExactMatch, {"a": 1}, {"a": 1}, True),
        (ExactMatch, None, None, True),
        (Contains, "the ferry", "ferry", True),
        (Contains, "the Ferry", "ferry", False),
        (Contains("FERRY", ignore_case=True), "the ferry", None, True),
    ],
)
def test_yes_or_no(evaluator: Any, result: Any, expected: Any, passed: bool) -> None:
    found = score(evaluator, result, expected)
    assert (found.passed, found.value) == (passed, float(passed))


@pytest.mark.parametrize("evaluator", [Contains(), LevenshteinSimilarity(), CosineSimilarity(), RougeL()])
def test_what_is_no_text_is_said(evaluator: Any) -> None:
    with pytest.raises(EvaluatorError, match="the result is a list, not a text"):
        score(evaluator, ["a"], "a")


def half(result: Any, expected: Any) -> float:
    return 0.5


async def full(result: Any, expected: Any, row: Any) -> Score:
    return Score(1.0, "full", True)


def test_composition() -> None:
    assert score(Weighted([half, full], [1, 3]), "x").value == pytest.approx(0.875)
    assert score(Weighted([half, full]), "x").explanation == "half 0.5, full 1"
    assert score(Normalised(full, 0, 2), "x") == Score(0.5, "full", True)
    assert score(Normalised(lambda a, b: 4, 1, 5), "x").value == pytest.approx(0.75)
    assert score(Normalised(lambda a, b: 9, 1, 5), "x").value == 1.0
    (named,) = named_evaluators([Normalised(half, 0, 1)])
    assert named.name == "half"


def test_a_composition_runs_as_its_parts_do() -> None:
    (named,) = named_evaluators([Weighted([ExactMatch, Contains])])
    assert (named.instant, named.is_async) == (True, False)
    (named,) = named_evaluators([Weighted([ExactMatch, half])])
    assert not named.instant

    def broken(result: Any, expected: Any) -> float:
        raise ValueError("broken")

    # What was not awaited is closed: Python would warn, and a warning fails the test.
    with pytest.raises(ValueError, match="broken"):
        score(Weighted([full, broken]), "x")
    with pytest.raises(EvaluatorError, match="return a finite number"):
        score(Weighted([lambda a, b: float("nan"), full]), "x")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Weighted([]),
        lambda: Weighted([half], [0]),
        lambda: Weighted([half], [1, 2]),
        lambda: Normalised(half, 2, 1),
    ],
)
def test_a_wrong_composition_is_said(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        wrong()


def test_metrics_of_retrieval_are_evaluators() -> None:
    truth = [{"doc_id": "a.md", "start": 0, "end": 10}]
    found = [{"doc_id": "a.md", "start": 5, "end": 20}, {"doc_id": "a.md", "start": 0, "end": 5}]
    assert score(MetricEvaluator("span_recall@1"), found, truth).value == pytest.approx(0.5)
    assert score(SpanRecall(), found, truth).value == 1.0
    assert score(MetricEvaluator("chunk_recall"), ["chunk_a", "chunk_b"], ["chunk_b", "chunk_c"]).value == 0.5
    with pytest.raises(EvaluatorError, match="return a list"):
        score(MetricEvaluator("chunk_recall"), "chunk_a", ["chunk_a"])


def test_evaluators_of_orq_are_used_as_they_are() -> None:
    async def scorer(params: Any) -> dict[str, Any]:
        same = params["output"] == params["data"].expected_output
        return {"value": float(same), "explanation": params["data"].inputs["input"], "pass_": same}

    found = score(convert_orq_evaluator({"name": "same", "scorer": scorer}), "x", "x", {"input": "q", "output": "x"})
    assert found == Score(1.0, "q", True)

    def plain(params: Any) -> bool:
        return bool(params["output"] == params["data"].expected_output)

    (named,) = named_evaluators([convert_orq_evaluator({"name": "plain", "scorer": plain})])
    assert not named.is_async  # it may take its time, and is called on a thread
    assert score(convert_orq_evaluator({"name": "plain", "scorer": plain}), "x", "y") == Score(0.0, passed=False)
    with pytest.raises(ConfigurationError, match="not an evaluator of orq"):
        convert_orq_evaluator({"name": "same"})


def test_an_evaluator_of_orq_may_compare_output_and_expected() -> None:
    def same(output: Any, expected: Any) -> float:
        return float(output == expected)

    async def later(output: Any, expected: Any) -> dict[str, Any]:
        return {"value": same(output, expected), "explanation": "compared"}

    def broken(output: Any, expected: Any) -> float:
        raise KeyError("sentiment")

    assert score(convert_orq_evaluator({"name": "same", "evaluate": same}), "x", "x") == Score(1.0)
    assert score(convert_orq_evaluator({"name": "later", "evaluate": later}), "x", "y") == Score(0.0, "compared")
    (named,) = named_evaluators([convert_orq_evaluator({"name": "sentiment", "evaluate": same})])
    assert named.name == "sentiment"
    with pytest.raises(EvaluatorError, match="KeyError: 'sentiment'") as raised:
        score(convert_orq_evaluator({"name": "broken", "evaluate": broken}), "x")
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(ConfigurationError, match="name and evaluate"):
        convert_orq_evaluator({"name": "nothing"})
