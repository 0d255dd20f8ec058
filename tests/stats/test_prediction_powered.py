"""The mean that people would find, from a sample of theirs and a model's judgements of everything."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.intervals import prediction_powered
from rag_eval.stats.paired_scores import Units


def each_alone(count: int) -> Units:
    return Units("queries", np.arange(count), count)


def test_a_model_that_is_right_makes_the_sample_as_good_as_the_whole() -> None:
    truth = np.tile([1.0, 0.0, 0.0, 0.0], 100)
    judged = np.where(np.arange(400) < 50, truth, np.nan)
    found = prediction_powered(truth, judged, each_alone(400))
    assert found.weight == pytest.approx(1.0, abs=0.2)
    assert found.model.mean == 0.25
    assert abs(found.powered.mean - 0.25) < abs(found.human.mean - 0.25)
    assert (found.powered.n, found.human.n, found.model.n) == (50, 50, 400)


def test_a_model_that_tells_nothing_is_not_used() -> None:
    truth = np.tile([1.0, 0.0], 100)
    judged = np.where(np.arange(200) < 40, truth, np.nan)
    found = prediction_powered(np.full(200, 1.0), judged, each_alone(200))
    assert found.weight == 0.0
    assert found.powered == found.human
    assert found.human.mean == 0.5
    assert prediction_powered(1 - truth, judged, each_alone(200)).weight == 0.0  # worse than nothing


def test_what_people_judged_whole_is_their_mean() -> None:
    truth, model = np.tile([1.0, 0.0, 0.0], 20), np.tile([1.0, 1.0, 0.0], 20)
    found = prediction_powered(model, truth, each_alone(60))
    assert found.powered.mean == found.human.mean == pytest.approx(1 / 3)
    assert found.model.mean == pytest.approx(2 / 3)


def test_judgements_of_one_document_count_as_one() -> None:
    """Twice the same judgements within the units are no more sure than once."""
    rng = np.random.default_rng(1)
    truth, model = rng.integers(0, 2, 60).astype(float), rng.random(60)
    judged = np.where(np.arange(60) < 30, truth, np.nan)
    once = prediction_powered(model, judged, each_alone(60))
    units = Units("documents", np.arange(120) % 60, 60)
    twice = prediction_powered(np.tile(model, 2), np.tile(judged, 2), units)
    assert twice.powered.mean == pytest.approx(once.powered.mean)
    assert (twice.powered.units, twice.powered.unit) == (30, "documents")
    # All but the one judgement more, of which there are twice as many.
    assert width(twice.human) == pytest.approx(width(once.human), rel=0.15)
    alone = prediction_powered(np.tile(model, 2), np.tile(judged, 2), each_alone(120))
    assert width(alone.human) < 0.75 * width(twice.human)


def width(found: object) -> float:
    return float(found.high - found.low)  # type: ignore[attr-defined]


def test_agreement_is_not_certainty() -> None:
    judged = np.where(np.arange(500) < 50, 0.0, np.nan)
    found = prediction_powered(np.zeros(500), judged, each_alone(500))
    assert found.human.mean == 0.0
    assert found.human.high == pytest.approx((1 + 2.01) / 50, rel=0.01)
    one_unit = prediction_powered(np.zeros(9), np.zeros(9), Units("documents", np.zeros(9, int), 1))
    assert (one_unit.powered.low, one_unit.powered.high) == (None, None)


@pytest.mark.parametrize("judged", [np.full(3, np.nan), np.zeros(2)])
def test_without_a_judgement_there_is_no_mean(judged: Values) -> None:
    with pytest.raises(ConfigurationError, match="there are 3 predictions and"):
        prediction_powered(np.zeros(3), judged, each_alone(3))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 8))
@example(7195, 24, 2)  # people judged everything
def test_it_is_what_a_loop_over_the_things_gives(seed: int, n: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    total = n + int(rng.integers(0, 60))
    y, f, w = rng.random(total), rng.random(total), rng.random(total) * 3
    sampled = rng.permutation(total) < n
    numbers = rng.integers(0, groups, total)
    units = Units("documents", numbers, groups)
    found = prediction_powered(f, np.where(sampled, y, np.nan), units, w)
    people = [w[i] * y[i] for i in range(total) if sampled[i]]
    model = [w[i] * f[i] for i in range(total) if sampled[i]]
    m, p, q = np.mean(w * f), np.mean(people), np.mean(model)
    a = [(w[i] * y[i] - p) / n if sampled[i] else 0.0 for i in range(total)]
    b = [(w[i] * f[i] - m) / total - ((w[i] * f[i] - q) / n if sampled[i] else 0.0) for i in range(total)]
    squares = sum(one * one for one in b)
    product = sum(map(float.__mul__, map(float, a), map(float, b)))
    best = min(1.0, max(0.0, -product / squares)) if n < total else 0.0
    assert found.weight == pytest.approx(best, abs=1e-6)
    assert found.powered.mean == pytest.approx(p + found.weight * (m - q))
    held = len({numbers[i] for i in range(total) if sampled[i]})
    if held < 2:
        assert found.powered.low is None
        return
    sums = [sum(a[i] + found.weight * b[i] for i in range(total) if numbers[i] == g) for g in range(groups)]
    usual = np.sqrt(np.mean(w**2)) / n
    error = np.sqrt(held / (held - 1) * sum(one * one for one in sums) + usual**2)
    assert found.powered.high is not None
    assert found.powered.high - found.powered.mean == pytest.approx(usual + stdtrit(held - 1, 0.975) * error)
