import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom, binomtest

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.abstention import ScoreThreshold, Share, score_threshold


def threshold(answerable: list[float], unanswerable: list[float], rate: float) -> ScoreThreshold | None:
    return score_threshold(np.array(answerable, np.float64), np.array(unanswerable, np.float64), rate)


SCORES = st.sampled_from([-math.inf, -1.5, 0.0, 0.1, 0.3, 0.30000000000000004, 0.5, 2.0, 1e-9, 12345.678])


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.lists(SCORES, max_size=12), st.lists(SCORES, max_size=40), st.sampled_from([0.05, 0.1, 0.25, 0.5]))
def test_the_threshold_is_the_least_that_leaves_so_few_false_hits(
    answerable: list[float], unanswerable: list[float], rate: float
) -> None:
    found = threshold(answerable, unanswerable, rate)
    n = len(unanswerable)
    allowed = math.floor(round((n + 1) * rate, 9)) - 1  # so that (n + 1) false hits in all would be the rate
    if allowed < 0:
        assert found is None
        return
    assert found is not None
    assert found.false_hits == Share(sum(score >= found.score for score in unanswerable), n)
    assert found.false_hits.count <= allowed
    assert found.kept == Share(sum(score >= found.score for score in answerable), len(answerable))
    lower = [score for score in answerable + unanswerable if score < found.score]
    # Any lower threshold that changes anything lets too many pass.
    if lower and max(lower) > -math.inf and max(lower) in unanswerable:
        assert sum(score >= max(lower) for score in unanswerable) > allowed
    assert found.interval[0] <= (allowed + 1) / (n + 1) <= found.interval[1]


def test_a_threshold_is_a_short_number_between_the_scores() -> None:
    found = threshold([0.4567], [0.123456, *[0.01] * 18], 0.1)
    assert found is not None
    assert found.score == 0.02
    zero = threshold([1.0], [0.0] * 19, 0.1)
    assert zero is not None
    assert zero.score == 1.0
    close = threshold([0.30000000000000004], [0.3] * 19, 0.1)
    assert close is not None
    assert (close.score, close.kept.count) == (0.30000000000000004, 1)


@pytest.mark.parametrize(("count", "n"), [(0, 10), (3, 10), (10, 10), (1, 1)])
def test_the_interval_of_a_share_is_the_exact_one(count: int, n: int) -> None:
    exact = binomtest(count, n).proportion_ci(0.95, "exact")
    assert Share(count, n).interval == pytest.approx((exact.low, exact.high))


def test_without_questions_nothing_is_known() -> None:
    assert (Share(0, 0).value, Share(0, 0).interval) == (0.0, (0.0, 1.0))
    assert threshold([], [], 0.05) is None
    assert threshold([], [0.5] * 18, 0.05) is None
    assert threshold([], [0.5] * 19, 0.05) is not None
    for rate in (0.0, 1.0, -1.0):
        with pytest.raises(ConfigurationError, match="use a number between 0 and 1"):
            threshold([], [0.5], rate)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_a_threshold_of_one_half_keeps_its_rate_on_the_other(rate: float) -> None:
    """Scores of two humps, so that the rate cannot come from a distribution that was assumed."""
    rng = np.random.default_rng(7)
    k = math.ceil(round(121 * (1 - rate), 9))
    low, high = betabinom.ppf([0.025, 0.975], 120, 121 - k, k) / 120
    inside, rates = 0, []
    for _ in range(1000):
        scores: Values = np.where(rng.random(240) < 0.3, rng.normal(5, 0.2, 240), rng.gamma(1.0, 1.0, 240))
        found = score_threshold(np.zeros(0), scores[:120], rate)
        assert found is not None
        rates.append(float(np.mean(scores[120:] >= found.score)))
        inside += low <= rates[-1] <= high
    assert inside >= 930
    assert rate - 0.02 < np.mean(rates) <= rate + 0.002
