"""What a benchmark found, for a terminal."""

from collections.abc import Container, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.text import visible
from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.references import Effort
from rag_eval.reports.answer import answer
from rag_eval.stats.comparison import Placed
from rag_eval.stats.ranks import place_labels
from rag_eval.wording import counted, number

NARROWEST_NAME = 20

MAY_BE_BEST = "≈"


def print_outcome(console: Console, outcome: BenchmarkOutcome, placed: Sequence[Placed] | None) -> None:
    """Print the ranked table and what it says, as far as it is known how sure that is."""
    if outcome.configurations:
        queries = counted(outcome.answerable, "queries")
        console.print(
            f"{counted(outcome.documents, 'documents')}, {queries}; ranked by {outcome.ranking_metric}",
            highlight=False,
        )
        rivals = {one.name for one in placed or [] if one.among_best and one.against_best is not None}
        console.print(ranking(outcome, console.width, rivals))
        if rivals:
            words = "not distinguishable from the first on these questions, by a paired test"
            console.print(f"{MAY_BE_BEST} {words}", highlight=False)
        if placed:
            said = answer(outcome, placed)
            console.print(Text.assemble((visible(said.headline), "bold"), " ", visible(" ".join(said.sentences))))
    for name, failure in outcome.failures.items():
        text = Text(f"failed: {visible(name)}: {visible(failure.reason)}", style="red")
        console.print(text, soft_wrap=not console.is_terminal)
    if outcome.unanswerable:
        console.print(f"Declared unanswerable, outside the averages: {outcome.unanswerable}.", highlight=False)


def print_work(console: Console, outcome: BenchmarkOutcome) -> None:
    """Print what was computed and what reused."""
    computed, reused = outcome.work()
    if not computed:
        console.print(f"Nothing computed: all {counted(reused, 'stages')} reused.", highlight=False)
        return
    console.print(work_table(outcome))


def ranking(outcome: BenchmarkOutcome, width: int, rivals: Container[str] = ()) -> Table:
    """The configurations, best first, by the metrics at the k of the ranking; equal averages share a place.

    Those among ``rivals`` are marked: they may be as good as the first.
    """
    by = outcome.ranking_metric
    cut = by.partition("@")[2]
    columns = [name for name in outcome.configurations[0].metrics if name.partition("@")[2] in (cut, "")]
    ranked = outcome.ranked()
    most = {column: max(one.metrics[column] for one in ranked) for column in columns}
    rows = [
        (str(one.chunks.count), *(number(one.metrics[column], most[column]) for column in columns)) for one in ranked
    ]
    headings = ["chunks", *map(_heading, columns)]
    widths = [max(map(len, (*heading.split("\n"), *cells))) for heading, *cells in zip(headings, *rows, strict=True)]
    labels = place_labels([one.metrics[by] for one in ranked])
    longest = max(map(len, labels))
    marks = [MAY_BE_BEST if one.name in rivals else "" for one in ranked]
    places = [f"{label:>{longest}}{mark}" for label, mark in zip(labels, marks, strict=True)]
    room = max(width - sum(widths) - len(widths) - max(map(len, places)) - 1, NARROWEST_NAME)
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(f"{'#':>{longest}}")
    # Names are wrapped, not cut: what is left out may be all that tells two of them apart.
    table.add_column("configuration", overflow="fold", max_width=room)
    for heading, column in zip(headings, ["", *columns], strict=True):
        table.add_column(heading, justify="right", no_wrap=True, style="bold" if column == by else None)
    for place, one, row in zip(places, ranked, rows, strict=True):
        table.add_row(place, Text(visible(one.name)), *row)
    return table


def work_table(outcome: BenchmarkOutcome) -> Table:
    """For each stage how many configurations had it computed or reused, and how much of it had to be done."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("stage")
    table.add_column("computed", justify="right")
    table.add_column("reused", justify="right")
    table.add_column("new of all")
    for stage, (computed, reused, efforts) in outcome.work_by_stage().items():
        table.add_row(stage, str(computed) if computed else "–", str(reused) if reused else "–", _effort(efforts))
    return table


def _heading(column: str) -> str:
    # The cut goes below the name, so that the table fits a narrow terminal.
    short = column.removeprefix("span_").removeprefix("chunk_").removesuffix("_retrieved").replace("_retrieved@", "@")
    return short.replace("@", "\n@")


def _effort(efforts: list[Effort]) -> str:
    if not efforts:
        return ""
    fresh, total = sum(effort.fresh for effort in efforts), sum(effort.total for effort in efforts)
    return f"{fresh:,} of {counted(total, efforts[0].unit)}"
