"""Print the results of a run: ranking, recommendation, computed and cached steps, and where the files are."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rag_eval.cli.console import print_json, print_table, say, visible
from rag_eval.errors import ArtifactError
from rag_eval.formatting import asked, counted
from rag_eval.metrics.metric import split_name
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.ranking import ConfigurationRanking, RankingColumn
from rag_eval.reports.verdict import RunVerdict, verdict_of
from rag_eval.reports.verdict_words import words_of
from rag_eval.reports.why import Why, why
from rag_eval.reports.write import page_of
from rag_eval.results.outcome import PUBLISHED, BenchmarkOutcome
from rag_eval.results.run_scores import read_scores

if TYPE_CHECKING:
    from rag_eval.results.publishing import Publication

MAY_BE_BEST = "≈"
NAME_CELLS = 34
"""Width kept for names on a narrow terminal; columns are dropped instead."""


def print_result(
    outcome: BenchmarkOutcome, workspace: Workspace, *, as_json: bool, objective: str | None = None
) -> None:
    """Print the ranking (by ``objective`` if given), the verdict, and the locations of the run; or JSON.

    Raises ``ConfigurationError`` if nothing was measured by the objective.
    """
    shown = outcome if objective is None else outcome.by(objective)
    console, published = Console(), _known_publications(workspace, outcome)
    verdict: RunVerdict | None = None
    explained: Why | None = None
    try:
        scores = read_scores(workspace, shown)
        verdict = verdict_of(shown, scores)
        explained = why(workspace, scores, verdict) if as_json else None
    except ArtifactError as error:
        if not as_json:
            say(console, f"The ranking cannot be tested: {error}", "yellow")
    if as_json:
        data = outcome.model_dump(mode="json")
        data["verdict"] = verdict and verdict.to_data() | asdict(words_of(verdict))
        data["why"] = explained and explained.to_data()
        data["published"] = [publication.model_dump() for publication in published]
        print_json(console, data)
        return
    if shown.configurations:
        _print_ranking(console, shown, ConfigurationRanking.of(shown, verdict.contenders if verdict else None))
    if verdict is not None:
        _print_verdict(console, verdict)
    _print_failures(console, shown)
    _print_work(console, outcome)
    if published:
        from rag_eval.cli.publish_commands import print_publications

        print_publications(console, published)
    say(console, f"Kept in {workspace.address}/runs/{outcome.run}")
    if (page := workspace.fetch(page_of(workspace, outcome))).exists():
        say(console, f"Report: {page}")


def _print_failures(console: Console, outcome: BenchmarkOutcome) -> None:
    """Print each distinct reason of a failure once, with the first configuration that failed for it."""
    by_reason: dict[str, list[str]] = {}
    for name, failure in outcome.failures.items():
        by_reason.setdefault(failure.reason, []).append(name)
    for reason, (first, *others) in by_reason.items():
        more = f" and {counted(len(others), 'others')}" if others else ""
        text = Text(f"failed: {visible(first)}{more}: {visible(reason)}", style="red")
        console.print(text, soft_wrap=not console.is_terminal)


def _known_publications(workspace: Workspace, outcome: BenchmarkOutcome) -> "list[Publication]":
    """Return where a run was published. If the record cannot be read, print the error."""
    if not workspace.fetch_newest(workspace.runs / outcome.run / PUBLISHED).exists():
        return []
    from rag_eval.results.publishing import read_publications

    try:
        return read_publications(workspace, outcome.run)
    except ArtifactError as error:
        say(Console(stderr=True), f"rag-eval: {error}", "yellow")
        return []


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
    """Return the ranking as a table with as many columns as fit; mark configurations that may be the best."""
    place, name, *every = ranking.shown_in("terminal", "wide")
    labels = [place.text(row) for row in ranking.rows]
    longest = max(map(len, labels))
    names = [name.text(row) for row in ranking.rows]
    least = min(NAME_CELLS, max(map(len, names)))
    marked = any(row.may_be_best for row in ranking.rows)
    shown, room = _fitting(every, ranking, width - longest - marked - 1, least)
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column(f"{place.title:>{longest}}")
    # Wrap names instead of cutting them: two names may differ only at the end.
    table.add_column(name.title, overflow="fold", max_width=max(room, least))
    for column in shown:
        style = "bold" if column.kind == "score" else None
        table.add_column(heading(column.title), justify="right", no_wrap=True, style=style)
    for row, label, text in zip(ranking.rows, labels, names, strict=True):
        mark = MAY_BE_BEST if row.may_be_best else ""
        table.add_row(f"{label:>{longest}}{mark}", Text(visible(text)), *(column.text(row) for column in shown))
    return table


def _fitting(
    columns: Sequence[RankingColumn], ranking: ConfigurationRanking, room: int, least: int
) -> tuple[list[RankingColumn], int]:
    """Return the columns that leave at least ``least`` cells for names, and the room that is left.

    The score, the number of chunks, and the context at the cut that ranks are never left out.
    """
    cut = split_name(ranking.metric)[1]
    needed = [
        column
        for column in columns
        if column in (columns[0], columns[-1]) or (column.is_context and split_name(column.title)[1] == cut)
    ]
    widths = {
        column.title: 1 + max(map(len, (*heading(column.title).split("\n"), *map(column.text, ranking.rows))))
        for column in columns
    }
    room -= sum(widths[column.title] for column in needed)
    shown = []
    for column in columns:
        if column not in needed:
            if room - widths[column.title] < least:
                continue
            room -= widths[column.title]
        shown.append(column)
    return shown, room


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
