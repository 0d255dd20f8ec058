"""``rag-eval compare`` for two runs, and ``rag-eval gate`` for a run and the baseline."""

import os
import secrets
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from rag_eval.cli import options
from rag_eval.cli.console import Cell, print_json, print_table, say
from rag_eval.errors import ArtifactError, ConfigurationError, RagEvalError
from rag_eval.formatting import basis, counted, interval, number, p_value, signed
from rag_eval.storage.files import write_atomically, writing

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.compare import ComparedConfigurations, QueryChange, RunComparison
    from rag_eval.results.gate import Gate, GateCheck
    from rag_eval.stats.comparison import Comparison

STYLES = {"better": "green", "worse": "red", "no difference shown": ""}
GATE_STYLES = {"PASS": "green", "WARN": "yellow", "FAIL": "bold red"}
GATE_FAILED, GATE_WARNED = 3, 4
TEXT_CELLS = 60


def compare(
    before: options.RunArgument,
    after: Annotated[str, typer.Argument(help="Run to compare with it, named the same way.")],
    configurations: Annotated[
        list[str] | None,
        typer.Option("--configuration", help="Configuration, or NAME=NAME to compare two; repeatable."),
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Metric, such as span_recall@5; repeatable.")
    ] = None,
    queries: Annotated[int, typer.Option(min=0, help="Number of improved and of worsened queries to show.")] = 5,
    allow_different: options.AllowDifferentOption = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Compare two runs on the same queries: what improved, what worsened, and what is inconclusive."""
    from rag_eval.reports.against import recommendation_sentence
    from rag_eval.reports.verdict import verdict_of
    from rag_eval.results.compare import compare_runs, name_pairs
    from rag_eval.results.run_losses import drop_sentences
    from rag_eval.results.run_scores import read_scores
    from rag_eval.results.runs import read_both

    runs = read_both(workspace, before, after)
    pairs = name_pairs(*runs, configurations) if configurations else None
    comparison = compare_runs(workspace, *runs, pairs=pairs, metrics=metrics, allow_different=allow_different)
    console = Console(highlight=False)
    verdicts = [verdict_of(run, read_scores(workspace, run)) for run in runs]
    drops, recommendation = drop_sentences(workspace, comparison), recommendation_sentence(comparison, *verdicts)
    if as_json:
        print_json(console, _as_data(comparison, queries) | {"drops": drops, "recommendation": recommendation})
        return
    _print_comparison(console, comparison, is_named=bool(configurations))
    for sentence in (recommendation, *drops):
        say(console, sentence)
    rows = comparison.by_metric(comparison.metrics[0])
    for row in (rows if configurations else rows[:1]) if queries else []:  # those named, or the best one now
        _print_queries(console, row, comparison.query_changes(row), queries)


def _as_data(comparison: "RunComparison", queries: int) -> dict[str, object]:
    rows = []
    for row in comparison.rows:
        kinds = _worse_and_better(comparison.query_changes(row), queries)
        rows.append(asdict(row) | {"queries": {kind: list(map(asdict, changes)) for kind, changes in kinds.items()}})
    return {
        "before": comparison.before.run,
        "after": comparison.after.run,
        "differences": comparison.differences,
        "queries": comparison.queries,
        "left_out": comparison.unpaired(),
        "comparisons": rows,
    }


def _print_comparison(console: Console, comparison: "RunComparison", *, is_named: bool) -> None:
    """Print what changed by the first metric and fold the others; for named configurations print everything."""
    from rag_eval.reports.against import left_out_sentences, other_metrics_sentence

    first, *others = comparison.metrics
    test = comparison.rows[0].comparison
    say(console, f"{comparison.before.run} → {comparison.after.run}")
    rests_on = basis(comparison.queries, test.units, test.unit, " in both runs")
    say(console, f"{rests_on}; change is after minus before")
    for difference in comparison.differences:
        say(console, f"Warning: {difference}", "yellow")
    leading = comparison.by_metric(first)
    shown = comparison.rows if is_named else [row for row in leading if not row.comparison.is_same]
    columns = {"before": True, "after": True, "change": True, "95 % interval": True, "p": True, "verdict": False}
    for metric in (first, *others):
        cells = [[row.name, *_cells(row)] for row in shown if row.metric == metric]
        if cells:
            print_table(console, {"configuration": False} | columns, cells, metric, fixed="verdict")
    if any(_word(row.comparison) == "inconclusive" for row in shown):
        console.print("inconclusive: the difference may be due to chance.")
    if is_named:
        return
    if unchanged := len(leading) - len(shown):
        total = counted(len(leading), "configurations")
        console.print(f"In {unchanged:,} of {total} every query has the same {first} as before.", soft_wrap=True)
    for sentence in [*other_metrics_sentence(comparison), *left_out_sentences(comparison)]:
        say(console, sentence)


def _cells(row: "ComparedConfigurations") -> list[Cell]:
    test = row.comparison
    beside = max(test.before, test.after)
    return [
        number(test.before, beside),
        number(test.after, beside),
        signed(test.difference, beside),
        interval(test.low, test.high, with_sign=True, beside=beside),
        p_value(test.p_adjusted),
        Text(_word(test), style=STYLES[test.verdict]),
    ]


def _word(comparison: "Comparison") -> str:
    if comparison.is_same:
        return "the same"
    return "inconclusive" if comparison.verdict == "no difference shown" else comparison.verdict


def _worse_and_better(changes: list["QueryChange"], most: int) -> dict[str, list["QueryChange"]]:
    worse = [change for change in changes if change.gain < 0][:most]
    better = [change for change in reversed(changes) if change.gain > 0][:most]
    return {"worse": worse, "better": better}


def _print_queries(console: Console, row: "ComparedConfigurations", changes: list["QueryChange"], most: int) -> None:
    test = row.comparison
    rows: list[list[Cell]] = []
    for label, kind in _worse_and_better(changes, most).items():
        for change in kind:
            beside = max(change.before, change.after)
            scores = number(change.before, beside), number(change.after, beside)
            text = textwrap.shorten(change.text, TEXT_CELLS, placeholder="…")
            rows.append([Text(label, style=STYLES[label]), *scores, text, change.document])
    if rows:
        say(
            console, f"{row.name}, {row.metric}: {test.better} better, {test.worse} worse, {test.equal} equal", "italic"
        )
        columns = {"": False, "before": True, "after": True, "query": False, "document": False}
        print_table(console, columns, rows)


def gate(
    run: options.RunArgument = "latest",
    metric: Annotated[
        str | None,
        typer.Option(help="Metric, such as span_recall@5.", show_default="the baseline's ranking metric"),
    ] = None,
    max_drop: options.MaxDropOption = None,
    configurations: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            help="Configuration, or NAME=NAME to compare two; repeatable.",
            show_default="all in the baseline",
        ),
    ] = None,
    fail_on_warn: options.FailOnWarnOption = False,
    allow_different: options.AllowDifferentOption = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a JUnit report with a test case per configuration.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Write the job summary and annotations of GitHub Actions.")
    ] = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    accept: Annotated[
        bool, typer.Option("--accept", help="Make the run the baseline of its benchmark instead of comparing it.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a run with the baseline: FAIL (exit code 3), WARN (0, or 4 with --fail-on-warn) or PASS (0)."""
    if accept:
        _accept(workspace, run, as_json=as_json)
        return
    from rag_eval.reports.gate_report import gate_annotations
    from rag_eval.results.gate import MAX_DROP, run_gate
    from rag_eval.results.runs import BASELINE, check_finished, read_both

    if github and not os.environ.get("GITHUB_STEP_SUMMARY"):
        raise ConfigurationError("--github needs GITHUB_STEP_SUMMARY, which GitHub Actions sets: remove it elsewhere")
    try:
        check_finished(workspace, run)
        baseline, candidate = read_both(workspace, BASELINE, run)
        result = run_gate(
            workspace,
            baseline,
            candidate,
            metric or baseline.ranking_metric,
            MAX_DROP if max_drop is None else max_drop,
            configurations=configurations,
            allow_different=allow_different,
            fail_on_warn=fail_on_warn,
        )
    except RagEvalError as error:
        _write_for_ci(error, junit, github=github)
        if github and not as_json:
            typer.echo("\n".join(gate_annotations(error)))
        raise
    _write_for_ci(result, junit, github=github)
    console = Console(highlight=False)
    if as_json:
        print_json(console, _gate_data(result))
    else:
        token = secrets.token_hex(16)  # a tool must not read this output as workflow commands
        if github:
            typer.echo(f"::stop-commands::{token}")
        _print_gate(console, result)
        if github:
            typer.echo("\n".join([f"::{token}::", *gate_annotations(result)]))
    if not result.passed:
        raise typer.Exit(GATE_FAILED if result.answer == "FAIL" else GATE_WARNED)


def _gate_data(result: "Gate") -> dict[str, object]:
    checks = [asdict(check) | {"answer": check.answer} for check in result.checks]
    more = {"answer": result.answer, "passed": result.passed, "warning": result.warning, "verdict": result.verdict}
    return asdict(result) | {"checks": checks} | more


def _write_for_ci(result: "Gate | RagEvalError", junit: Path | None, *, github: bool) -> None:
    """Write the JUnit report and the GitHub summary of a gate, or of the error that prevented it."""
    from rag_eval.reports.gate_report import gate_junit, gate_markdown

    if junit is not None:
        write_atomically(junit, gate_junit(result))
    if github:
        summary = Path(os.environ["GITHUB_STEP_SUMMARY"])
        with writing(summary), summary.open("a", encoding="utf-8") as page:
            page.write(f"## Retrieval\n\n{gate_markdown(result)}\n")
    if github and not isinstance(result, Exception) and (output := os.environ.get("GITHUB_OUTPUT")):
        with writing(Path(output)), Path(output).open("a", encoding="utf-8") as lines:
            lines.write(f"answer={result.answer}\n")


def _print_gate(console: Console, result: "Gate") -> None:
    from rag_eval.reports.gate_report import gate_notes

    say(console, f"{result.run} against the baseline {result.baseline}")
    say(console, result.terms)
    for difference in [*result.differences, *filter(None, [result.warning])]:
        say(console, f"Warning: {difference}", "yellow")
    changed = [check for check in result.checks if check.changed]
    if changed:
        _print_checks(console, result, changed)
    if unchanged := len(result.checks) - len(changed):
        console.print(f"{counted(unchanged, 'configurations')} with the same scores as in the baseline.")
    for name, reason in result.missing.items():
        say(console, f"{name} is in the baseline and has no score in this run: {reason}", "red")
    for note in gate_notes(result):
        say(console, note)
    say(console, result.verdict, GATE_STYLES[result.answer])
    for sentence in _advice(result):
        say(console, sentence)


def _print_checks(console: Console, result: "Gate", checks: "Sequence[GateCheck]") -> None:
    """Print the configurations that changed."""
    from rag_eval.reports.gate_report import gate_figures

    columns = {"configuration": False, "baseline": True, "run": True, result.move: True, "95 % interval": True}
    rows: list[list[Cell]] = [
        [check.configuration, *gate_figures(check), Text(check.answer, style=GATE_STYLES[check.answer])]
        for check in checks
    ]
    print_table(console, columns | {"p": True, "verdict": False}, rows, fixed="verdict")


def _advice(result: "Gate") -> Iterator[str]:
    """Yield what to do next."""
    if not result.passed:
        ship = "; or gate what you ship: rag-eval gate --configuration NAME" if result.missing and result.checks else ""
        yield f"If this is intended: rag-eval gate {result.run} --accept{ship}"
        return
    if result.answer == "WARN":
        yield "Ask about more documents to be certain, or let warnings fail: rag-eval gate --fail-on-warn"
        if len(result.checks) > 1:
            yield "Gating one is more sensitive: rag-eval gate --configuration NAME, such as the one you ship"
    if result.run == result.baseline:
        yield "The run is the baseline itself: nothing has changed since, or no benchmark ran."


def _accept(workspace: "Workspace", run: str, *, as_json: bool) -> None:
    """Make a run the baseline, and say which drop a gate against it can certify."""
    from rag_eval.results.gate import MAX_DROP, baseline_power, large_allowance
    from rag_eval.results.runs import choose_baseline, read_run

    chosen = choose_baseline(workspace, run)
    console = Console()
    if as_json:
        print_json(console, chosen.model_dump())
        return
    baseline = read_run(workspace, chosen.run)
    of = f" of {baseline.config.name}" if baseline.config.name else ""
    say(console, f"The baseline{of} is now {chosen.run}")
    metric, rows = baseline.ranking_metric, baseline.configurations
    try:
        power = baseline_power(workspace, baseline)
    except ArtifactError as error:
        say(console, f"No run can be compared with it: {error}", "yellow")
        return
    if warning := large_allowance(metric, [row.metrics[metric] for row in rows], MAX_DROP):
        say(console, f"Warning: {warning}", "yellow")
    say(console, power)
