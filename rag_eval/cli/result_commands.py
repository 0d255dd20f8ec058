"""``rag-eval show``, ``report``, ``export`` and ``history`` for finished runs; ``cache`` for a whole workspace."""

import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import NO_BROWSER, print_json, print_table, say, visible
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.formatting import counted, interval, number, signed

if TYPE_CHECKING:
    from rag_eval.results.history import History

# The name of a run is usually unique up to the second, or else to the microsecond.
NAME_LENGTHS = (len("2026-01-31T12-00-00"), len("2026-01-31T12-00-00-000000"))


def show(
    run: options.RunArgument = "latest",
    objective: Annotated[
        str | None,
        typer.Option(help="Metric to rank by, such as span_recall@5.", show_default="the benchmark's objective"),
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Show the ranking and the verdict of a run."""
    from rag_eval.cli.ranking_table import print_result
    from rag_eval.results.runs import read_run

    print_result(read_run(workspace, run), workspace, as_json=as_json, objective=objective)


def report(
    run: options.RunArgument = "latest",
    against: Annotated[str | None, typer.Option(metavar="RUN", help="Earlier run to compare with.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write, .html or .md.", show_default="the run's folder")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    allow_different: options.AllowDifferentOption = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Write the report of a run: verdict, ranking, charts, and every question with its text."""
    from rag_eval.reports.report import build_report
    from rag_eval.reports.write import is_markdown, page_of, write_report
    from rag_eval.results.runs import read_run

    if output is not None:
        is_markdown(output)  # raise an error about the name before anything is computed
    outcome = read_run(workspace, run)
    before = read_run(workspace, against, outcome) if against is not None else None
    built = build_report(workspace, outcome, against=before, allow_different=allow_different)
    path = output.absolute() if output is not None else page_of(workspace, outcome, before)
    try:
        write_report(workspace, built, path)
    except ArtifactError as error:
        if output is not None:
            raise
        raise ArtifactError(f"{error}; --output FILE writes the report elsewhere") from None
    console = Console()
    console.print(Text(visible(str(built.words))))
    for sentence in built.since:
        console.print(Text(visible(sentence)))
    say(console, f"Report: {path}")
    if open_ and not webbrowser.open(path.as_uri()):
        say(console, NO_BROWSER, "yellow")


def export(
    run: options.RunArgument = "latest",
    format_: Annotated[str, typer.Option("--format", help="File format: trec or jsonl.")] = "jsonl",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder to write to.", show_default="export/ in the run's folder"),
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Export a run for other tools: TREC run and qrels files, or questions with the passages found."""
    from rag_eval.reports.exports import export_run
    from rag_eval.results.runs import read_run

    console = Console()
    outcome = read_run(workspace, run)
    folder = (output or workspace.runs / outcome.run / "export").absolute()
    exported = export_run(workspace, outcome, format_, folder)
    for note in exported.notes:
        say(console, note)
    files = exported.files
    say(console, f"{counted(len(files), 'files')} in {folder}" if len(files) > 1 else str(files[0]))


def history(
    metric: Annotated[
        str | None,
        typer.Option(help="Metric, such as span_recall@5.", show_default="the latest run's ranking metric"),
    ] = None,
    configuration: Annotated[
        str | None, typer.Option(help="Configuration to follow.", show_default="the best of each run")
    ] = None,
    last: Annotated[int, typer.Option(help="Number of runs to show.")] = 20,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Show one metric over time, oldest run first."""
    from rag_eval.results import history as store

    runs = store.history(workspace, metric, configuration, last)
    console = Console()
    if as_json:
        print_json(console, asdict(runs) | {"trend": [entry.run for entry in runs.trend()]})
        return
    differing = _differing_marks(runs)
    _print_entries(console, runs, "configuration" if configuration else "best configuration", differing)
    for letter, entry in {entry.data: entry for entry in runs.entries}.items():
        digests = f"corpus {entry.corpus_digest[:12]}…, truth {entry.truth_digest[:12]}…"
        size = f"{counted(entry.documents, 'documents')}, {counted(entry.queries, 'questions')} with an answer"
        say(console, f"{letter}: {size} ({digests})")
    if "grid" in differing:
        say(console, "Runs with other grids have other configurations: follow one with --configuration")
    if any(entry.is_baseline for entry in runs.entries):
        console.print("* the baseline")
    trend = runs.trend()
    means = [entry.estimate.mean for entry in trend if entry.estimate is not None]
    if len(means) > 1:
        where = f"data {trend[-1].data}" + (f", grid {trend[-1].grid}" if "grid" in differing else "")
        line = f"{runs.metric} on {where}: {number(means[0])} to {number(means[-1])}"
        say(console, f"{store.sparkline(means)}  {line}")
    if runs.earlier:
        say(console, f"{counted(runs.earlier, 'earlier runs')}: rag-eval history --last {last + runs.earlier}")
    for problem in runs.unreadable:
        say(console, problem, "yellow")


def _differing_marks(runs: "History") -> list[str]:
    """Return which of benchmark, data and grid differ between the runs; the grid only if a benchmark has several."""
    marks = {name: {getattr(entry, name) for entry in runs.entries} for name in ("benchmark", "data", "grid")}
    if len({(entry.benchmark, entry.grid) for entry in runs.entries}) == len(marks["benchmark"]) > 1:
        del marks["grid"]
    return [name for name, values in marks.items() if len(values) > 1]


def _print_entries(console: Console, runs: "History", what: str, differing: Sequence[str]) -> None:
    # Narrow headings leave room for names on a terminal of 80 columns.
    heading = runs.metric.replace("_", "_\n").replace("@", "\n@")
    columns = {"run": False, what.replace(" ", "\n"): False, heading: True, "95 %\ninterval": True, "change": True}
    columns |= {"bench-\nmark" if name == "benchmark" else name: name != "benchmark" for name in differing}
    names = [entry.run for entry in runs.entries]
    rows: list[list[str]] = []
    before: dict[object, float] = {}
    for entry in runs.entries:
        cells = ["–", "–", ""]
        if entry.estimate is not None:
            mean = entry.estimate.mean
            change = signed(mean - before[entry.comparable], mean) if entry.comparable in before else ""
            cells = [number(mean), interval(entry.estimate.low, entry.estimate.high), change]
            before[entry.comparable] = mean
        name = entry.configuration or f"no score by {runs.metric}"
        name += f" (by {entry.metric})" if entry.metric != runs.metric else ""
        name += f", {entry.failures} failed" if entry.failures else ""
        marks = [str(getattr(entry, mark) or "–") for mark in differing]
        rows.append([_short_name(entry.run, names) + " *" * entry.is_baseline, name, *cells, *marks])
    if rows:
        print_table(console, columns, rows, fixed="run")


def _short_name(run: str, runs: list[str]) -> str:
    """Return a prefix of a run's name that no other run has."""
    starts = (run[:length] for length in NAME_LENGTHS)
    return next((start for start in starts if sum(name.startswith(start) for name in runs) == 1), run)


def _days(text: str) -> float:
    """Parse a number of days. If the value is missing, the next option takes its place."""
    with suppress(ValueError):
        if (days := float(text)) >= 0:
            return days
    raise typer.BadParameter(f"{text!r} is not a number of days, for example --prune 30")


def cache(
    prune: Annotated[
        float | None,
        typer.Option(
            parser=_days, metavar="DAYS", help="Delete runs and cached results unused for this many days (0: all)."
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete everything except the summaries of runs.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what --prune would delete.")] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Show the size of a workspace, and free space in it."""
    from rag_eval.results import housekeeping

    if not workspace.root.is_dir():
        raise ConfigurationError(
            f"there is no workspace {workspace.address!r}: run a benchmark first, or check the path"
        )
    if clear and prune is not None:
        raise ConfigurationError("--prune and --clear exclude each other: give one of them")
    if dry_run and prune is None:
        raise ConfigurationError("--dry-run needs --prune, for example --prune 30 --dry-run")
    console = Console()
    if workspace.remote is not None:
        say(console, f"{workspace.root}: the local copy of {workspace.remote}, where nothing is deleted")
    removed = [housekeeping.clear(workspace)] if clear else []
    if prune is not None:
        removed = housekeeping.prune(workspace, prune, dry_run=dry_run)
    for holding in removed:
        would = "would remove " if dry_run else ""
        say(console, f"{would}{holding.kind}: {counted(holding.files, 'files')}, {decimal(holding.size)}")
    if (clear or prune is not None) and not removed:
        say(console, "nothing to remove")
    rows = [(entry.kind, f"{entry.files:,}", decimal(entry.size)) for entry in housekeeping.holdings(workspace)]
    print_table(console, {"content": False, "files": True, "size": True}, rows)
