"""Print what a run found: the ranking, the recommendation, the work it took, and where the results are."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.console import plain_table, print_json, say, visible
from flows.cli.publish import known_publications, print_publications
from rag_eval.benchmark.outcome import BenchmarkOutcome
from rag_eval.benchmark.scores import read_scores
from rag_eval.benchmark.workspace import Workspace
from rag_eval.errors import ArtifactError
from rag_eval.formatting import counted
from rag_eval.metrics.metric import split_name
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.recommendation import recommend
from rag_eval.reports.write import page_of
from rag_eval.stats.comparison import Placed

NARROWEST_NAME = 20

MAY_BE_BEST = "≈"


def print_result(outcome: BenchmarkOutcome, workspace: Workspace, *, as_json: bool, k: int | None = None) -> None:
    """Print the ranking, perhaps at another k, and where it is, or all as JSON; raises ``ConfigurationError``."""
    shown = outcome if k is None else outcome.at(k)
    console, published = Console(), known_publications(workspace, outcome.run)
    if as_json:
        print_json(console, outcome.model_dump(mode="json") | {"published": [one.model_dump() for one in published]})
        return
    if shown.configurations:
        _print_ranking(console, shown, workspace)
    failed: dict[str, list[str]] = {}
    for name, failure in shown.failures.items():
        failed.setdefault(failure.reason, []).append(name)
    for reason, (first, *others) in failed.items():
        more = f" and {counted(len(others), 'others')}" if others else ""
        text = Text(f"failed: {visible(first)}{more}: {visible(reason)}", style="red")
        console.print(text, soft_wrap=not console.is_terminal)
    if shown.unanswerable:
        console.print(f"Declared unanswerable, not in the averages: {shown.unanswerable}.", highlight=False)
    others = [str(other) for other in outcome.config.k if other != split_name(shown.ranking_metric)[1].hits]
    if others:
        further = f", or {', '.join(others[1:])}" if others[1:] else ""
        say(console, f"For another k: rag-eval show --k {others[0]}{further}")
    _print_work(console, outcome)
    print_publications(console, published)
    say(console, f"Kept in {workspace.address}/runs/{outcome.run}")
    if (page := workspace.kept(page_of(workspace, outcome))).exists():
        say(console, f"Report: {page}")


def _print_ranking(console: Console, outcome: BenchmarkOutcome, workspace: Workspace) -> None:
    """Print the ranking with the recommendation that follows from it.

    Without tests and recommendation, but with a warning, where the scores of single queries are gone.
    """
    placed: list[Placed] = []
    try:
        scores = read_scores(workspace, outcome, outcome.ranking_metric)
        placed = scores.ranking(outcome.ranking_metric, [one.name for one in outcome.ranked()])
    except ArtifactError as error:
        say(console, f"The ranking cannot be tested: {error}", "yellow")
    size = f"{counted(outcome.documents, 'documents')}, {counted(outcome.answerable, 'queries')}"
    console.print(f"{size}; ranked by {outcome.ranking_metric}", highlight=False)
    ranking = ConfigurationRanking.of(outcome, placed)
    console.print(ranking_table(ranking, console.width))
    if any(row.may_be_best for row in ranking.rows):
        words = "not distinguishable from the first on these questions, by a paired test"
        console.print(f"{MAY_BE_BEST} {words}", highlight=False)
    if placed:
        said = recommend(outcome, placed)
        console.print(Text.assemble((visible(said.headline), "bold"), " ", visible(" ".join(said.sentences))))


def ranking_table(ranking: ConfigurationRanking, width: int) -> Table:
    """The ranking in so many columns of a terminal; those that may be as good as the first are marked."""
    place, name, *figures = ranking.shown_in("terminal")
    labels = [place.text(row) for row in ranking.rows]
    longest = max(map(len, labels))
    marks = [MAY_BE_BEST if row.may_be_best else "" for row in ranking.rows]
    places = [f"{label:>{longest}}{mark}" for label, mark in zip(labels, marks, strict=True)]
    cells = [[column.text(row) for row in ranking.rows] for column in figures]
    headings = []
    for column in figures:
        # The cut goes below the name, so that the table fits a narrow terminal.
        short = column.title.removeprefix("span_").removeprefix("chunk_").removesuffix("_retrieved")
        headings.append(short.replace("_retrieved@", "@").replace("@", "\n@"))
    widths = [max(map(len, (*heading.split("\n"), *column))) for heading, column in zip(headings, cells, strict=True)]
    room = max(width - sum(widths) - len(widths) - max(map(len, places)) - 1, NARROWEST_NAME)
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(f"{place.title:>{longest}}")
    # Names are wrapped, not cut: what is left out may be all that tells two of them apart.
    table.add_column(name.title, overflow="fold", max_width=room)
    for heading, column in zip(headings, figures, strict=True):
        table.add_column(heading, justify="right", no_wrap=True, style="bold" if column.kind == "score" else None)
    for number, row in enumerate(ranking.rows):
        table.add_row(places[number], Text(visible(name.text(row))), *(column[number] for column in cells))
    return table


def _print_work(console: Console, outcome: BenchmarkOutcome) -> None:
    """Print how often each stage was computed and reused, and how many of its items were new."""
    computed, reused = outcome.work()
    if not computed:
        console.print(f"Nothing computed: all {counted(reused, 'stages')} reused.", highlight=False)
        return
    table = plain_table(None, {"stage": False, "computed": True, "reused": True, "new of all": False})
    for stage, (computed, reused, efforts) in outcome.work_by_stage().items():
        fresh, total = sum(effort.fresh for effort in efforts), sum(effort.total for effort in efforts)
        new = f"{fresh:,} of {counted(total, efforts[0].unit)}" if efforts else ""
        table.add_row(stage, str(computed or "–"), str(reused or "–"), new)
    console.print(table)
