"""Intervals: the same as scipy's from the same generator, covering at their nominal rate, and sane at the edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.intervals import FEWEST_SURE, bootstrap_intervals, expanded_level
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS, Units


def clustered(rng: np.random.Generator, documents: int, rows: int) -> tuple[Values, Units]:
    """Answers right or wrong (mean 2/3), on documents of unequal size of which some are harder than others."""
    sizes = 1 + rng.poisson(4, documents)
    units = Units("documents", np.repeat(np.arange(documents), sizes), documents)
    chance = rng.beta(2, 1, (rows, documents))[:, units.numbers]
    return (rng.random(chance.shape) < chance).astype(float), units


@pytest.mark.parametrize("documents", [2, 7, 30, 300])
def test_intervals_are_scipys_from_the_same_generator(documents: int) -> None:
    values, units = clustered(np.random.default_rng(documents), documents, 3)
    ours = bootstrap_intervals(values, units, np.random.default_rng(5), resamples=999)
    sums, sizes = units.sums(values), units.sizes

    def mean(drawn: np.ndarray, axis: int = -1) -> Values:
        found: Values = sums[:, drawn].sum(axis) / sizes[drawn].sum(axis)
        return found

    theirs = stats.bootstrap(
        (np.arange(documents),),
        mean,
        vectorized=True,
        n_resamples=999,
        batch=100,
        confidence_level=expanded_level(0.95, documents),
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    np.testing.assert_allclose(ours, np.stack([theirs.low, theirs.high], axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("documents", "confidence"), [(10, 0.95), (14, 0.95), (40, 0.95), (40, 0.8)])
def test_intervals_cover_at_their_nominal_rate(documents: int, confidence: float) -> None:
    rng = np.random.default_rng(20240711)
    covered, naive, simulated = 0, 0, 2_000
    for _ in range(simulated // 50):
        values, units = clustered(rng, documents, 50)
        single = Units("queries", np.arange(values.shape[1]), values.shape[1])
        for kind in (units, single):
            ends = bootstrap_intervals(values, kind, rng, resamples=500, confidence=confidence)
            assert ends is not None
            inside = int(((ends[:, 0] <= 2 / 3) & (ends[:, 1] >= 2 / 3)).sum())
            covered += inside if kind is units else 0
            naive += inside if kind is single else 0
    # Three standard errors of the simulation, and a point for what skewed scores take away from any bootstrap.
    tolerance = 3 * np.sqrt(confidence * (1 - confidence) / simulated) + 0.01
    assert abs(covered / simulated - confidence) < tolerance, covered / simulated
    # Resampling questions as if they were independent claims far too much.
    assert naive / simulated < confidence - 2 * tolerance, naive / simulated


def test_with_six_documents_an_interval_is_a_little_too_narrow_and_not_more() -> None:
    rng = np.random.default_rng(20240711)
    covered, simulated = 0, 2_000
    for _ in range(simulated // 50):
        values, units = clustered(rng, FEWEST_DOCUMENTS, 50)
        ends = bootstrap_intervals(values, units, rng, resamples=500)
        assert ends is not None
        covered += int(((ends[:, 0] <= 2 / 3) & (ends[:, 1] >= 2 / 3)).sum())
    assert FEWEST_DOCUMENTS < FEWEST_SURE
    assert 0.9 < covered / simulated < 0.95, covered / simulated


def test_every_row_meets_the_same_resamples_however_many_rows_there_are() -> None:
    values, units = clustered(np.random.default_rng(2), 8, 1_100)
    rng, alone = np.random.default_rng(5), np.random.default_rng(5)
    ends = bootstrap_intervals(values, units, rng, resamples=20)
    assert ends is not None
    np.testing.assert_allclose(ends[-1:], bootstrap_intervals(values[-1:], units, alone, resamples=20), atol=1e-12)
    assert rng.random() == alone.random()


def test_the_level_widens_as_the_documents_get_fewer() -> None:
    levels = [expanded_level(0.95, documents) for documents in (2, 6, 14, 100, 10_000)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] <= 1
    assert levels[2] == pytest.approx(0.975, abs=0.001)
    assert levels[-1] == pytest.approx(0.95, abs=0.001)


def test_one_unit_has_no_interval_and_equal_values_have_a_point() -> None:
    rng = np.random.default_rng(0)
    assert bootstrap_intervals(np.array([[0.5, 0.7]]), Units("documents", np.zeros(2, np.int64), 1), rng) is None
    ends = bootstrap_intervals(np.full((1, 9), 0.3), Units("queries", np.arange(9), 9), rng, resamples=50)
    np.testing.assert_allclose(ends, [[0.3, 0.3]])


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), min_size=2, max_size=30), st.integers(1, 200))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_an_interval_is_ordered_finite_and_within_the_values(rows: list[tuple[int, float]], resamples: int) -> None:
    known = {document: number for number, document in enumerate(sorted({document for document, _ in rows}))}
    units = Units("documents", np.array([known[document] for document, _ in rows]), len(known))
    values = np.array([[value for _, value in rows]])
    ends = bootstrap_intervals(values, units, np.random.default_rng(1), resamples=resamples)
    if len(known) == 1:
        assert ends is None
        return
    assert ends is not None
    low, high = ends[0]
    assert values.min() - 1e-9 <= low <= high <= values.max() + 1e-9


@pytest.mark.parametrize(("confidence", "resamples"), [(0.0, 10), (1.0, 10), (95, 10), (0.95, 0), (float("nan"), 5)])
def test_settings_that_mean_nothing_are_refused(confidence: float, resamples: int) -> None:
    units = Units("queries", np.arange(3), 3)
    with pytest.raises(ConfigurationError, match="confidence between 0 and 1"):
        bootstrap_intervals(
            np.ones((1, 3)), units, np.random.default_rng(0), resamples=resamples, confidence=confidence
        )
