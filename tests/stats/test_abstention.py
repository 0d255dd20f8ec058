import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom, binomtest

from rag_eval.errors import ConfigurationError
from rag_eval.metrics.metric import Values
from rag_eval.stats.abstention import NO_THRESHOLD, Abstention, Share

SCORES = st.sampled_from([-math.inf, -1.5, 0.0, 0.1, 0.3, 0.30000000000000004, 0.5, 2.0, 1e-9, 12345.678])
QUESTIONS = st.lists(st.tuples(SCORES, st.sampled_from([0.0, 0.25, 1.0])), max_size=12)


def abstention(answerable: list[tuple[float, float]], unanswerable: list[float]) -> Abstention:
    scores, gains = np.array(answerable, np.float64).reshape(-1, 2).T
    return Abstention(scores, gains, np.array(unanswerable, np.float64))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(QUESTIONS, st.lists(SCORES, max_size=12))
def test_the_curve_is_that_of_counting_at_every_score(
    answerable: list[tuple[float, float]], unanswerable: list[float]
) -> None:
    found = abstention(answerable, unanswerable)
    every = [*answerable, *((score, 0.0) for score in unanswerable)]
    levels = sorted({score for score, _ in every if score > -math.inf}, reverse=True)
    assert [point.score for point in found.curve] == levels
    for point in found.curve:
        answered = [gain for score, gain in every if score >= point.score]
        false = sum(score >= point.score for score in unanswerable)
        assert point.coverage == len(answered) / len(every)
        assert point.risk == pytest.approx(1 - sum(answered) / len(answered))
        assert point.false_hits == (false / len(unanswerable) if unanswerable else 0)
        assert found.at(point.score).false_hits == Share(false, len(unanswerable))
        assert found.at(point.score).kept.count == len(answered) - false
    covered, area = 0.0, 0.0
    for point in found.curve:
        area += (point.coverage - covered) * point.risk
        covered = point.coverage
    assert found.area == pytest.approx(area / covered if covered else 0.0)
    assert found.at(NO_THRESHOLD).false_hits.count == sum(score > -math.inf for score in unanswerable)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(QUESTIONS, st.lists(SCORES, max_size=40), st.sampled_from([0.05, 0.1, 0.25, 0.5]))
def test_the_threshold_is_the_least_that_leaves_so_few_false_hits(
    answerable: list[tuple[float, float]], unanswerable: list[float], rate: float
) -> None:
    found = abstention(answerable, unanswerable).threshold(rate)
    n = len(unanswerable)
    allowed = math.floor(round((n + 1) * rate, 9)) - 1  # so that (n + 1) false hits in all would be the rate
    if allowed < 0:
        assert found is None
        return
    assert found is not None
    assert found.false_hits.count <= allowed
    lower = [score for score, _ in answerable if score < found.score] + [s for s in unanswerable if s < found.score]
    # Any lower threshold that changes anything lets too many pass.
    if lower and max(lower) > -math.inf and max(lower) in unanswerable:
        assert sum(score >= max(lower) for score in unanswerable) > allowed
    assert found.interval[0] <= (allowed + 1) / (n + 1) <= found.interval[1]


def test_a_threshold_is_a_short_number_between_the_scores() -> None:
    found = abstention([(0.4567, 1.0)], [0.123456, *[0.01] * 18]).threshold(0.1)
    assert found is not None
    assert found.score == 0.02
    zero = abstention([(1.0, 1.0)], [0.0] * 19).threshold(0.1)
    assert zero is not None
    assert zero.score == 1.0
    close = abstention([(0.30000000000000004, 1.0)], [0.3] * 19).threshold(0.1)
    assert close is not None
    assert (close.score, close.kept.count) == (0.30000000000000004, 1)


@pytest.mark.parametrize(("count", "n"), [(0, 10), (3, 10), (10, 10), (1, 1)])
def test_the_interval_of_a_share_is_the_exact_one(count: int, n: int) -> None:
    exact = binomtest(count, n).proportion_ci(0.95, "exact")
    assert Share(count, n).interval == pytest.approx((exact.low, exact.high))


def test_without_questions_nothing_is_known() -> None:
    assert (Share(0, 0).value, Share(0, 0).interval) == (0.0, (0.0, 1.0))
    assert abstention([], []).threshold(0.05) is None
    assert abstention([], [0.5] * 18).threshold(0.05) is None
    assert abstention([], [0.5] * 19).threshold(0.05) is not None
    assert (abstention([], []).curve, abstention([], []).area) == ([], 0.0)
    for rate in (0.0, 1.0, -1.0):
        with pytest.raises(ConfigurationError, match="use a number between 0 and 1"):
            abstention([], [0.5]).threshold(rate)


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_a_threshold_of_one_half_keeps_its_rate_on_the_other(rate: float) -> None:
    """Scores of two humps, so that the rate cannot come from a distribution that was assumed."""
    rng = np.random.default_rng(7)
    k = math.ceil(round(121 * (1 - rate), 9))
    low, high = betabinom.ppf([0.025, 0.975], 120, 121 - k, k) / 120
    inside, rates = 0, []
    for _ in range(1000):
        scores: Values = np.where(rng.random(240) < 0.3, rng.normal(5, 0.2, 240), rng.gamma(1.0, 1.0, 240))
        first, second = (Abstention(np.zeros(0), np.zeros(0), half) for half in (scores[:120], scores[120:]))
        found = first.threshold(rate)
        assert found is not None
        rates.append(second.at(found.score).false_hits.value)
        inside += low <= rates[-1] <= high
    assert inside >= 930
    assert rate - 0.02 < np.mean(rates) <= rate + 0.002
