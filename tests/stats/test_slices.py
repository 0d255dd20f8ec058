"""Documents and kinds of questions in which two configurations differ."""

import numpy as np
import pytest

from rag_eval.stats.comparison import compare
from rag_eval.stats.paired_scores import PairedScores
from rag_eval.stats.significance import holm
from rag_eval.stats.slices import DOCUMENT, FEWEST_QUESTIONS, Slice, compare_slices, slices_of


def two(differences: list[float], documents: list[str]) -> tuple[PairedScores, PairedScores]:
    ids = tuple(f"q{number}" for number in range(len(differences)))
    before = np.full((1, len(ids)), 0.5)
    sides = (("a",), before), (("b",), before + np.array([differences]))
    first, second = (PairedScores(name, ids, tuple(documents), values) for name, values in sides)
    return first, second


def simulated(
    rng: np.random.Generator, effect: float
) -> tuple[PairedScores, PairedScores, dict[str, dict[str, object]]]:
    """400 questions about 40 documents; 60 of one kind, by a setting that differs by chance alone, lose ``effect``."""
    kinds = rng.permutation(["rare"] * 60 + ["plain"] * 200 + ["long"] * 140).tolist()
    noise = rng.normal(0, 0.2, 400) * (rng.random(400) < 0.6)
    lost = effect * np.array([kind == "rare" for kind in kinds])
    first, second = two((noise - lost).tolist(), [f"d{number % 40}" for number in range(400)])
    levels = rng.integers(0, 4, 400).tolist()
    metadata = {
        f"q{n}": {"kind": kind, "level": level} for n, (kind, level) in enumerate(zip(kinds, levels, strict=True))
    }
    return first, second, metadata


def test_slices_are_the_documents_and_the_values_of_metadata_with_enough_questions() -> None:
    documents = ["a"] * 30 + ["b"] * 19 + ["c"] * 21
    first, _ = two([0.0] * 70, documents)
    metadata: dict[str, dict[str, object]] = {
        f"q{n}": {"tags": ["x", "x", "y"][: 1 + n % 3], "all": 1} for n in range(70)
    }
    metadata["q0"] |= {"level": True, "none": None, "nested": {"a": 1}}
    for n in range(1, FEWEST_QUESTIONS + 1):
        metadata[f"q{n}"]["level"] = 2.5
    found = [(one.key, one.value, len(one.query_ids)) for one in slices_of(first, metadata)]
    assert found == [(DOCUMENT, "a", 30), ("tags", "y", 23), (DOCUMENT, "c", 21), ("level", "2.5", 20)]


def test_of_many_slices_those_with_the_most_questions_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_eval.stats.slices.MOST_SLICES", 2)
    first, _ = two([0.0] * 75, ["a"] * 20 + ["b"] * 25 + ["c"] * 30)
    assert [one.value for one in slices_of(first, {})] == ["c", "b"]


def test_a_slice_is_compared_as_its_questions_are_and_corrected_for_all_looked_at() -> None:
    first, second, metadata = simulated(np.random.default_rng(3), 0.3)
    slices = slices_of(first, metadata)
    found = compare_slices(first, second, slices, np.random.default_rng(0))
    assert {one.slice.key for one in found} == {"kind", "level"}
    sizes = [abs(one.comparison.difference) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert found[0].slice.value == "rare"
    assert found[0].comparison.verdict == "worse"
    adjusted = holm(np.array([one.comparison.p for one in found])).tolist()
    assert [one.comparison.p_adjusted for one in found] == pytest.approx(adjusted, abs=1e-12)
    ids = found[0].slice.query_ids
    (alone,) = compare(first.on(ids), second.on(ids), np.random.default_rng(0))
    together = found[0].comparison
    assert (together.before, together.after, together.n) == (alone.before, alone.after, alone.n)
    wide, narrow = (np.subtract(one.high, one.low) for one in (together, alone))
    assert wide > 1.2 * narrow  # for all slices, not for one


def test_slices_without_a_difference_ask_for_no_correction() -> None:
    first, second = two([-0.2, -0.1] * 15 + [0.0] * 30, ["a"] * 30 + ["b"] * 30)
    (found,) = compare_slices(first, second, slices_of(first, {}), np.random.default_rng(0))
    assert (found.slice.value, found.comparison.unit) == ("a", "queries")
    assert found.comparison.p_adjusted == found.comparison.p < 0.001
    assert compare_slices(first, first, [Slice("all", "x", first.query_ids)], np.random.default_rng(0)) == []


def test_for_a_metric_of_cost_less_is_better() -> None:
    first, second = two([-0.2, -0.1] * 15 + [0.1] * 30, ["a"] * 30 + ["b"] * 30)
    found = compare_slices(first, second, slices_of(first, {}), np.random.default_rng(0), higher_is_better=False)
    assert {one.slice.value: one.comparison.verdict for one in found} == {"a": "better", "b": "worse"}


def test_a_kind_that_loses_is_found_and_chance_is_not() -> None:
    rng = np.random.default_rng(11)
    draws = {0.15: 0, 0.0: 0}
    for effect in draws:
        for _ in range(20):
            first, second, metadata = simulated(rng, effect)
            found = compare_slices(first, second, slices_of(first, metadata), rng)
            draws[effect] += any(one.comparison.verdict != "no difference shown" for one in found)
    assert draws[0.15] >= 17
    assert draws[0.0] <= 4
