"""p-values: scipy's where every pattern is looked at, uniform when there is no difference, small when there is one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rag_eval.stats.significance import (
    SIGNIFICANCE,
    Alternative,
    flips_for,
    holm,
    is_significant,
    rise_p_values,
    sign_flip_p_values,
)


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize("units", [2, 5, 9])
def test_exact_p_values_are_scipys(units: int, alternative: Alternative) -> None:
    rng = np.random.default_rng(units)
    sums = np.round(rng.normal(0.3, 1, (4, units)), 1)  # rounded, so that ties occur
    ours = sign_flip_p_values(sums, rng, alternative)
    for row, p in zip(sums, ours, strict=True):
        theirs = stats.permutation_test(
            (row,), lambda x, axis: x.sum(axis), permutation_type="samples", alternative=alternative, n_resamples=np.inf
        )
        assert p == pytest.approx(theirs.pvalue, abs=1e-12)


def test_random_flips_come_close_to_all_of_them() -> None:
    rng = np.random.default_rng(3)
    sums = rng.normal(0.4, 1, (5, 12))
    exact = sign_flip_p_values(sums, rng, flips=2**12)
    drawn = sign_flip_p_values(sums, rng, flips=4_000)
    # Four standard errors of a share of 4,000.
    np.testing.assert_allclose(drawn, exact, atol=4 * 0.5 / np.sqrt(4_000))


@pytest.mark.parametrize("units", [13, 40])
def test_p_values_are_uniform_when_there_is_no_difference(units: int) -> None:
    rng = np.random.default_rng(20240711)
    found = []
    for _ in range(40):
        sizes = 1 + rng.poisson(4, units)
        # Questions of one document move together.
        sums = sizes * rng.normal(0, 0.2, (50, units)) + np.sqrt(sizes) * rng.normal(0, 0.3, (50, units))
        found.append(sign_flip_p_values(sums, rng, flips=2_000))
    p_values = np.concatenate(found)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    for level in (0.05, 0.1, 0.5):
        tolerance = 3 * np.sqrt(level * (1 - level) / len(p_values))
        assert abs((p_values <= level).mean() - level) < tolerance


def test_a_difference_is_found_and_no_difference_is_one() -> None:
    rng = np.random.default_rng(0)
    p_values = sign_flip_p_values(np.array([np.full(20, 0.5), np.zeros(20)]), rng, flips=1_000)
    assert p_values[0] == pytest.approx(1 / 1_000, abs=1e-3)
    assert p_values[0] > 0
    assert p_values[1] == 1
    # Of patterns too many to look at, the one seen and 9,999 others.
    assert sign_flip_p_values(np.full((1, 60), 0.5), rng)[0] == 1 / 10_000
    assert sign_flip_p_values(np.array([[0.7]]), rng)[0] == 1
    assert sign_flip_p_values(np.array([[-0.5] * 8]), rng, "greater")[0] == 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
@settings(deadline=None, derandomize=True)
def test_holm_is_the_largest_bonferroni_over_every_set_that_holds_it(p_values: list[float]) -> None:
    """Closed testing: reject one hypothesis when Bonferroni rejects every set of hypotheses that has it."""
    numbers = range(len(p_values))
    sets = [chosen for size in numbers for chosen in itertools.combinations(numbers, size + 1)]
    expected = [
        min(1.0, max(len(chosen) * min(p_values[i] for i in chosen) for chosen in sets if number in chosen))
        for number in numbers
    ]
    np.testing.assert_allclose(holm(np.array(p_values)), expected, atol=1e-12)


def test_as_many_signs_are_flipped_as_one_of_many_tests_needs_to_be_significant() -> None:
    assert [flips_for(tests) for tests in (1, 100, 101, 500)] == [10_000, 10_000, 10_100, 50_000]
    seen = np.vstack([np.full(60, 0.5), np.zeros((500, 60))])
    rng = np.random.default_rng(0)
    assert is_significant(holm(sign_flip_p_values(seen, rng, flips=flips_for(len(seen))))[0])


@pytest.mark.parametrize("documents", [8, 30])
def test_a_drop_of_just_what_is_allowed_is_seldom_called_larger(documents: int) -> None:
    """Sparse, skewed differences, as scores have them: most queries stay, a few are lost, fewer are won."""
    rng = np.random.default_rng(20240711)
    allowed, simulations = 0.04, 600
    alarms = seen = 0
    for _ in range(simulations):
        number = np.repeat(np.arange(documents), 1 + rng.poisson(6, documents))
        chance = rng.random(len(number))
        for extra in (0.0, 0.3):
            drops = np.where(chance < 0.06 + allowed + extra, 1.0, np.where(chance > 0.94, -1.0, 0.0))
            sums = np.bincount(number, drops - allowed, documents)[None]
            failed = sign_flip_p_values(sums, rng, "greater", 1_000)[0] < 0.05
            alarms += failed and not extra
            seen += failed and extra > 0
    assert alarms / simulations < 0.05 + 3 * np.sqrt(0.05 * 0.95 / simulations), alarms / simulations
    assert seen / simulations > (0.8 if documents == 8 else 0.99), seen / simulations


def test_a_rise_is_tested_by_resampling_too() -> None:
    sums = np.array([[0.3, 0.1, -0.05, 0.4, 0.2, 0.15, -0.9, 0.35, 0.3, 0.25], [0.1] * 10, [0.0] * 10, [-0.2] * 10])
    found = rise_p_values(sums, np.random.default_rng(3), 4_000)
    rng, row = np.random.default_rng(3), sums[0]

    def in_errors(values: np.ndarray, mean: float) -> float:
        return (values.mean() - mean) / (values.std(ddof=1) / np.sqrt(len(values)))

    drawn = [in_errors(rng.choice(row, len(row)), row.mean()) for _ in range(4_000)]
    resampled = np.mean(np.array(drawn) >= in_errors(row, 0.0))
    flipped = sign_flip_p_values(sums, np.random.default_rng(3), "greater", 4_000)
    # One unit that fell far makes the resampled p-value the larger one.
    assert resampled > flipped[0] + 0.02
    assert found[0] == pytest.approx(resampled, abs=0.02)
    # What is the same in every unit strays nowhere.
    assert found[1] == pytest.approx(max(flipped[1], 1 / 4_001))
    assert found[2:].tolist() == [1.0, 1.0]
    assert rise_p_values(np.array([[1.0]]), np.random.default_rng(3)).tolist() == [0.5]


@pytest.mark.parametrize("units", [10, 30])
def test_a_rise_in_half_of_the_units_or_more_is_sure_however_few_do_not_rise(units: int) -> None:
    risen = range(units // 2, units + 1)
    sums = np.array([[0.98] * count + [-0.02] * (units - count) for count in risen])
    found = rise_p_values(sums, np.random.default_rng(3), 4_000)
    assert (found < SIGNIFICANCE).all()


def test_skewed_differences_are_seldom_taken_for_a_rise() -> None:
    # Twelve tests on the same fourteen documents, whose differences have mean 0 and a long tail of falls.
    rng = np.random.default_rng(5)
    sums = 4.0 - rng.gamma(4.0, 1.0, (200, 12, 14))
    flipped = np.mean([holm(sign_flip_p_values(one, rng, "greater", 2_000)).min() < SIGNIFICANCE for one in sums])
    both = np.mean([holm(rise_p_values(one, rng, 2_000)).min() < SIGNIFICANCE for one in sums])
    assert both < 0.75 * flipped
    assert both < 0.1
