"""Print the results of a run: ranking, recommendation, computed and cached steps, and where the files are."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.cli.console import print_json, print_table, say, visible
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
NAME_CELLS = 34
"""The width that names keep on a narrow terminal, at the cost of columns."""


def print_result(
    outcome: BenchmarkOutcome,
    workspace: Workspace,
    *,
    as_json: bool,
    objective: str | None = None,
    report: "Report | None" = None,
) -> None:
    """Print the ranking (by ``objective`` if given), the verdict, and where the run is kept and published; or JSON.

    Pass the ``report`` of the run if there is one, to reuse its verdict. Raises ``ConfigurationError`` if nothing was
    measured by the objective.
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
        data = outcome.model_dump(mode="json")
        data["verdict"] = verdict and verdict.to_data() | asdict(words_of(verdict))
        data["why"] = explained and explained.to_data()
        data["published"] = [publication.model_dump() for publication in published]
        print_json(console, data)
        return
    if trouble:
        say(console, f"The ranking cannot be tested: {trouble}", "yellow")
    if shown.configurations:
        _print_ranking(console, shown, ranking)
    if verdict is not None:
        _print_verdict(console, verdict)
    by_reason: dict[str, list[str]] = {}
    for name, failure in shown.failures.items():
        by_reason.setdefault(failure.reason, []).append(name)
    for reason, (first, *others) in by_reason.items():
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
    """Return the ranking as a table with as many columns as fit beside the names; mark possible bests."""
    place, name, *every = ranking.shown_in("terminal", "wide")
    labels = [place.text(row) for row in ranking.rows]
    longest = max(map(len, labels))
    marks = [MAY_BE_BEST if row.may_be_best else "" for row in ranking.rows]
    places = [f"{label:>{longest}}{mark}" for label, mark in zip(labels, marks, strict=True)]
    names = [name.text(row) for row in ranking.rows]
    cells = {column.title: [column.text(row) for row in ranking.rows] for column in every}
    widths = {title: max(map(len, (*heading(title).split("\n"), *texts))) + 1 for title, texts in cells.items()}
    cut = split_name(ranking.metric)[1]
    needed = {every[0].title, every[-1].title}
    needed |= {column.title for column in every if column.is_context and split_name(column.title)[1] == cut}
    least = min(NAME_CELLS, max(map(len, names)))
    room = width - max(map(len, places)) - 1 - sum(widths[title] for title in needed)
    shown = []
    for column in every:
        if column.title in needed:
            shown.append(column)
        elif room - widths[column.title] >= least:
            shown.append(column)
            room -= widths[column.title]
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(f"{place.title:>{longest}}")
    # Names wrap and are never cut: the end may be all that differs between two.
    table.add_column(name.title, overflow="fold", max_width=max(room, least))
    for column in shown:
        style = "bold" if column.kind == "score" else None
        table.add_column(heading(column.title), justify="right", no_wrap=True, style=style)
    for number, (label, text) in enumerate(zip(places, names, strict=True)):
        table.add_row(label, Text(visible(text)), *(cells[column.title][number] for column in shown))
    return table


def heading(title: str) -> str:
    """Return the short name of a metric with its cut on a second line, so that columns are narrow."""
    column, cut = split_name(title)
    short = (
        column.removeprefix("span_").removeprefix("chunk_").removesuffix("_retrieved").removesuffix("_within_tokens")
    )
    return f"{short}\nin {cut.size:,}" if cut.kind == "tokens" else short + cut.written().replace("@", "\n@")


def _print_work(console: Console, outcome: BenchmarkOutcome) -> None:
    """Print how often each step was computed or cached, and how many of its items were new."""
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
