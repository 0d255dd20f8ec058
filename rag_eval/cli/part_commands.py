"""``rag-eval parts``: what benchmarks are made of."""

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import print_json
from rag_eval.errors import ConfigurationError, preview
from rag_eval.formatting import suggestion

ROOM = 36
"""How many characters a description needs beside its setting; with less it goes below."""


def parts(
    kind: Annotated[
        str | None, typer.Argument(help="List only this kind, such as chunker or metric, or key of a benchmark file.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of a benchmark file, for editors.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """List the built-in parts with their settings and defaults."""
    if schema:
        from rag_eval.config.loading import benchmark_schema

        print_json(Console(), benchmark_schema())
        return
    kinds = _kinds()
    rows_by_kind = {name: _rows_of(name, kinds[name]) for name in ([_kind_of(kind, kinds)] if kind else kinds)}
    if as_json:
        print_json(Console(), rows_by_kind)
        return
    console = Console()
    for name, rows in rows_by_kind.items():
        if kind is None:
            console.rule(f"[bold]{name}[/]", align="left")
        for row in rows:
            _print_part(console, row)
    console.print("A list in a setting makes a grid: every value in it is tried.", style="dim", highlight=False)


def _kinds() -> dict[str, Any]:
    """Return the kinds that can be listed, by name; metrics and evaluators have no registry."""
    from rag_eval.config.models import SECTIONS
    from rag_eval.config.truth_sources import TRUTH_SOURCE
    from rag_eval.documents.reading import LOADER
    from rag_eval.retrieval import FUSION, TOKENIZER
    from rag_eval.stores import INDEX

    registered = (LOADER, TRUTH_SOURCE, *(section.kind for section in SECTIONS.values()), INDEX, FUSION, TOKENIZER)
    return {kind.name: kind for kind in registered} | dict.fromkeys(("metric", "evaluator"))


def _kind_of(written: str, kinds: Iterable[str]) -> str:
    """Return the kind named by itself, by its plural, or by the key under which a benchmark file has such parts."""
    from rag_eval.config.models import SECTIONS

    keys = {key: section.kind.name for key, section in SECTIONS.items()} | {"ground_truth": "truth-source"}
    names = {kind: kind for kind in kinds} | {f"{kind}s": kind for kind in kinds} | {"indexes": "index"} | keys
    if written not in names:
        known = ", ".join(kinds)
        raise ConfigurationError(
            f"there is no kind of part {preview(written)}{suggestion(written, names)}: use one of {known}"
        )
    return names[written]


def _rows_of(kind: str, registered: Any) -> list[dict[str, Any]]:
    """Return the parts of a kind as plain data."""
    from rag_eval.experiments.composition import EVALUATORS
    from rag_eval.metrics.metric import metric_names, metric_of
    from rag_eval.parts import describe
    from rag_eval.parts.kinds import first_line

    if kind == "metric":
        known = (*metric_names("token-level"), *metric_names("chunk-level"))
        return [{"name": name, "summary": first_line(metric_of(name)), "settings": []} for name in known]
    if kind == "evaluator":
        return [
            {"name": name, "summary": first_line(evaluator), "settings": _parameters(evaluator)}
            for name, evaluator in EVALUATORS.items()
        ]
    return [part.as_data() for part in describe(registered)]


def _parameters(evaluator: Callable[..., object]) -> list[dict[str, str]]:
    return [
        {"name": setting.name, "default": "required" if setting.default is setting.empty else repr(setting.default)}
        for setting in inspect.signature(evaluator).parameters.values()
        if setting.name not in ("name", "client", "retries")
    ]


def _print_part(console: Console, row: dict[str, Any]) -> None:
    """Print a part and its settings with default and meaning, in columns where there is room."""
    remote = "" if row.get("remote", "no") == "no" else f"  network: {row['remote']}; cost: {row['cost']}"
    console.print(Text.assemble((row["name"], "bold"), "  ", row["summary"], (remote, "dim")))
    settings = [(setting["name"], setting["default"], setting.get("description", "")) for setting in row["settings"]]
    if settings:
        taken = sum(max(len(setting[column]) for setting in settings) for column in (0, 1)) + 8
        if console.width - taken >= min(ROOM, max(len(setting[2]) for setting in settings)):
            table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
            for name, default, words in settings:
                table.add_row(Text(name), Text(default, style="cyan"), Text(words))
            console.print(Padding(table, (0, 0, 0, 2)))
        else:
            for name, default, words in settings:
                console.print(Padding(Text.assemble(name, "  ", (default, "cyan")), (0, 0, 0, 2)))
                console.print(Padding(Text(words, style="dim"), (0, 0, 0, 6)))
    console.print()
