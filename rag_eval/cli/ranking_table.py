"""Print what a run found: the ranking, the recommendation, the work it took, and where the results are."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.cli.console import beside_names, print_json, print_table, say, visible
from rag_eval.cli.publish_commands import known_publications, print_publications
from rag_eval.errors import ArtifactError
from rag_eval.formatting import asked, counted
from rag_eval.metrics.metric import split_name
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.ranking import ConfigurationRanking
from rag_eval.reports.verdict import RunVerdict, verdict_of
from rag_eval.reports.verdict_words import words_of
from rag_eval.reports.why import Why, why
from rag_eval.reports.write import page_of
from rag_eval.results.outcome import BenchmarkOutcome
from rag_eval.results.run_scores import read_scores

if TYPE_CHECKING:
    from rag_eval.reports.report import Report

MAY_BE_BEST = "≈"


def print_result(
    outcome: BenchmarkOutcome,
    workspace: Workspace,
    *,
    as_json: bool,
    objective: str | None = None,
    report: "Report | None" = None,
) -> None:
    """Print the ranking, by another metric if asked, the verdict, and where it is kept and published.

    Or print the whole outcome with its verdict as JSON. What a report has found already is not computed again. Raises
    ``ConfigurationError`` when nothing was measured by the metric.
    """
    shown = outcome if objective is None else outcome.by(objective)
    console, published, trouble = Console(), known_publications(workspace, outcome.run), ""
    verdict: RunVerdict | None = None
    explained: Why | None = None
    if report is not None:
        ranking, verdict, explained = report.ranking, report.verdict, report.why
    else:
        try:
            scores = read_scores(workspace, shown)
            verdict = verdict_of(shown, scores)
            ranking = ConfigurationRanking.of(shown, verdict.contenders)
            explained = why(workspace, scores, verdict) if as_json else None
        except ArtifactError as error:
            ranking, trouble = ConfigurationRanking.of(shown), str(error)
    if as_json:
        told = {
            "verdict": verdict and verdict.to_data() | asdict(words_of(verdict)),
            "why": explained and explained.to_data(),
        }
        print_json(
            console, outcome.model_dump(mode="json") | told | {"published": [one.model_dump() for one in published]}
        )
        return
    if trouble:
        say(console, f"The ranking cannot be tested: {trouble}", "yellow")
    if shown.configurations:
        _print_ranking(console, shown, ranking)
    if verdict is not None:
        _print_verdict(console, verdict)
    failed: dict[str, list[str]] = {}
    for name, failure in shown.failures.items():
        failed.setdefault(failure.reason, []).append(name)
    for reason, (first, *others) in failed.items():
        more = f" and {counted(len(others), 'others')}" if others else ""
        text = Text(f"failed: {visible(first)}{more}: {visible(reason)}", style="red")
        console.print(text, soft_wrap=not console.is_terminal)
    _print_work(console, outcome)
    print_publications(console, published)
    say(console, f"Kept in {workspace.address}/runs/{outcome.run}")
    if (page := workspace.fetch(page_of(workspace, outcome))).exists():
        say(console, f"Report: {page}")


def _print_ranking(console: Console, outcome: BenchmarkOutcome, ranking: ConfigurationRanking) -> None:
    shards = f" in {len(outcome.inputs.documents)} shards" if len(outcome.inputs.documents) > 1 else ""
    size = f"{counted(outcome.documents, 'documents')}{shards}, {asked(outcome.answerable, outcome.unanswerable)}"
    say(console, size)
    say(console, f"ranked by {outcome.ranking_metric}")
    console.print(ranking_table(ranking, console.width))
    if ranking.mark_meaning:
        console.print(f"{MAY_BE_BEST} {ranking.mark_meaning}", highlight=False)


def _print_verdict(console: Console, verdict: RunVerdict) -> None:
    words = words_of(verdict)
    console.print(Text(f"\n{visible(words.headline)}.", "bold"))
    for sentence in words.sections.values():
        console.print(Text(visible(sentence)))
    for note in words.notes:
        console.print(Text(f"· {visible(note)}"))
    if verdict.budget_is_default and verdict.budget is not None:
        default = "The budget is the default: set budget: in the benchmark file, or see rag-eval show --objective"
        console.print(Text(f"{default} recall_within_tokens@1000."))


def ranking_table(ranking: ConfigurationRanking, width: int) -> Table:
    """The ranking in so many columns of a terminal; those that may be as good as the first are marked."""
    place, name, *every = ranking.shown_in("terminal", "wide")
    labels = [place.text(row) for row in ranking.rows]
    longest = max(map(len, labels))
    marks = [MAY_BE_BEST if row.may_be_best else "" for row in ranking.rows]
    places = [f"{label:>{longest}}{mark}" for label, mark in zip(labels, marks, strict=True)]
    texts = {column.title: [column.text(row) for row in ranking.rows] for column in every}
    widths = {one.title: max(map(len, (*heading(one.title).split("\n"), *texts[one.title]))) + 1 for one in every}
    cut = split_name(ranking.metric)[1]
    needed = {one.title for one in every if one.is_context and split_name(one.title)[1] == cut}
    needed |= {every[0].title, every[-1].title}
    names = [name.text(row) for row in ranking.rows]
    taken, room = beside_names(widths, needed, names, width - max(map(len, places)) - 1)
    figures = [column for column in every if column.title in taken]
    cells = [texts[column.title] for column in figures]
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(f"{place.title:>{longest}}")
    # Names are wrapped, not cut: what is left out may be all that tells two of them apart.
    table.add_column(name.title, overflow="fold", max_width=room)
    for column in figures:
        style = "bold" if column.kind == "score" else None
        table.add_column(heading(column.title), justify="right", no_wrap=True, style=style)
    for number in range(len(names)):
        table.add_row(places[number], Text(visible(names[number])), *(column[number] for column in cells))
    return table


def heading(title: str) -> str:
    """A metric's name without its level, its cut below it, so that the table fits a narrow terminal."""
    column, cut = split_name(title)
    short = (
        column.removeprefix("span_").removeprefix("chunk_").removesuffix("_retrieved").removesuffix("_within_tokens")
    )
    return f"{short}\nin {cut.size:,}" if cut.kind == "tokens" else short + cut.written().replace("@", "\n@")


def _print_work(console: Console, outcome: BenchmarkOutcome) -> None:
    """Print how often each step was computed and cached, and how many of its items were new."""
    computed, cached = outcome.work()
    if not computed:
        console.print(f"Nothing computed: all {counted(cached, 'steps')} cached.", highlight=False)
        return
    rows = []
    for step, (computed, cached, efforts) in outcome.work_by_step().items():
        fresh, total = sum(effort.fresh for effort in efforts), sum(effort.total for effort in efforts)
        new = f"{fresh:,} of {counted(total, efforts[0].unit)}" if efforts else ""
        rows.append((step, f"{computed:,}" if computed else "–", f"{cached:,}" if cached else "–", new))
    print_table(console, {"step": False, "computed": True, "cached": True, "new of all": False}, rows)
