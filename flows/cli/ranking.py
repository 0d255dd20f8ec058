"""What a run found, printed: the ranking, what it took, and where everything is."""

from collections.abc import Container, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.console import print_json, say, visible
from flows.cli.publish import known_publications, print_publications
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.references import Effort
from rag_eval.benchmark.scores import read_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ArtifactError
from rag_eval.formatting import counted, number
from rag_eval.reports.ranking import ranking_of
from rag_eval.reports.verdict import answer
from rag_eval.reports.write import page_of
from rag_eval.stats.comparison import Placed, place_labels

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


def print_result(outcome: BenchmarkOutcome, workspace: Workspace, *, as_json: bool, k: int | None = None) -> None:
    """Print the ranking, at another number of hits if asked, and where it is kept and published.

    Or print the whole outcome as JSON. Raises ``ConfigurationError`` when nothing was measured at k.
    """
    shown = outcome if k is None else outcome.at(k)
    console, published = Console(), known_publications(workspace, outcome.run)
    if as_json:
        print_json(console, outcome.model_dump(mode="json") | {"published": [one.model_dump() for one in published]})
        return
    print_outcome(console, shown, _how_sure(console, shown, workspace))
    others = [str(other) for other in outcome.config.k if str(other) != shown.ranking_metric.partition("@")[2]]
    if others:
        further = f", or {', '.join(others[1:])}" if others[1:] else ""
        say(console, f"The averages at another k: rag-eval show --k {others[0]}{further}")
    print_work(console, outcome)
    print_publications(console, published)
    say(console, f"Kept in {workspace.address}/runs/{outcome.run}")
    if (page := workspace.kept(page_of(workspace, outcome))).exists():
        say(console, f"Report: {page}")


def _how_sure(console: Console, outcome: BenchmarkOutcome, workspace: Workspace) -> list[Placed] | None:
    """The ranking with its tests; None where the scores of single queries are gone, which is said."""
    if not outcome.configurations:
        return None
    try:
        return ranking_of(outcome, read_scores(workspace, outcome, outcome.ranking_metric))
    except ArtifactError as error:
        say(console, f"How sure the ranking is cannot be told: {error}", "yellow")
        return None
