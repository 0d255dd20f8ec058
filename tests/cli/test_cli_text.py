"""Text that fits and does nothing."""

import io
import logging

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rag_eval.cli.console import Notes, visible


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=60))
def test_nothing_that_is_visible_steers_a_terminal(text: str) -> None:
    assert visible(text).isprintable()
    if text.isprintable():
        assert visible(text) == text


def test_a_warning_that_was_said_is_not_noted_again() -> None:
    written = io.StringIO()
    notes = Notes(Console(file=written, width=200), ["2 files left out: a; b"])
    for message in ("2 files left out: a; b", "3 files left out: a; b; c"):
        notes.handle(logging.makeLogRecord({"name": "rag_eval.x", "levelno": logging.WARNING, "msg": message}))
    assert written.getvalue() == "note: 3 files left out: a; b; c\n"
