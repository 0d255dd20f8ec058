"""Figures as people read them."""

import pytest

from rag_eval.formatting import interval, number, p_value, signed


@pytest.mark.parametrize(
    ("value", "beside", "written"),
    [(0.5, 0, "0.500"), (-0.00001, 0, "0.000"), (1199.4, 0, "1,199"), (8.4, 27, "8"), (-0.2, 27, "0")],
)
def test_a_score_has_decimals_and_a_count_has_none(value: float, beside: float, written: str) -> None:
    assert number(value, beside) == written


@pytest.mark.parametrize(
    ("value", "beside", "written"),
    [(0.0314, 0, "+0.031"), (-0.3, 0, "-0.300"), (-0.0001, 0, "±0.000"), (0.0, 27, "±0"), (-8.0, 27, "-8")],
)
def test_a_difference_has_its_sign_unless_nothing_is_left_of_it(value: float, beside: float, written: str) -> None:
    assert signed(value, beside) == written


def test_both_ends_of_an_interval_are_written_alike() -> None:
    assert interval(0.1, 0.25) == "0.100…0.250"
    assert interval(-11.2, -4.609, with_sign=True) == "-11…-5"
    assert interval(-0.4, 0.3, with_sign=True, beside=120) == "±0…±0"
    assert interval(None, None) == "–"


def test_a_small_p_value_is_not_written_as_if_it_were_larger() -> None:
    assert [p_value(p) for p in (1.0, 0.0123, 0.001, 0.0007, 0.0)] == ["1.000", "0.012", "0.001", "<0.001", "<0.001"]
