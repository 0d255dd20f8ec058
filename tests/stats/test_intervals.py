"""Intervals: the published formulas, written again; covering at their nominal rate; sane at the edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.intervals import difference_estimates, mean_estimates, mean_intervals, student_intervals
from rag_eval.stats.paired_scores import Units


def clustered(rng: np.random.Generator, documents: int, rows: int, easy: float = 2) -> tuple[Values, Units]:
    """Answers right or wrong, on documents of unequal size of which some are harder than others."""
    sizes = 1 + rng.poisson(4, documents)
    units = Units("documents", np.repeat(np.arange(documents), sizes), documents)
    chance = rng.beta(easy, 1, (rows, documents))[:, units.numbers]
    return (rng.random(chance.shape) < chance).astype(float), units


def covered(ends: Values | None, truth: float) -> int:
    assert ends is not None
    return int(((ends[:, 0] <= truth) & (ends[:, 1] >= truth)).sum())


@pytest.mark.parametrize("documents", [8, 14, 40])
@pytest.mark.parametrize("easy", [1, 2, 19])
def test_intervals_cover_the_mean(documents: int, easy: float) -> None:
    rng = np.random.default_rng(20240711)
    inside, naive, simulated = 0, 0, 2_000
    for _ in range(simulated // 50):
        values, units = clustered(rng, documents, 50, easy)
        truth = easy / (easy + 1)
        inside += covered(mean_intervals(values, units), truth)
        naive += covered(mean_intervals(values, Units("queries", np.arange(values.shape[1]), values.shape[1])), truth)
    assert inside / simulated > 0.94, inside / simulated
    # Questions taken as if they were independent claim too much.
    assert naive < inside


def test_right_or_wrong_answers_that_are_independent_have_nearly_the_exact_interval() -> None:
    values = np.array([[1.0] * 90 + [0.0] * 10])
    ends = mean_intervals(values, Units("queries", np.arange(100), 100))
    exact = stats.binomtest(90, 100).proportion_ci(method="exact")
    np.testing.assert_allclose(ends, [[exact.low, exact.high]], atol=0.004)
    assert ends is not None
    assert ends[0, 0] < exact.low


def test_scores_that_are_all_right_have_an_interval_below_1() -> None:
    units = Units("documents", np.repeat(np.arange(14), 5), 14)
    ends = mean_intervals(np.vstack([np.ones(70), np.zeros(70)]), units)
    assert ends is not None
    (low, high), (zero, above) = ends.tolist()
    assert high == 1
    assert 0.9 < low < 0.96
    assert (zero, above) == pytest.approx((0, 1 - low))


def test_a_mean_whose_documents_agree_by_chance_takes_the_spread_of_its_neighbours() -> None:
    rng = np.random.default_rng(3)
    values, units = clustered(rng, 14, 6)
    even = np.tile(np.arange(values.shape[1]) % 3 > 0, (1, 1)).astype(float)
    alone = mean_intervals(even, units)
    beside = mean_intervals(np.vstack([even, values]), units)
    assert alone is not None
    assert beside is not None
    assert np.ptp(beside[0]) > np.ptp(alone[0])


def test_graded_scores_are_not_taken_for_right_or_wrong_ones() -> None:
    rng = np.random.default_rng(4)
    units = Units("documents", np.repeat(np.arange(40), 5), 40)
    values = rng.uniform(0.04, 0.08, (1, 200))
    ends, students = mean_intervals(values, units), student_intervals(values, units)
    assert ends is not None
    assert students is not None
    # Right-or-wrong answers with the same mean would have an interval five times as wide.
    assert np.ptp(ends) < 0.02
    assert ends[0, 0] < students[0, 0] < students[0, 1] < ends[0, 1]


def test_students_interval_has_the_variance_of_cr2_and_satterthwaites_degrees() -> None:
    rng = np.random.default_rng(6)
    values, units = clustered(rng, 9, 2)
    differences = values - values[::-1]
    sizes, n = units.sizes, values.shape[1]
    share = sizes / n
    hat = (np.diag(sizes.astype(float)) - np.outer(sizes, sizes) / n) / np.sqrt(np.outer(1 - share, 1 - share))
    degrees = np.trace(hat) ** 2 / (hat**2).sum()
    for row, estimate in zip(differences, difference_estimates(differences, units, 0.9), strict=True):
        strays = units.sums(row[None])[0] - row.mean() * sizes
        error = np.sqrt((strays**2 / (1 - share)).sum()) / n
        reach = stats.t.ppf(0.95, degrees) * error
        assert (estimate.low, estimate.high) == pytest.approx((row.mean() - reach, row.mean() + reach))


def test_units_of_equal_size_give_the_usual_interval_of_their_means() -> None:
    values = np.random.default_rng(1).normal(300, 40, (1, 60))
    units = Units("documents", np.repeat(np.arange(12), 5), 12)
    (estimate,) = mean_estimates(values, units)  # tokens: not between 0 and 1
    usual = stats.ttest_1samp(values.reshape(12, 5).mean(axis=1), 0).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((usual.low, usual.high))


def test_one_unit_has_no_interval() -> None:
    one = Units("documents", np.zeros(2, np.int64), 1)
    (estimate,) = mean_estimates(np.array([[0.5, 0.7]]), one)
    assert (estimate.low, estimate.high, estimate.mean) == (None, None, 0.6)
    assert difference_estimates(np.array([[0.5, -0.7]]), one)[0].low is None


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=2, max_size=30))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_an_interval_of_scores_holds_the_mean_and_stays_on_the_scale(rows: list[tuple[int, float]]) -> None:
    known = {document: number for number, document in enumerate(sorted({document for document, _ in rows}))}
    units = Units("documents", np.array([known[document] for document, _ in rows]), len(known))
    values = np.array([[value for _, value in rows]])
    (estimate,) = mean_estimates(values, units)
    if len(known) == 1:
        assert estimate.low is None
        return
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= estimate.mean + 1e-9
    assert estimate.mean - 1e-9 <= estimate.high <= 1


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, float("nan")])
def test_a_confidence_that_means_nothing_is_refused(confidence: float) -> None:
    with pytest.raises(ConfigurationError, match="use a number between 0 and 1"):
        difference_estimates(np.ones((1, 3)), Units("queries", np.arange(3), 3), confidence)
