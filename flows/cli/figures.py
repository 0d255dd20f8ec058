"""Figures, tables and JSON for a terminal."""

import json
from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from flows.cli.text import counted


def number(value: float) -> str:
    """A score with three decimals, or a count of tokens without."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{value:+.3f}" if abs(value) < 10 else f"{value:+.0f}"


def interval(low: float | None, high: float | None, *, with_sign: bool = False) -> str:
    """Both ends, or a dash when there is no interval."""
    if low is None or high is None:
        return "–"
    write = signed if with_sign else number
    return f"{write(low)}…{write(high)}"


def p_value(p: float) -> str:
    """A p-value with as many digits as matter."""
    return f"{p:.3f}" if p >= 0.0005 else "<0.001"


def basis(queries: int, units: int, unit: str) -> str:
    """What a test rests on."""
    if unit == "documents":
        return f"{counted(queries, 'queries')} in {counted(units, 'documents')}"
    return f"{counted(queries, 'queries')} in few documents, so that it holds for questions about these only"


def plain_table(title: str | None, columns: Mapping[str, bool], fixed: str = "") -> Table:
    """An empty table; ``columns`` says of each heading whether it is one of numbers, ``fixed`` is not wrapped."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1, 0, 0), pad_edge=False)
    for heading, is_number in columns.items():
        wrapped = not is_number and heading != fixed
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold", no_wrap=not wrapped)
    return table


def print_json(console: Console, data: object) -> None:
    """Print data as JSON, untouched by markup and wrapping."""
    console.file.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
