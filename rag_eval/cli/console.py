"""How text, tables, JSON and log messages reach the terminal."""

import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.formatting import visible as visible

NAME_CELLS = 34
"""Names keep so many cells of a line, whatever else a terminal has room for."""

NO_BROWSER = "No browser was found on this machine: open it in one yourself."


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line verbatim: control characters escaped, no markup, no emoji codes, no wrapping."""
    console.print(Text(visible(text), style=style or ""), soft_wrap=True)


def cut_in_the_middle(text: str, cells: int) -> str:
    """Shorten a text to this many cells: its beginning and its end around an ellipsis."""
    return _cut(text, cells, (cells - 1) // 2)


@lru_cache(maxsize=16)
def told_apart(texts: tuple[str, ...], cells: int) -> dict[str, str]:
    """Shorten each text to this many cells, all at one place: the nearest to the middle where most stay distinct."""
    middle = (cells - 1) // 2
    shown: dict[str, str] = {}
    for tail in sorted(range(max(cells, 1)), key=lambda tail: abs(tail - middle)):
        cut = {text: _cut(text, cells, tail) for text in texts}
        if not shown or len(set(cut.values())) > len(set(shown.values())):
            shown = cut
        if len(set(shown.values())) == len(shown):
            break
    return shown


def _cut(text: str, cells: int, tail: int) -> str:
    """Fit a text into so many cells: its beginning, an ellipsis, and at most ``tail`` cells of its end."""
    if cell_len(text) <= cells:
        return text
    if cells < 3:
        return set_cell_size(text, max(cells, 0))
    start = len(text)
    while cell_len(text[start - 1 :]) <= tail:
        start -= 1
    while start < len(text) and text[start - 1 : start + 1].isalnum():  # not in the middle of a word
        start += 1
    head = set_cell_size(text, cells - 1 - cell_len(text[start:]))
    end = len(head)
    while end > len(head) // 2 and text[end - 1 : end + 1].isalnum():
        end -= 1
    return f"{head[:end] if end > len(head) // 2 else head}…{text[start:]}"


def beside_names(
    widths: Mapping[str, int], needed: Collection[str], names: Iterable[str], width: int
) -> tuple[list[str], int]:
    """Return the titles of the columns that a line has room for beside names, and the cells left to the names.

    Those ``needed`` stay; others are taken from left to right as long as the names keep their room.
    """
    least = min(NAME_CELLS, max(map(len, names)))
    room = width - sum(widths[title] for title in needed)
    taken = []
    for title, cells in widths.items():
        if title in needed:
            taken.append(title)
        elif room - cells >= least:
            taken.append(title)
            room -= cells
    return taken, max(room, least)


def print_table(
    console: Console,
    columns: Mapping[str, bool],
    rows: Iterable[Iterable[Any]],
    title: str | None = None,
    caption: str | None = None,
    fixed: str = "",
) -> None:
    """Print texts verbatim; ``columns`` maps headings to whether they hold numbers, ``fixed`` is one not to wrap."""
    named = Text(visible(title)) if title else None
    table = Table(box=box.SIMPLE_HEAD, title=named, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)
    table.caption, table.caption_justify = caption, "left"
    for heading, is_number in columns.items():
        wrapped = not is_number and heading != fixed
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold", no_wrap=not wrapped)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(visible(cell)) for cell in row))
    console.print(table)


def print_json(console: Console, data: object) -> None:
    """Print data as JSON, without markup or wrapping."""
    console.file.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


OURS = ("rag_eval", "prefect.task_runs", "prefect.flow_runs")


class Notes(logging.Handler):
    """Prints our warnings as notes, above whatever live display the console shows.

    A failure comes with its traceback and is said in a sentence elsewhere.
    """

    def __init__(self, console: Console, said: Collection[str]) -> None:
        super().__init__(logging.WARNING)
        self._console, self._said = console, said
        # Prefect puts its own handler in the place of one without a formatter.
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        is_ours = record.name.startswith(OURS) and record.levelno == logging.WARNING and not record.exc_info
        if is_ours and record.getMessage() not in self._said:
            say(self._console, f"note: {record.getMessage()}", "yellow")


def print_notes(console: Console, said: Collection[str] = ()) -> None:
    """Print warnings that concern the user as notes, and nothing else; call it before Prefect is imported.

    Those that were ``said`` are not said again. With ``--debug`` Prefect logs as it is configured.
    """
    if not os.environ.get("RAG_EVAL_DEBUG"):
        logging.getLogger().addHandler(Notes(console, said))
        logging.raiseExceptions = False  # handlers that fail would print why
