"""``rag-eval compare``: two runs, or two configurations."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli import options
from flows.cli.console import plain_table, print_json, say, visible
from rag_eval.formatting import basis, counted, interval, number, p_value, signed

if TYPE_CHECKING:
    from rag_eval.benchmark.compare import ComparedConfigurations, QueryChange, RunComparison

STYLES = {"better": "green", "worse": "red", "no difference shown": ""}
_TEXT_CELLS = 60


def compare(
    before: Annotated[str, typer.Argument(help="latest, baseline, a run's name, or the start of it.")],
    after: Annotated[str, typer.Argument(help="The run to compare with it, named the same way.")],
    configurations: Annotated[
        list[str] | None,
        typer.Option("--configuration", help="Compare this one only, or NAME=NAME for two; may be repeated."),
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Such as span_recall@5; may be repeated.")
    ] = None,
    queries: Annotated[
        int, typer.Option(min=0, help="How many queries to show that got better, and that got worse.")
    ] = 5,
    allow_different: options.AllowDifferentOption = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Compare two runs on the same queries: what got better, what got worse, and what is inconclusive."""
    from rag_eval.benchmark.compare import compare_runs, name_pairs
    from rag_eval.benchmark.runs import read_run
    from rag_eval.benchmark.workspace import Workspace

    kept = Workspace.at(workspace)
    old, new = read_run(kept, before), read_run(kept, after)
    pairs = name_pairs(old, new, configurations) if configurations else None
    found = compare_runs(kept, old, new, pairs=pairs, metrics=metrics, allow_different=allow_different)
    console = Console()
    if as_json:
        print_json(console, _as_data(found, queries))
        return
    _print_comparison(console, found)
    rows = found.by_metric(found.metrics[0])
    for row in (rows if configurations else rows[:1]) if queries else []:  # those named, or the one that is best now
        _print_queries(console, row, found.query_changes(row), queries)


def _as_data(found: "RunComparison", queries: int) -> dict[str, object]:
    rows = []
    for row in found.rows:
        worse, better = _worse_and_better(found.query_changes(row), queries)
        shown = {"worse": [asdict(one) for one in worse], "better": [asdict(one) for one in better]}
        rows.append(asdict(row) | {"queries": shown})
    return {
        "before": found.before.run,
        "after": found.after.run,
        "differences": found.differences,
        "queries": found.queries,
        "left_out": found.left_out,
        "comparisons": rows,
    }


def _print_comparison(console: Console, found: "RunComparison") -> None:
    from rag_eval.reports.against import left_out_sentences

    first = found.rows[0].comparison
    console.print(Text(f"{found.before.run} → {found.after.run}"), soft_wrap=True)
    console.print(f"{basis(found.queries, first.units, first.unit)}; change is after minus before", highlight=False)
    for difference in found.differences:
        console.print(Text(f"Warning: {visible(difference)}", style="yellow"), soft_wrap=True)
    rows = [row for metric in found.metrics for row in found.by_metric(metric)]
    changed = [row for row in rows if not row.comparison.is_same]
    main = [row for row in changed if row.metric == found.metrics[0]]
    others = [row for row in changed if row.metric != found.metrics[0]]
    quiet = [row for row in others if row.comparison.verdict == "no difference shown"]
    shown = main + [row for row in others if row not in quiet]
    for metric in dict.fromkeys(row.metric for row in shown):
        console.print(_table(metric, [row for row in shown if row.metric == metric]))
    if any(row.comparison.verdict == "no difference shown" for row in shown):
        console.print("inconclusive: the difference may be due to chance.", highlight=False)
    if quiet:
        by = ", ".join(dict.fromkeys(row.metric for row in quiet))
        console.print(
            f"Inconclusive and not listed: {counted(len(quiet), 'further comparisons')}, by {by}.", highlight=False
        )
    unchanged = len(found.rows) - len(changed)
    if unchanged:
        console.print(
            f"Every query scores as before in {unchanged} of {counted(len(found.rows), 'comparisons')}.",
            highlight=False,
        )
    for sentence in left_out_sentences(found):
        say(console, sentence)


def _table(metric: str, rows: list["ComparedConfigurations"]) -> Table:
    columns = {"configuration": False, "before": True, "after": True, "change": True, "95 % interval": True, "p": True}
    table = plain_table(metric, columns | {"verdict": False}, fixed="verdict")
    for row in rows:
        one = row.comparison
        beside = max(one.before, one.after)
        table.add_row(
            Text(visible(row.name)),
            number(one.before, beside),
            number(one.after, beside),
            signed(one.difference, beside),
            interval(one.low, one.high, with_sign=True, beside=beside),
            p_value(one.p_adjusted),
            Text("inconclusive" if one.verdict == "no difference shown" else one.verdict, style=STYLES[one.verdict]),
        )
    return table


def _worse_and_better(changes: list["QueryChange"], most: int) -> tuple[list["QueryChange"], list["QueryChange"]]:
    worse = [change for change in changes if change.gain < 0][:most]
    better = [change for change in reversed(changes) if change.gain > 0][:most]
    return worse, better


def _print_queries(console: Console, row: "ComparedConfigurations", changes: list["QueryChange"], most: int) -> None:
    one = row.comparison
    title = f"{row.name}, {row.metric}: {one.better} better, {one.worse} worse, {one.equal} equal"
    if not changes:
        return
    console.print(Text(visible(title), style="italic"), soft_wrap=True)
    table = plain_table(None, {"": False, "before": True, "after": True, "query": False, "document": False})
    for label, kind in zip(("worse", "better"), _worse_and_better(changes, most), strict=True):
        for change in kind:
            text = visible(change.text if len(change.text) <= _TEXT_CELLS else change.text[: _TEXT_CELLS - 1] + "…")
            beside = max(change.before, change.after)
            values = number(change.before, beside), number(change.after, beside)
            table.add_row(Text(label, style=STYLES[label]), *values, Text(text), Text(visible(change.document)))
    console.print(table)
