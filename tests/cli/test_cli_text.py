"""Text that fits and does nothing."""

import io
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rag_eval.cli.console import Notes, cut_in_the_middle, told_apart, visible
from rag_eval.formatting import counted


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
@given(st.lists(st.text("ab界", max_size=20), max_size=6), st.integers(0, 20))
def test_of_texts_that_are_cut_together_as_many_differ_as_if_each_were_cut_in_the_middle(
    texts: list[str], cells: int
) -> None:
    shown = told_apart(tuple(texts), cells)
    assert all(cell_len(shown[text]) <= cells for text in texts)
    assert len(set(shown.values())) >= len({cut_in_the_middle(text, cells) for text in texts})


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


def test_a_warning_that_was_said_is_not_noted_again() -> None:
    written = io.StringIO()
    notes = Notes(Console(file=written, width=200), ["2 files left out: a; b"])
    for message in ("2 files left out: a; b", "3 files left out: a; b; c"):
        notes.handle(logging.makeLogRecord({"name": "rag_eval.x", "levelno": logging.WARNING, "msg": message}))
    assert written.getvalue() == "note: 3 files left out: a; b; c\n"
