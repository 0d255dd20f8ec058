"""Tables and JSON for a terminal."""

import json
from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table


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
