"""The probability of being the best, or near it, on simulated fields whose truth is known."""

import numpy as np
import pytest

from rag_eval.stats.comparison import NEAR, margin_at, near_best, rank, too_alike
from rag_eval.stats.paired_scores import PairedScores

CONFIGURATIONS, EACH = 12, 4


def true_means(shape: str, rng: np.random.Generator) -> np.ndarray:
    """One clear winner, a flat field, or two groups."""
    if shape == "clear":
        means = rng.uniform(0.55, 0.75, CONFIGURATIONS)
        means[rng.integers(CONFIGURATIONS)] = means.max() + rng.uniform(0.02, 0.08)
        return means
    centre = np.where(np.arange(CONFIGURATIONS) < CONFIGURATIONS // 2, 0.8, 0.72) if shape == "groups" else 0.75
    return centre + rng.normal(0, 0.006, CONFIGURATIONS)


def scores_of(means: np.ndarray, documents: int, rng: np.random.Generator) -> np.ndarray:
    """Scores of questions that differ by document and question, and by configuration within each."""
    shape = (len(means), documents, EACH)
    shared = rng.normal(0, 0.1, (1, documents, 1)) + rng.normal(0, 0.3, (1, documents, EACH))
    own = rng.normal(0, 0.05, (len(means), documents, 1)) + rng.normal(0, 0.18, shape)
    return np.clip(means[:, None, None] + shared + own, 0, 1).reshape(len(means), -1)


def paired(values: np.ndarray, documents: int) -> PairedScores:
    names = tuple(f"c{n}" for n in range(len(values)))
    queries = tuple(f"q{n}" for n in range(values.shape[1]))
    return PairedScores(names, queries, tuple(f"{n // EACH:04}" for n in range(documents * EACH)), values)


def test_what_is_said_to_be_the_best_mostly_is() -> None:
    rng = np.random.default_rng(3)
    said, held = [], []
    for number in range(450):
        means = true_means(("clear", "flat", "groups")[number % 3], rng)
        true = scores_of(means, 3_000, rng).mean(axis=1)
        documents = (14, 30, 60)[number % 5 % 3]
        drawn = paired(scores_of(means, documents, rng), documents)
        best = int(drawn.values.mean(axis=1).argmax())
        said.append(near_best(drawn, rng, resamples=400)[best])
        held.append(true[best] >= true.max() - NEAR)
    stated, true_share = np.array(said), np.array(held, float)
    for low, high, allowed in ((0.9, 1.01, 0.04), (0.5, 0.9, 0.08)):
        inside = (stated >= low) & (stated < high)
        assert inside.sum() >= 60
        assert true_share[inside].mean() == pytest.approx(stated[inside].mean(), abs=allowed), (low, high)


def test_equal_ones_share_what_is_sure_and_the_far_ones_have_none() -> None:
    rng = np.random.default_rng(1)
    values = scores_of(np.array([0.8, 0.2]), 30, rng)
    drawn = paired(np.vstack([values[0], values]), 30)
    assert near_best(drawn, rng, resamples=200).tolist() == [1, 1, 0]
    assert near_best(drawn, rng, resamples=200, higher_is_better=False).tolist() == [0, 0, 1]
    assert [one.probability for one in rank(drawn, rng, resamples=200)] == [1, 1, 0]
    # Two questions on which the first is better, and no other that differs: every resample favours it.
    twin = np.vstack([values[0], values[0]])
    twin[1, :2] = 0
    first, second = rank(paired(twin, 30), rng, resamples=200)
    assert (first.probability, second.probability) == (None, None)
    assert [one.name for one in too_alike([first, second])] == ["c1"]
    assert [one.probability for one in rank(paired(np.ones((3, 120)), 30), rng, resamples=200)] == [None] * 3
    alone = PairedScores(("a",), ("q",), ("d",), np.array([[0.5]]))
    assert rank(alone, rng)[0].probability is None


def test_the_first_of_many_that_are_alike_is_first_by_luck() -> None:
    """In flat fields what is said to hold is held back: resamples alone say 66 % on average, and 53 % hold."""
    rng = np.random.default_rng(5)
    said, held = [], []
    for number in range(120):
        means = true_means("flat", rng)
        true = scores_of(means, 3_000, rng).mean(axis=1)
        drawn = paired(scores_of(means, (30, 60)[number % 2], rng), (30, 60)[number % 2])
        best = int(drawn.values.mean(axis=1).argmax())
        said.append(near_best(drawn, rng, resamples=400)[best])
        held.append(true[best] >= true.max() - NEAR)
    assert np.mean(said) - np.mean(held) < 0.05


def test_margins_follow_the_mean_below_a_half_and_above_one() -> None:
    assert [margin_at(mean, 0.01) for mean in (0.03, 0.5, 0.8, 1.0, 1_000.0)] == pytest.approx(
        [0.0006, 0.01, 0.01, 0.01, 10.0]
    )
