"""Look at kept runs: ``rag-eval show``, ``report``, ``export`` and ``history``; ``cache`` for all of a workspace.

``truth holes`` looks at what a run says of its ground truth.
"""

import os
import shlex
import webbrowser
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import NO_BROWSER, beside_names, print_json, print_table, say, visible
from rag_eval.cli.processes import leaving, watched
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.formatting import cost_in_words, counted, interval, number, percent, signed
from rag_eval.storage.files import patterns_of

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.history import History

RunArgument = Annotated[str, typer.Argument(help="latest, baseline, a run's name, or the start of it.")]

# A run's name up to the second, or to the microsecond, is mostly enough to name it.
_ENOUGH = (len("2026-01-31T12-00-00"), len("2026-01-31T12-00-00-000000"))

_HEADING_CELLS = 10


def show(
    run: RunArgument = "latest",
    objective: Annotated[
        str | None, typer.Option(help="Rank by this metric, such as span_recall@5 or recall_within_tokens@1000.")
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Show the ranking and the verdict of a run."""
    from rag_eval.cli.ranking_table import print_result
    from rag_eval.results.runs import read_run

    print_result(read_run(workspace, run), workspace, as_json=as_json, objective=objective)


def report(
    run: RunArgument = "latest",
    against: Annotated[str | None, typer.Option(metavar="RUN", help="An earlier run to compare with.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where to write it, as .html or .md; without it, into the run's folder.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    allow_different: options.AllowDifferentOption = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Write a run's report: the answer, the ranking, charts, and every question with its text."""
    from rag_eval.reports.report import build_report
    from rag_eval.reports.write import is_markdown, page_of, write_report
    from rag_eval.results.runs import read_run

    if output is not None:
        is_markdown(output)  # says what is wrong with the name before anything is computed
    outcome = read_run(workspace, run)
    before = read_run(workspace, against, outcome) if against is not None else None
    built = build_report(workspace, outcome, against=before, allow_different=allow_different)
    path = output.absolute() if output is not None else page_of(workspace, outcome, before)
    try:
        write_report(workspace, built, path)
    except ArtifactError as error:
        if output is not None:
            raise
        raise ArtifactError(f"{error}; --output FILE writes the report elsewhere") from None
    console = Console()
    console.print(Text(visible(str(built.words))))
    for sentence in built.since:
        console.print(Text(visible(sentence)))
    say(console, f"Report: {path}")
    if open_ and not webbrowser.open(path.as_uri()):
        say(console, NO_BROWSER, "yellow")


def export(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="trec, jsonl, csv or parquet.")],
    run: RunArgument = "latest",
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to write; without it, export/ in the run's folder.")
    ] = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Write a run for other tools: TREC's run and qrels, or the questions with the passages that were found."""
    from rag_eval.reports.exports import export_run
    from rag_eval.results.runs import read_run

    console = Console()
    outcome = read_run(workspace, run)
    folder = (output or workspace.runs / outcome.run / "export").absolute()
    done = export_run(workspace, outcome, format_, folder)
    for note in done.notes:
        say(console, note)
    say(console, f"{counted(len(done.files), 'files')} in {folder}" if len(done.files) > 1 else str(done.files[0]))


def history(
    metric: Annotated[
        str | None, typer.Option(help="Such as span_recall@5; without it, what the latest run is ranked by.")
    ] = None,
    configuration: Annotated[
        str | None, typer.Option(help="Follow this configuration; without it, the best of each run.")
    ] = None,
    last: Annotated[int, typer.Option(help="How many runs to show.")] = 20,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Show the runs over time, oldest first, by one metric."""
    from rag_eval.results import history as store

    runs = store.history(workspace, metric, configuration, last)
    console = Console()
    if as_json:
        print_json(console, asdict(runs) | {"trend": [entry.run for entry in runs.trend()]})
        return
    differing = _differing_marks(runs)
    _print_entries(console, runs, "configuration" if configuration else "best configuration", differing)
    for letter, entry in {entry.data: entry for entry in runs.entries}.items():
        digests = f"corpus {entry.corpus_digest[:12]}…, truth {entry.truth_digest[:12]}…"
        size = f"{counted(entry.documents, 'documents')}, {counted(entry.queries, 'questions')} with an answer"
        say(console, f"{letter}: {size} ({digests})")
    if "grid" in differing:
        say(console, "The best of another grid is one of other configurations: follow one with --configuration")
    if any(entry.is_baseline for entry in runs.entries):
        console.print("* the baseline")
    trend = [entry.estimate.mean for entry in runs.trend() if entry.estimate is not None]
    if len(trend) > 1:
        latest = runs.trend()[-1]
        where = f"data {latest.data}" + (f", grid {latest.grid}" if "grid" in differing else "")
        means = f"{number(trend[0])} to {number(trend[-1])}"
        say(console, f"{store.sparkline(trend)}  {runs.metric} on {where}: {means}")
    if runs.earlier:
        more = f"rag-eval history --last {last + runs.earlier}"
        console.print(f"{counted(runs.earlier, 'earlier runs')}: {more}", highlight=False)
    for problem in runs.unreadable:
        say(console, problem, "yellow")


def _differing_marks(runs: "History") -> list[str]:
    """Return which of benchmark, data and grid the runs differ in, where the benchmark does not tell the grid."""
    marks = {name: {getattr(entry, name) for entry in runs.entries} for name in ("benchmark", "data", "grid")}
    differing = [name for name, values in marks.items() if len(values) > 1]
    pairs = {(entry.benchmark, entry.grid) for entry in runs.entries}
    if "benchmark" in differing and len(pairs) == len(marks["benchmark"]):
        return [name for name in differing if name != "grid"]
    return differing


def _print_entries(console: Console, runs: "History", what: str, differing: Sequence[str]) -> None:
    # Narrow headings leave room for names, so that a terminal of 80 columns breaks them between words.
    heading = runs.metric.replace("_", "_\n").replace("@", "\n@")
    columns = {"run": False, what.replace(" ", "\n"): False, heading: True, "95 %\ninterval": True, "change": True}
    columns |= {"bench-\nmark" if name == "benchmark" else name: name != "benchmark" for name in differing}
    names = [entry.run for entry in runs.entries]
    rows: list[list[str]] = []
    before: dict[object, float] = {}
    for entry in runs.entries:
        cells = ["–", "–", ""]
        if entry.estimate is not None:
            mean = entry.estimate.mean
            change = signed(mean - before[entry.comparable], mean) if entry.comparable in before else ""
            cells = [number(mean), interval(entry.estimate.low, entry.estimate.high), change]
            before[entry.comparable] = mean
        name = entry.configuration or f"no score by {runs.metric}"
        name += f" (by {entry.metric})" if entry.metric != runs.metric else ""
        name += f", {entry.failures} failed" if entry.failures else ""
        marks = [str(getattr(entry, mark) or "–") for mark in differing]
        rows.append([_short_name(entry.run, names) + " *" * entry.is_baseline, name, *cells, *marks])
    if rows:
        print_table(console, columns, rows, fixed="run")


def _short_name(run: str, runs: list[str]) -> str:
    """Return as much of a run's name as none of the others begins with."""
    starts = (run[:length] for length in _ENOUGH)
    return next((start for start in starts if sum(name.startswith(start) for name in runs) == 1), run)


def _days(text: str) -> float:
    """Read the number of days of an option; what stands in their place may be the next option."""
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not days >= 0:
        raise typer.BadParameter(f"{text!r} is not a number of days: write --prune 30")
    return days


def cache(
    prune: Annotated[
        float | None,
        typer.Option(parser=_days, metavar="DAYS", help="Remove runs and work not used for this many days."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all work but the runs' summaries.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what --prune would remove, and remove nothing.")
    ] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Show what a workspace holds, and free space in it."""
    from rag_eval.results import housekeeping

    if not workspace.root.is_dir():
        raise ConfigurationError(
            f"there is no workspace {workspace.address!r}: run a benchmark first, or check the path"
        )
    if prune is not None and clear:
        raise ConfigurationError("--prune and --clear do not go together: give one")
    if dry_run and prune is None:
        raise ConfigurationError("--dry-run goes with --prune: give the days too, such as --prune 30")
    console = Console()
    if workspace.remote is not None:
        say(console, f"{workspace.root}: this machine's copy of {workspace.remote}, where nothing is removed")
    holdings = housekeeping.holdings(workspace)
    if clear or prune is not None:
        removed = (
            [housekeeping.clear(workspace)] if prune is None else housekeeping.prune(workspace, prune, dry_run=dry_run)
        )
        for one in removed:
            would = "would remove " if dry_run else ""
            say(console, f"{would}{one.kind}: {counted(one.files, 'files')}, {decimal(one.size)}")
        if not dry_run:
            before, holdings = holdings, housekeeping.holdings(workspace)
            sizes = [decimal(sum(one.size for one in found)) for found in (before, holdings)]
            say(console, f"before {sizes[0]}, now {sizes[1]}")
        elif not removed:
            say(console, "nothing to remove")
    rows = ((one.kind, f"{one.files:,}", decimal(one.size)) for one in holdings)
    print_table(console, {"work": False, "files": True, "size": True}, rows)


def _print_configurations(
    console: Console, told: Iterable[str], titles: Sequence[str], rows: Iterable[Sequence[str]], needed: Collection[str]
) -> None:
    """Print figures beside the names of configurations under what they say; what there is no room for is named."""
    from rag_eval.cli.ranking_table import heading

    say(console, " ".join(told))
    first, *figures = titles
    cells = dict(zip(titles, zip(*rows, strict=True), strict=True))
    longest = {title: max(map(len, cells[title])) for title in figures}
    folded = {title: _folded(heading(title), longest[title]) for title in figures}
    widths = {title: max(longest[title], *map(len, folded[title])) + 2 for title in figures}
    shown, _ = beside_names(widths, needed, cells[first], console.width - 2)
    others = [title for title in figures if title not in shown]
    caption = f"no room here for {', '.join(others)}: a wider terminal or --json has every column"
    columns = {first: False} | {"\n".join(folded[title]): True for title in shown}
    table = zip(cells[first], *(cells[title] for title in shown), strict=True)
    print_table(console, columns, table, caption=caption if others else None)


def _folded(title: str, cells: int) -> list[str]:
    """Fold a heading into lines about as wide as what is below it; no word is divided."""
    wide = max(cells, _HEADING_CELLS)
    return [line for part in title.split("\n") for line in wrap(part, wide, break_long_words=False)]


def holes(
    run: Annotated[
        str, typer.Argument(help="Name of the run, the start of one, or a benchmark file; by default the latest run.")
    ] = "latest",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Ground-truth file to write; where it exists, it is added to.")
    ] = Path("truth.judged.jsonl"),
    k: Annotated[int, typer.Option(min=1, help="Number of hits of each configuration to pool.")] = 5,
    sample: Annotated[
        int, typer.Option(min=0, help="Draw this many pooled passages at random, for people to judge.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the sample.")] = 0,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help="Model that grades every pooled passage.")] = None,
    max_flips: Annotated[
        float, typer.Option(min=0, max=1, help="Share of passages on which both orders of the prompt may disagree.")
    ] = 0.2,
    base_url: options.BaseUrlOption = None,
    max_cost: options.MaxCostOption = None,
    input_price: options.InputPriceOption = None,
    output_price: options.OutputPriceOption = None,
    concurrency: options.RequestsOption = 4,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Pool what a run retrieved and nobody judged, and have it judged; exit code 1 if a model left some out.

    The passages are in the file to be reviewed with rag-eval truth review. A model grades each of them twice, question
    first and passage first; its grades count where it agrees with itself.
    """
    from rag_eval.ground_truth.holes import PassageJudge, drawn, entered, judge_by_model, offers
    from rag_eval.ground_truth.judgements import add_judgements, lock_path
    from rag_eval.ground_truth.sources import read_truth
    from rag_eval.ground_truth.truth_files import write_truth
    from rag_eval.llm.writing import Answers
    from rag_eval.reports.unjudged import holes_of, passage_texts, pooled_truth
    from rag_eval.results.runs import read_run
    from rag_eval.storage.locks import wait_for_lock
    from rag_eval.types.evidence import RELEVANT_GRADE, judgements

    console = Console()
    outcome = read_run(workspace, _run_of(workspace, Path(run)) if Path(run).is_file() else run)
    level = outcome.inputs.evaluation_type
    with wait_for_lock(lock_path(output)):  # people may be reviewing it
        items = pooled_truth(workspace, outcome, k, list(read_truth(output, level)) if output.is_file() else None)
        items = drawn(items, sample, seed) if sample else items
        write_truth(output, items)
    unjudged = holes_of(workspace, outcome)
    told: dict[str, object] = {"run": outcome.run, "output": str(output), "holes": unjudged and unjudged.as_data()}
    if unjudged is not None and not as_json:
        _print_configurations(console, unjudged.sentences, unjudged.titles, unjudged.rows(), unjudged.needed)
    left = 0
    if judge is not None:
        grader = PassageJudge(
            judge,
            base_url=base_url,
            max_cost=max_cost,
            input_price=input_price,
            output_price=output_price,
            concurrency=concurrency,
        )
        texts = passage_texts(workspace, outcome)
        place, again = workspace.root / "cache" / "answers", "what was answered is kept, and the same command goes on"
        workspace.fetch_missing(place)
        with leaving(again):
            answers = Answers(place, workspace.storage)
            found = watched(lambda: judge_by_model(items, grader, answers, texts))
        left = found.unasked
        told["judge"] = {
            "model": judge,
            "graded": len(found.both),
            "not_graded": left,
            "flips": found.flips,
            "flip_rate": found.flip_rate,
            "paid_calls": answers.fresh,
            "tokens": answers.tokens,
            "cost": answers.cost,
        }
        if not as_json:
            paid = f"{counted(answers.fresh, 'requests')} paid, {cost_in_words(answers.cost)}"
            say(console, f"{judge}: {found} ({paid}).")
        if found.flip_rate > max_flips:
            raise ConfigurationError(
                f"{judge} contradicts itself on {percent(found.flip_rate, 1)} of the passages, more than --max-flips "
                f"{max_flips:g}: its grades do not count; name another model, or raise it"
            )
        with wait_for_lock(lock_path(output)):
            items = entered(read_truth(output, level), judge, found.grades, found.reasons)
            write_truth(output, items)
    add_judgements(output, offers(items))
    passages = [one for item in items for one in judgements(item.query)]
    counts = {
        "pooled": len(passages),
        "waiting": sum(one.grade is None for one in passages),
        "relevant": sum((one.grade or 0) >= RELEVANT_GRADE for one in passages),
        "sampled": sum(one.sampled for one in passages),
    }
    if as_json:
        print_json(console, told | {"passages": counts})
    else:
        patterns = patterns_of(outcome.corpus.glob)
        where = ["--corpus", os.path.relpath(outcome.corpus.folder)]
        where += [word for one in patterns if patterns != options.DOCUMENT_GLOB for word in ("--glob", one)]
        counted_passages = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        say(console, f"Passages that were retrieved and were not in the ground truth: {counted_passages}.")
        say(console, f"They are in {output}, to be judged with rag-eval truth review {output} {shlex.join(where)}")
    if left:
        say(console, f"{counted(left, 'passages')} have no grade: the same command with a higher --max-cost goes on.")
        raise typer.Exit(1)


def _run_of(workspace: "Workspace", file: Path) -> str:
    """Return the latest run of a benchmark file; raise ``ConfigurationError`` where there is none."""
    from rag_eval.config.loading import chosen_benchmark
    from rag_eval.results.runs import read_run, run_names

    name = chosen_benchmark(file).name
    for run in reversed(run_names(workspace)):
        if read_run(workspace, run).config.name == name:
            return run
    raise ConfigurationError(f"{str(file)!r} has no run in {workspace.address!r}: run the benchmark first")
