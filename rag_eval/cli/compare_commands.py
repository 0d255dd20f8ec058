"""``rag-eval compare`` and ``gate``: two runs or configurations, a run and the baseline."""

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import print_json, print_table, say
from rag_eval.errors import ArtifactError, ConfigurationError, RagEvalError
from rag_eval.formatting import basis, counted, interval, number, p_value, signed
from rag_eval.storage.files import write_atomically, writing

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.compare import ComparedConfigurations, QueryChange, RunComparison
    from rag_eval.results.gate import Gate, GateCheck
    from rag_eval.stats.comparison import Comparison
    from rag_eval.stats.paired_scores import Unit

STYLES = {"better": "green", "worse": "red", "no difference shown": ""}
GATE_STYLES = {"ok": "green", "inconclusive": "yellow"}
GATE_FAILED = 3
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
    from rag_eval.reports.against import recommendation_sentence
    from rag_eval.reports.verdict import verdict_of
    from rag_eval.results.compare import compare_runs, name_pairs
    from rag_eval.results.run_losses import drop_sentences
    from rag_eval.results.run_scores import read_scores
    from rag_eval.results.runs import read_both

    old, new = read_both(workspace, before, after)
    pairs = name_pairs(old, new, configurations) if configurations else None
    found = compare_runs(workspace, old, new, pairs=pairs, metrics=metrics, allow_different=allow_different)
    console = Console(highlight=False)
    verdicts = [verdict_of(one, read_scores(workspace, one)) for one in (old, new)]
    drops, recommended = drop_sentences(workspace, found), recommendation_sentence(found, *verdicts)
    if as_json:
        print_json(console, _as_data(found, queries) | {"drops": drops, "recommendation": recommended})
        return
    _print_comparison(console, found, is_named=bool(configurations))
    say(console, recommended)
    for sentence in drops:
        say(console, sentence)
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


def _print_comparison(console: Console, found: "RunComparison", *, is_named: bool) -> None:
    from rag_eval.reports.against import left_out_sentences

    first = found.rows[0].comparison
    say(console, f"{found.before.run} → {found.after.run}")
    say(console, f"{basis(found.queries, first.units, first.unit, ' in both runs')}; change is after minus before")
    for difference in found.differences:
        say(console, f"Warning: {difference}", "yellow")
    rows = [row for metric in found.metrics for row in found.by_metric(metric)]
    changed = [row for row in rows if not row.comparison.is_same]
    # By the first metric all that changed, by the others what is sure; of those that were named, all.
    quiet = [row for row in changed if row.metric != found.metrics[0] and _word(row.comparison) == "inconclusive"]
    shown = [row for row in changed if row not in quiet]
    columns = {"before": True, "after": True, "change": True, "95 % interval": True, "p": True, "verdict": False}
    if is_named:
        quiet, shown = [], rows
        for name in dict.fromkeys(row.name for row in rows):
            cells = ([row.metric, *_cells(row)] for row in rows if row.name == name)
            print_table(console, {"metric": False} | columns, cells, name, fixed="verdict")
    for metric in dict.fromkeys(row.metric for row in shown if not is_named):
        cells = ([row.name, *_cells(row)] for row in shown if row.metric == metric)
        print_table(console, {"configuration": False} | columns, cells, metric, fixed="verdict")
    if any(_word(row.comparison) == "inconclusive" for row in shown):
        console.print("inconclusive: the difference may be due to chance.")
    if quiet:
        by = ", ".join(dict.fromkeys(row.metric for row in quiet))
        console.print(f"Inconclusive and not listed: {counted(len(quiet), 'further comparisons')}, by {by}.")
    unchanged = len(found.rows) - len(changed)
    if unchanged and not is_named:
        console.print(f"Every query scores as before in {unchanged:,} of {counted(len(found.rows), 'comparisons')}.")
    for sentence in [] if is_named else left_out_sentences(found):
        say(console, sentence)


def _cells(row: "ComparedConfigurations") -> list[str | Text]:
    one = row.comparison
    beside = max(one.before, one.after)
    return [
        number(one.before, beside),
        number(one.after, beside),
        signed(one.difference, beside),
        interval(one.low, one.high, with_sign=True, beside=beside),
        p_value(one.p_adjusted),
        Text(_word(one), style=STYLES[one.verdict]),
    ]


def _word(comparison: "Comparison") -> str:
    if comparison.is_same:
        return "the same"
    return "inconclusive" if comparison.verdict == "no difference shown" else comparison.verdict


def _worse_and_better(changes: list["QueryChange"], most: int) -> tuple[list["QueryChange"], list["QueryChange"]]:
    worse = [change for change in changes if change.gain < 0][:most]
    better = [change for change in reversed(changes) if change.gain > 0][:most]
    return worse, better


def _print_queries(console: Console, row: "ComparedConfigurations", changes: list["QueryChange"], most: int) -> None:
    one = row.comparison
    if not changes:
        return
    title = f"{row.name}, {row.metric}: {one.better} better, {one.worse} worse, {one.equal} equal"
    say(console, title, "italic")
    rows: list[list[str | Text]] = []
    for label, kind in zip(("worse", "better"), _worse_and_better(changes, most), strict=True):
        for change in kind:
            text = change.text if len(change.text) <= _TEXT_CELLS else change.text[: _TEXT_CELLS - 1] + "…"
            beside = max(change.before, change.after)
            values = number(change.before, beside), number(change.after, beside)
            rows.append([Text(label, style=STYLES[label]), *values, text, change.document])
    print_table(console, {"": False, "before": True, "after": True, "query": False, "document": False}, rows)


def gate(
    run: Annotated[str, typer.Argument(help="latest, a run's name, or the start of it.")] = "latest",
    metric: Annotated[
        str | None, typer.Option(help="Such as span_recall@5; without it, what the baseline is ranked by.")
    ] = None,
    max_drop: options.MaxDropOption = None,
    configurations: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            help="Gate this one, in place of all in the baseline, or NAME=NAME for two; may be repeated.",
        ),
    ] = None,
    allow_different: options.AllowDifferentOption = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a JUnit report, with a test case for each configuration.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Write the summary and the annotations of a step of GitHub Actions.")
    ] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    accept: Annotated[
        bool, typer.Option("--accept", help="Make the run the baseline of its benchmark, and compare nothing.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a run with the baseline; exit code 3 if a metric dropped by more than allowed, significantly so."""
    if accept:
        _accept(workspace, run, as_json=as_json)
        return
    from rag_eval.reports.gate_report import gate_annotations
    from rag_eval.results.gate import MAX_DROP, run_gate
    from rag_eval.results.runs import BASELINE, read_both

    if github and not os.environ.get("GITHUB_STEP_SUMMARY"):
        raise ConfigurationError("--github is for a step of GitHub Actions: GITHUB_STEP_SUMMARY is not set")
    try:
        baseline, candidate = read_both(workspace, BASELINE, run)
        result = run_gate(
            workspace,
            baseline,
            candidate,
            metric or baseline.ranking_metric,
            MAX_DROP if max_drop is None else max_drop,
            configurations=configurations,
            allow_different=allow_different,
        )
    except RagEvalError as error:
        _write_for_ci(error, junit, github=github)
        if github and not as_json:
            typer.echo("\n".join(gate_annotations(error)))
        raise
    _write_for_ci(result, junit, github=github)
    console = Console(highlight=False)
    if as_json:
        print_json(console, asdict(result) | {"passed": result.passed, "warning": result.warning})
    elif github:
        # What is printed for people begins no command of the workflow, whatever is in it.
        token = secrets.token_hex(16)
        typer.echo(f"::stop-commands::{token}")
        _print_gate(console, result)
        typer.echo("\n".join([f"::{token}::", *gate_annotations(result)]))
    else:
        _print_gate(console, result)
    if not result.passed:
        raise typer.Exit(GATE_FAILED)


def _write_for_ci(result: "Gate | RagEvalError", junit: Path | None, *, github: bool) -> None:
    """Write what CI shows of a gate, or of why it could not be judged: a JUnit report, the summary of the step."""
    from rag_eval.reports.gate_report import gate_junit, gate_markdown

    if junit is not None:
        write_atomically(junit, gate_junit(result))
    if github:
        summary = Path(os.environ["GITHUB_STEP_SUMMARY"])
        with writing(summary), summary.open("a", encoding="utf-8") as page:
            page.write(f"## Retrieval\n\n{gate_markdown(result)}\n")


def _print_gate(console: Console, result: "Gate") -> None:
    say(console, f"{result.run} against the baseline {result.baseline}")
    say(console, result.terms)
    for difference in [*result.differences, *filter(None, [result.warning])]:
        say(console, f"Warning: {difference}", "yellow")
    changed = [check for check in result.checks if check.changed]
    _print_checks(console, result, changed)
    if len(result.checks) > len(changed):
        unchanged = counted(len(result.checks) - len(changed), "configurations")
        console.print(f"{unchanged} with every score as in the baseline.")
    noticed = [check.noticed_from for check in changed if check.noticed_from is not None]
    if not result.can_fail:
        say(console, too_few(result.units, result.unit, len(result.checks)), "yellow")
    elif noticed:
        least = number(min(noticed), max(check.before for check in changed))
        console.print(f"A {result.move} of less than about {least} cannot be detected here.")
    for name, reason in result.missing.items():
        say(console, f"{name} is in the baseline and has no score in this run: {reason}", "red")
    is_unsure = any(check.unsure for check in result.checks)
    say(console, result.verdict, ("yellow" if is_unsure else "green") if result.passed else "bold red")
    for sentence in _advice(result, is_unsure=is_unsure):
        say(console, sentence)


def _print_checks(console: Console, result: "Gate", checks: "Sequence[GateCheck]") -> None:
    from rag_eval.reports.gate_report import gate_figures, gate_word

    columns = {"configuration": False, "baseline": True, "run": True, result.move: True, "95 % interval": True}
    rows: list[list[str | Text]] = []
    for check in checks:
        word = gate_word(result, check)
        rows.append([check.configuration, *gate_figures(check), Text(word, style=GATE_STYLES.get(word, "red"))])
    if rows:
        print_table(console, columns | {"p": True, "verdict": False}, rows, fixed="verdict")


def _advice(result: "Gate", *, is_unsure: bool) -> Iterator[str]:
    """Say what to do after a gate."""
    if not result.passed:
        ship = "; or gate what you ship: rag-eval gate --configuration NAME" if result.missing and result.checks else ""
        yield f"If this is intended: rag-eval gate {result.run} --accept{ship}"
        return
    if is_unsure and len(result.checks) > 1:
        yield "Gating one is more sensitive: rag-eval gate --configuration NAME, such as the one you ship"
    if result.run == result.baseline:
        yield "The run is the baseline itself: run the benchmark again to compare."


def _accept(workspace: "Workspace", run: str, *, as_json: bool) -> None:
    """Make a run the baseline, and warn where no gate can be failed against it."""
    from rag_eval.results.gate import MAX_DROP, fewest_units, gate_units, large_allowance
    from rag_eval.results.runs import choose_baseline, read_run

    chosen = choose_baseline(workspace, run)
    console = Console()
    if as_json:
        print_json(console, chosen.model_dump())
        return
    baseline = read_run(workspace, chosen.run)
    of = f" of {baseline.config.name}" if baseline.config.name else ""
    say(console, f"The baseline{of} is {chosen.run}")
    configurations = len(baseline.configurations)
    try:
        units = gate_units(workspace, baseline)
    except ArtifactError as error:
        say(console, f"It cannot be gated against: {error}", "yellow")
        return
    metric = baseline.ranking_metric
    if warning := large_allowance(metric, [one.metrics[metric] for one in baseline.configurations], MAX_DROP):
        say(console, f"Warning: {warning}", "yellow")
    if units.count < fewest_units(configurations):
        say(console, too_few(units.count, units.kind, configurations), "yellow")


def too_few(units: int, unit: "Unit", configurations: int) -> str:
    """Say that no drop can fail the gate, and what would allow one to."""
    from rag_eval.results.gate import fewest_units, most_configurations

    together = f"{counted(units, unit)} and {counted(configurations, 'configurations')}"
    fewest = fewest_units(configurations)
    ways = [f"ask about {fewest} documents" if unit == "documents" else f"ask {fewest} questions"]
    most = most_configurations(units)
    if most:
        few = "one" if most == 1 else f"at most {most}"
        ways.insert(0, f"gate {few} of them with --configuration, such as the one you ship")
    return f"With {together} no drop can be significant, so none can fail the gate: {', or '.join(ways)}."
