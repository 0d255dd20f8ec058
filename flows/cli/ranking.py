"""The ranked table at the end of a benchmark."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rag_eval.pipeline.outcome import BenchmarkOutcome


def print_ranking(console: Console, outcome: BenchmarkOutcome, k: int) -> None:
    """Print the configurations, best span recall first, and what was computed for them."""
    by = f"span_recall@{k}"
    title = f"{outcome.documents} documents, {outcome.answerable} queries"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("configuration", overflow="fold")
    table.add_column("chunks", justify="right")
    columns = list(outcome.configurations[0].metrics) if outcome.configurations else []
    for column in columns:
        # The cut goes below the name, so that the table fits a narrow terminal.
        table.add_column(column.replace("@", "\n@"), justify="right", style="bold" if column == by else None)
    for place, one in enumerate(outcome.ranked(by), start=1):
        values = [f"{one.metrics[column]:.3f}" for column in columns]
        table.add_row(str(place), escape(one.name), str(one.chunks), *values)
    console.print(table)
    if outcome.unanswerable:
        console.print(f"{outcome.unanswerable} unanswerable queries stand apart, outside the averages.")
    computed, reused = outcome.work()
    if computed:
        console.print(f"{computed} stages computed, {reused} reused.")
    else:
        console.print(f"Nothing computed: all {reused} stages reused.")
