"""Estimates, paired comparisons and groups of the best."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ConfigurationError, TableError
from rag_eval.metrics.metric import Values, higher_is_better
from rag_eval.stats.comparison import Comparison, best_first, compare, place_labels, rank, shared_places
from rag_eval.stats.intervals import Estimate, mean_estimates
from rag_eval.stats.paired_scores import FEWEST_DOCUMENTS, PairedScores


def paired(values: Values, documents: list[str] | None = None, names: tuple[str, ...] = ()) -> PairedScores:
    rows, count = values.shape
    names = names or tuple(f"c{row}" for row in range(rows))
    return PairedScores(names, tuple(map(str, range(count))), tuple(documents or map(str, range(count))), values)


def simulated(rng: np.random.Generator, documents: int, shifts: list[float]) -> PairedScores:
    """Configurations whose true means differ by the shifts; document and query effects are partly shared."""
    sizes = 1 + rng.poisson(4, documents)
    number = np.repeat(np.arange(documents), sizes)
    rows, count = len(shifts), len(number)
    shared = rng.normal(0.6, 0.2, count)
    own = rng.normal(0, 0.1, (rows, documents))[:, number] + rng.normal(0, 0.2, (rows, count))
    return paired(shared + own + np.array(shifts)[:, None], [f"doc {place:03}" for place in number])


def one_comparison(before: list[float], after: list[float], *, up: bool = True) -> Comparison:
    rng = np.random.default_rng(0)
    (found,) = compare(paired(np.array([before])), paired(np.array([after])), rng, higher_is_better=up)
    return found


def estimate(scores: PairedScores) -> list[Estimate]:
    return mean_estimates(scores.values, scores.units)


def test_an_estimate_says_mean_n_and_over_what_units() -> None:
    values = np.random.default_rng(1).random((2, 40))
    documents = [str(place % 8) for place in range(40)]
    first, second = estimate(paired(values, documents))
    assert (first.n, first.units, first.unit) == (40, 8, "documents")
    assert first.mean == pytest.approx(values[0].mean())
    assert second.low is not None
    assert second.high is not None
    assert second.low < second.mean < second.high
    again = estimate(paired(values, documents))
    assert again == [first, second]


def test_with_few_documents_the_queries_are_resampled() -> None:
    values = np.random.default_rng(1).random((1, 40))
    for documents in (1, FEWEST_DOCUMENTS - 1):
        (found,) = estimate(paired(values, [str(place % documents) for place in range(40)]))
        assert (found.units, found.unit) == (40, "queries")
        assert found.low is not None


def test_one_query_has_a_mean_and_no_interval() -> None:
    (found,) = estimate(paired(np.array([[0.25]])))
    assert (found.mean, found.low, found.high, found.n) == (0.25, None, None, 1)
    single = one_comparison([0.0], [1.0])
    assert (single.p, single.low, single.verdict) == (1, None, "no difference shown")
    assert single.better == 1


def test_a_comparison_counts_what_became_better_and_worse() -> None:
    found = one_comparison([0.0, 0.5, 1.0, 0.3], [1.0, 0.5, 0.5, 0.3 + 1e-16])
    assert (found.better, found.worse, found.equal, found.n) == (1, 1, 2, 4)
    assert found.difference == pytest.approx(0.125)
    assert (found.before, found.after) == pytest.approx((0.45, 0.575))


def test_equal_scores_are_no_difference() -> None:
    found = one_comparison([0.2] * 12, [0.2] * 12)
    assert (found.difference, found.p, found.p_adjusted) == (0, 1, 1)
    assert (found.low, found.high, found.verdict) == (0, 0, "no difference shown")
    assert found.is_same


def test_a_shift_of_every_query_is_sure() -> None:
    found = one_comparison([0.2] * 12, [0.4] * 12)
    assert found.verdict == "better"
    assert one_comparison([0.2] * 12, [0.4] * 12, up=False).verdict == "worse"
    assert one_comparison([0.2] * 12, [0.4] * 12, up=False).worse == 12


def test_p_values_are_adjusted_over_the_rows() -> None:
    rng = np.random.default_rng(2)
    before, after = rng.random((3, 30)), rng.random((3, 30))
    after[0] = before[0] + 0.2 + rng.random(30) / 10
    found = compare(paired(before), paired(after), np.random.default_rng(0))
    assert found[0].p_adjusted == pytest.approx(3 * found[0].p)
    assert found[0].verdict == "better"
    alone = one_comparison(before[1].tolist(), after[1].tolist())
    assert alone.p == alone.p_adjusted


def test_what_is_not_paired_is_refused() -> None:
    values = np.random.default_rng(0).random((1, 8))
    with pytest.raises(TableError, match="the same queries"):
        compare(paired(values), paired(values[:, :7]), np.random.default_rng(0))


def test_a_ranking_puts_the_best_first_and_keeps_what_may_be_it() -> None:
    scores = simulated(np.random.default_rng(4), 40, [-0.3, 0.0, -0.01])
    best, close, far = rank(scores, np.random.default_rng(0))
    assert {best.name, close.name} == {"c1", "c2"}
    assert far.name == "c0"
    assert best.against_best is None
    assert (best.among_best, close.among_best, far.among_best) == (True, True, False)
    assert far.against_best is not None
    assert far.against_best.verdict == "worse"
    assert far.against_best.before == best.estimate.mean
    assert far.against_best.after == far.estimate.mean


def test_of_equal_configurations_the_first_given_comes_first_and_costs_count_downwards() -> None:
    same = paired(np.tile(np.linspace(0, 1, 9), (3, 1)), names=("b", "a", "c"))
    assert [one.name for one in rank(same, np.random.default_rng(0))] == ["b", "a", "c"]
    assert all(one.among_best for one in rank(same, np.random.default_rng(0)))
    costs = paired(np.array([[900.0] * 9, [100.0] * 9]))
    assert [one.name for one in rank(costs, np.random.default_rng(0), higher_is_better=False)] == ["c1", "c0"]
    assert [one.name for one in rank(costs.subset(["c0"]), np.random.default_rng(0))] == ["c0"]


@pytest.mark.parametrize("shifts", [[0.0] * 8, [0.0] * 3 + [-0.3] * 5])
def test_the_group_holds_the_truly_best_as_often_as_it_says(shifts: list[float]) -> None:
    rng = np.random.default_rng(20240711)
    kept, simulations = 0, 300
    for _ in range(simulations):
        placed = rank(simulated(rng, 12, shifts), rng, resamples=1)
        kept += next(one.among_best for one in placed if one.name == "c0")
    assert kept / simulations > 0.95 - 3 * np.sqrt(0.95 * 0.05 / simulations), kept / simulations


def test_scores_that_cannot_be_used_are_refused() -> None:
    values = np.ones((2, 3))
    with pytest.raises(TableError, match="not a finite number"):
        paired(np.array([[0.5, float("nan")]]))
    with pytest.raises(TableError, match="there are no scores to compare"):
        paired(np.ones((1, 0)))
    with pytest.raises(TableError, match="configuration 'a' occurs twice"):
        paired(values, names=("a", "a"))
    with pytest.raises(TableError, match="query 'x' occurs twice"):
        PairedScores(("a", "b"), ("x", "x", "y"), ("d", "d", "d"), values)
    with pytest.raises(TableError, match="one document for each query"):
        PairedScores(("a", "b"), ("x", "y", "z"), ("d",), values)
    with pytest.raises(ConfigurationError, match="no configuration 'z': use one of c0; c1"):
        paired(values).subset(["z"])
    with pytest.raises(TableError, match="first 'nobody'"):
        paired(values).on(["nobody"])


def test_scores_on_some_queries_keep_their_documents() -> None:
    scores = paired(np.array([[0.1, 0.2, 0.3]]), ["a\0", "a", "b"]).on(["2", "0"])
    assert scores.documents == ("b", "a\0")
    assert scores.values.tolist() == [[0.3, 0.1]]


def test_names_that_differ_by_a_nul_are_different_documents() -> None:
    names = [f"d{number}" for number in range(FEWEST_DOCUMENTS - 1)]
    assert paired(np.ones((1, FEWEST_DOCUMENTS)), [*names, "d0\0"]).units.kind == "documents"


def test_of_costs_less_is_better() -> None:
    assert higher_is_better("span_recall@5")
    assert higher_is_better("recall_within_tokens@1000")
    assert not higher_is_better("tokens_retrieved@5")


def test_equal_means_share_a_place() -> None:
    assert place_labels([0.9, 0.5, 0.5, 0.5 - 1e-12, 0.1]) == ["1", "=2", "=2", "=2", "5"]
    assert place_labels([0.3]) == ["1"]
    assert place_labels([]) == []
    assert shared_places([0.9, 0.9, 0.1]) == [1, 1, 3]
    assert shared_places([1e-9, 0.0]) == [1, 1]
    assert shared_places([1.1e-9, 0.0]) == [1, 2]


def test_equal_means_stay_in_their_order_whatever_their_last_digit_is() -> None:
    assert best_first([0.1, 0.5, 0.5 + 1e-12, 0.9]) == [3, 1, 2, 0]
    assert best_first([300.0, 120.0, 120.0], higher_is_better=False) == [1, 2, 0]


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5)), st.booleans())
def test_it_is_a_stable_sort(means: list[int], higher: bool) -> None:
    expected = sorted(range(len(means)), key=lambda number: -means[number] if higher else means[number])
    assert best_first(means, higher_is_better=higher) == expected
