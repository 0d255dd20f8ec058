"""Text that fits and does nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from flows.cli.text import counted, cut_in_the_middle, visible


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=60), st.integers(0, 40))
def test_a_cut_text_fits_and_keeps_both_ends(text: str, cells: int) -> None:
    cut = cut_in_the_middle(visible(text), cells)
    assert cell_len(cut) <= cells
    if cell_len(visible(text)) <= cells:
        assert cut == visible(text)
    elif cells >= 7:
        assert "…" in cut


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=60))
def test_nothing_that_is_visible_steers_a_terminal(text: str) -> None:
    assert visible(text).isprintable()
    if text.isprintable():
        assert visible(text) == text


@pytest.mark.parametrize(
    ("number", "plural", "words"),
    [
        (1, "queries", "1 query"),
        (0, "queries", "0 queries"),
        (1, "documents", "1 document"),
        (1200, "texts", "1,200 texts"),
    ],
)
def test_one_is_singular(number: int, plural: str, words: str) -> None:
    assert counted(number, plural) == words
