"""Text that fits and does nothing."""

import io
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rag_eval.cli.console import Notes, visible
from rag_eval.formatting import counted


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
