"""``rag-eval history``: the runs over time."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.console import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption, plain_table, print_json, visible
from rag_eval.formatting import counted, interval, number, signed

if TYPE_CHECKING:
    from rag_eval.benchmark.history import History

# A run's name up to the second, or to the microsecond, is mostly enough to name it.
_ENOUGH = (len("2026-01-31T12-00-00"), len("2026-01-31T12-00-00-000000"))


def history(
    metric: Annotated[
        str | None, typer.Option(help="Such as span_recall@5; without it, what the latest run is ranked by.")
    ] = None,
    configuration: Annotated[
        str | None, typer.Option(help="Follow this configuration; without it, the best of each run.")
    ] = None,
    last: Annotated[int, typer.Option(help="How many runs to show.")] = 20,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Show the runs over time, oldest first, by one metric."""
    from rag_eval.benchmark import history as store
    from rag_eval.benchmark.workspace import Workspace

    found = store.history(Workspace.at(workspace), metric, configuration, last)
    console = Console()
    if as_json:
        trend = [entry.run for entry in found.trend()]
        print_json(console, asdict(found) | {"trend": trend})
        return
    _print_history(console, found, "configuration" if configuration else "best configuration", last)


def _print_history(console: Console, found: "History", what: str, last: int) -> None:
    from rag_eval.benchmark.history import sparkline

    # Narrow headings leave room for names, so that a terminal of 80 columns breaks them between words.
    heading = found.metric.replace("_", "_\n").replace("@", "\n@")
    columns = {"run": False, what.replace(" ", "\n"): False, heading: True, "95 %\ninterval": True, "change": True}
    several = len({entry.data for entry in found.entries}) > 1
    table = plain_table(None, columns | ({"data": True} if several else {}), fixed="run")
    names = [entry.run for entry in found.entries]
    before: dict[str, float] = {}
    for entry in found.entries:
        run = _short_name(entry.run, names)
        failed = f", {entry.failures} failed" if entry.failures else ""
        cells = ["–", "–", ""]
        if entry.estimate is not None:
            mean = entry.estimate.mean
            change = signed(mean - before[entry.data], mean) if entry.data in before else ""
            cells = [number(mean), interval(entry.estimate.low, entry.estimate.high), change]
            before[entry.data] = mean
        name = Text(visible(entry.configuration or "no score") + failed)
        data = [entry.data] if several else []
        table.add_row(Text(run + (" *" if entry.is_baseline else "")), name, *cells, *data)
    if found.entries:
        console.print(table)
    shown = {entry.data: entry for entry in found.entries}
    for letter, entry in shown.items():
        digests = f"corpus {entry.corpus_digest[:12]}…, truth {entry.truth_digest[:12]}…"
        size = f"{counted(entry.documents, 'documents')}, {counted(entry.queries, 'queries')}"
        console.print(f"{letter}: {size} ({digests})", highlight=False, soft_wrap=True)
    if any(entry.is_baseline for entry in found.entries):
        console.print("* the baseline")
    trend = [entry.estimate.mean for entry in found.trend() if entry.estimate is not None]
    if len(trend) > 1:
        bars, letter = sparkline(trend), found.trend()[-1].data
        console.print(
            Text(f"{bars}  {found.metric} on data {letter}: {number(trend[0])} to {number(trend[-1])}"), soft_wrap=True
        )
    if found.earlier:
        more = f"rag-eval history --last {last + found.earlier}"
        console.print(f"{counted(found.earlier, 'earlier runs')}: {more}", highlight=False)
    for problem in found.unreadable:
        console.print(Text(visible(problem), style="yellow"), soft_wrap=True)


def _short_name(run: str, runs: list[str]) -> str:
    """As much of a run's name as none of the others begins with."""
    starts = (run[:length] for length in _ENOUGH)
    return next((start for start in starts if sum(name.startswith(start) for name in runs) == 1), run)
