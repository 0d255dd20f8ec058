"""What a benchmark found, for a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.pipeline.outcome import BenchmarkOutcome
from rag_eval.pipeline.references import Effort


def print_outcome(console: Console, outcome: BenchmarkOutcome) -> None:
    """Print the ranked table, then what was computed and what reused."""
    if outcome.configurations:
        console.print(ranking(outcome))
    for name, reason in outcome.failures.items():
        console.print(Text(f"failed: {name}: {reason}", style="red"), soft_wrap=True)
    if outcome.unanswerable:
        console.print(f"Declared unanswerable, outside the averages: {outcome.unanswerable}.", highlight=False)
    others = [str(k) for k in outcome.config.k if f"@{k}" not in outcome.ranking_metric]
    if others:
        console.print(f"The averages at k = {', '.join(others)} too: rag-eval show --json", highlight=False)
    computed, reused = outcome.work()
    if not computed:
        console.print(f"Nothing computed: all {reused} stages reused.")
        return
    console.print(work_table(outcome))


def ranking(outcome: BenchmarkOutcome) -> Table:
    """The configurations, best first, by the metrics at the k of the ranking."""
    by = outcome.ranking_metric
    cut = by.partition("@")[2]
    columns = [name for name in outcome.configurations[0].metrics if name.partition("@")[2] in (cut, "")]
    title = f"{outcome.documents} documents, {outcome.answerable} queries; ranked by {by}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=0, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("configuration", overflow="fold")
    table.add_column("chunks", justify="right")
    for column in columns:
        # The cut goes below the name, so that the table fits a narrow terminal.
        heading = (
            column.removeprefix("span_").removeprefix("chunk_").removesuffix("_retrieved").replace("_retrieved@", "@")
        )
        heading = heading.replace("@", "\n@")
        table.add_column(heading, justify="right", style="bold" if column == by else None)
    for place, one in enumerate(outcome.ranked(), start=1):
        values = [_number(one.metrics[column]) for column in columns]
        table.add_row(str(place), Text(one.name), str(one.chunks.count), *values)
    return table


def work_table(outcome: BenchmarkOutcome) -> Table:
    """For each stage how often it was computed and reused, and how much of it had to be done."""
    table = Table(box=box.SIMPLE_HEAD, title="Work", title_justify="left", padding=(0, 1, 0, 0))
    for heading in ("stage", "computed", "reused", "of the computed, made anew"):
        table.add_column(heading, justify="right" if heading in ("computed", "reused") else "left")
    for stage, (computed, reused, efforts) in outcome.work_by_stage().items():
        table.add_row(stage, str(computed), str(reused), _effort(efforts))
    return table


def _effort(efforts: list[Effort]) -> str:
    if not efforts:
        return ""
    fresh, total = sum(effort.fresh for effort in efforts), sum(effort.total for effort in efforts)
    return f"{fresh} of {total} {efforts[0].unit}"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
