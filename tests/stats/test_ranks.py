"""Places: the best first, equal means share one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.stats.comparison import best_first, place_labels, shared_places


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
