"""List the parts of a benchmark with their settings, the metrics, and the configurations of a benchmark file."""

import inspect
from collections.abc import Iterable
from typing import get_args

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flows.cli.console import visible
from rag_eval.benchmark.component import Component, shown
from rag_eval.benchmark.config import BenchmarkConfig
from rag_eval.benchmark.config_grid import SECTIONS, members_of
from rag_eval.formatting import counted
from rag_eval.metrics.metric import metric_class, metric_names
from rag_eval.types.ids import EvaluationType


def print_components(section: str) -> None:
    """Print the parts of one kind with their settings, defaults and meaning."""
    console = Console()
    for name, component in SECTIONS[section].members.items():
        _print_component(console, name, component)
        for key, field in component.model_fields.items():
            inner = members_of(field.annotation)
            if inner and all(inner != kind.members for kind in SECTIONS.values()):
                for choice, part in inner.items():
                    _print_component(console, f"{name}, {key}: {choice}", part)
    console.print(Text("A list in a setting makes a grid: every value in it is tried.", style="dim"))


def _print_component(console: Console, heading: str, component: type[Component]) -> None:
    console.print(Text.assemble((heading, "bold"), "  ", _first_line(component)))
    rows = [
        (key, "required" if field.is_required() else default_of(field.get_default()), field.description or "")
        for key, field in component.model_fields.items()
        if key != "type"
    ]
    _print_rows(console, rows)
    console.print()


def default_of(value: object) -> str:
    """A default as it is written in a YAML file."""
    return value.type if isinstance(value, Component) else shown(value)


def print_metrics() -> None:
    """Print the metrics of both levels with their formulas."""
    console = Console()
    for level in get_args(EvaluationType):
        console.print(Text(level, style="bold"))
        _print_rows(console, [(name, "", _first_line(metric_class(name))) for name in metric_names(level)])
        console.print()


def _print_rows(console: Console, rows: Iterable[tuple[str, str, str]]) -> None:
    """Settings: name, default, meaning in columns; where the names and defaults are long, the meaning goes below."""
    rows = list(rows)
    if not rows:
        return
    names, defaults = (max(len(row[column]) for row in rows) for column in (0, 1))
    meaning = console.width - names - defaults - 8
    if meaning >= min(36, max(len(row[2]) for row in rows)):
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for name, default, words in rows:
            table.add_row(Text(name), *([Text(default, style="cyan")] if defaults else []), Text(words))
        console.print(Padding(table, (0, 0, 0, 2)))
        return
    for name, default, words in rows:
        console.print(Padding(Text.assemble(name, "  ", (default, "cyan")), (0, 0, 0, 2)))
        console.print(Padding(Text(words, style="dim"), (0, 0, 0, 6)))


def print_configurations(config: BenchmarkConfig) -> None:
    """Print every configuration of a benchmark."""
    console = Console()
    configurations = config.configurations()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("configuration", overflow="fold")
    for number, configuration in enumerate(configurations, start=1):
        table.add_row(str(number), Text(visible(configuration.name)))
    console.print(table)
    ks = ", ".join(map(str, config.k))
    summary = f"{counted(len(configurations), 'configurations')}, {config.evaluation_type}, k = {ks}"
    console.print(summary, highlight=False)


def _first_line(documented: type) -> str:
    # Docstrings mark code with double backquotes, which are noise on a terminal.
    return (inspect.getdoc(documented) or "").splitlines()[0].replace("``", "")
