"""Print text, tables, JSON and log messages on the terminal."""

import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.formatting import visible as visible

NO_BROWSER = "No browser was found on this machine: open the address yourself."
Cell: TypeAlias = str | Text


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line verbatim: control characters escaped, no markup, no emoji codes, no wrapping."""
    console.print(Text(visible(text), style=style or ""), soft_wrap=True)


def print_table(
    console: Console,
    columns: Mapping[str, bool],
    rows: Iterable[Iterable[Cell]],
    title: str | None = None,
    caption: str | None = None,
    fixed: str = "",
) -> None:
    """Print texts verbatim.

    ``columns`` maps each heading to whether its values are numbers; ``fixed`` is a heading that never wraps.
    """
    heading = Text(visible(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)
    table.caption, table.caption_justify = caption, "left"
    for name, is_number in columns.items():
        no_wrap = is_number or name == fixed
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    console.print(table)


def print_json(console: Console, data: object) -> None:
    """Print data as JSON, without markup or wrapping."""
    console.file.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


OURS = ("rag_eval", "prefect.task_runs", "prefect.flow_runs")


class Notes(logging.Handler):
    """Print our warnings as notes above a live display. Failures are reported elsewhere, as errors."""

    def __init__(self, console: Console, said: Collection[str]) -> None:
        super().__init__(logging.WARNING)
        self._console, self._said = console, said
        self.setFormatter(logging.Formatter())  # Prefect replaces handlers without one

    def emit(self, record: logging.LogRecord) -> None:
        """Print one warning, unless it has been printed before."""
        is_ours = record.name.startswith(OURS) and record.levelno == logging.WARNING and not record.exc_info
        if is_ours and record.getMessage() not in self._said:
            say(self._console, f"note: {record.getMessage()}", "yellow")


def print_notes(console: Console, said: Collection[str] = ()) -> None:
    """Print our warnings as notes, except those in ``said``, and hide all other log messages.

    Call this before Prefect is imported. With ``--debug``, Prefect logs as configured.
    """
    if not os.environ.get("RAG_EVAL_DEBUG"):
        logging.getLogger().addHandler(Notes(console, said))
        logging.raiseExceptions = False  # a handler that fails would print a traceback
