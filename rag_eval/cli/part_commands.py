"""``rag-eval parts``: list the parts of benchmarks with their settings."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import print_json
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import suggestion

if TYPE_CHECKING:
    from rag_eval.parts import Kind

Rows: TypeAlias = list[dict[str, Any]]


def parts(
    kind: Annotated[
        str | None,
        typer.Argument(help="Kind, such as chunker or metric, or a key of a benchmark file.", show_default="all"),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of benchmark files, for editors.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """List the built-in parts with their settings and defaults."""
    console = Console()
    if schema:
        from rag_eval.config.loading import benchmark_schema

        print_json(console, benchmark_schema())
        return
    kinds = _kinds()
    rows = {name: _rows_of(name, kinds[name]) for name in ([_kind_of(kind, kinds)] if kind else kinds)}
    if as_json:
        print_json(console, rows)
        return
    for name, listed in rows.items():
        if kind is None:
            console.rule(f"[bold]{name}[/]", align="left")
        for row in listed:
            _print_part(console, row)
    console.print("A list in a setting makes a grid: every value in it is tried.", style="dim", highlight=False)


def _kinds() -> "dict[str, Kind | None]":
    """Return the kinds that can be listed, by name; metrics and evaluators have no registry."""
    from rag_eval.config.models import SECTIONS
    from rag_eval.config.truth_sources import TRUTH_SOURCE
    from rag_eval.documents.reading import LOADER
    from rag_eval.retrieval import FUSION, TOKENIZER
    from rag_eval.stores import INDEX

    registered = (LOADER, TRUTH_SOURCE, *(section.kind for section in SECTIONS.values()), INDEX, FUSION, TOKENIZER)
    return {kind.name: kind for kind in registered} | {"metric": None, "evaluator": None}


def _kind_of(written: str, kinds: "dict[str, Kind | None]") -> str:
    """Return the kind with this name, its plural, or the key under which a benchmark file lists such parts."""
    from rag_eval.config.models import SECTIONS

    keys = {key: section.kind.name for key, section in SECTIONS.items()} | {"ground_truth": "truth-source"}
    names = {kind: kind for kind in kinds} | {f"{kind}s": kind for kind in kinds} | {"indexes": "index"} | keys
    if written not in names:
        known = ", ".join(kinds)
        raise ConfigurationError(
            f"there is no kind of part {preview(written)}{suggestion(written, names)}: use one of {known}"
        )
    return names[written]


def _rows_of(name: str, kind: "Kind | None") -> Rows:
    """Return the parts of a kind as plain data."""
    from rag_eval.experiments.composition import EVALUATORS
    from rag_eval.metrics.metric import metric_names, metric_of
    from rag_eval.parts import describe
    from rag_eval.parts.kinds import first_line

    if kind is not None:
        return [part.as_data() for part in describe(kind)]
    if name == "metric":
        metrics = (*metric_names("token-level"), *metric_names("chunk-level"))
        return [{"name": metric, "summary": first_line(metric_of(metric)), "settings": []} for metric in metrics]
    return [
        {"name": evaluator, "summary": first_line(made_by), "settings": _parameters(made_by)}
        for evaluator, made_by in EVALUATORS.items()
    ]


def _parameters(evaluator: Callable[..., object]) -> list[dict[str, str]]:
    return [
        {"name": setting.name, "default": "required" if setting.default is setting.empty else repr(setting.default)}
        for setting in inspect.signature(evaluator).parameters.values()
        if setting.name not in ("name", "client", "retries")
    ]


def _print_part(console: Console, row: dict[str, Any]) -> None:
    """Print a part, and a table of its settings."""
    remote = "" if row.get("remote", "no") == "no" else f"  network: {row['remote']}; cost: {row['cost']}"
    console.print(Text.assemble((row["name"], "bold"), "  ", row["summary"], (remote, "dim")))
    table = Table(box=None, padding=(0, 0, 0, 2), show_header=False)
    for setting in row["settings"]:
        named = Text.assemble(setting["name"], "  ", (setting["default"], "cyan"))
        table.add_row(named, Text(setting.get("description", "")))
    if row["settings"]:
        console.print(table)
    console.print()
