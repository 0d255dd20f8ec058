"""``rag-eval gate`` and ``rag-eval baseline``: compare a run with the baseline, and choose the baseline."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli import options
from flows.cli.console import plain_table, print_json, say, visible
from rag_eval.errors import ArtifactError
from rag_eval.formatting import counted, number

if TYPE_CHECKING:
    from rag_eval.benchmark.gate import Gate
    from rag_eval.benchmark.outcome import BenchmarkOutcome
    from rag_eval.benchmark.workspace import Workspace
    from rag_eval.stats.scores import Unit

GATE_FAILED = 3
STYLES = {"ok": "green", "inconclusive": "yellow"}


def gate(
    run: Annotated[str, typer.Argument(help="latest, a run's name, or the start of it.")] = "latest",
    metric: Annotated[
        str | None, typer.Option(help="Such as span_recall@5; without it, what the baseline is ranked by.")
    ] = None,
    max_drop: Annotated[float, typer.Option(help="How far the metric may drop.")] = 0.0,
    configurations: Annotated[
        list[str] | None,
        typer.Option("--configuration", help="Gate this one, in place of all in the baseline; may be repeated."),
    ] = None,
    allow_different: options.AllowDifferentOption = False,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a run with the baseline; exit code 3 if a metric dropped by more than allowed, significantly so."""
    from rag_eval.benchmark.gate import run_gate
    from rag_eval.benchmark.runs import BASELINE, read_run
    from rag_eval.benchmark.workspace import Workspace

    kept = Workspace.at(workspace)
    baseline, candidate = read_run(kept, BASELINE), read_run(kept, run)
    found = run_gate(
        kept,
        baseline,
        candidate,
        metric or baseline.ranking_metric,
        max_drop,
        configurations=configurations,
        allow_different=allow_different,
    )
    console = Console()
    if as_json:
        print_json(console, asdict(found) | {"passed": found.passed})
    else:
        _print_gate(console, found)
    if not found.passed:
        raise typer.Exit(GATE_FAILED)


def _print_gate(console: Console, found: "Gate") -> None:
    from rag_eval.reports.against import gate_figures, gate_word

    console.print(Text(f"{found.run} against the baseline {found.baseline}"), soft_wrap=True)
    console.print(found.terms, highlight=False)
    for difference in found.differences:
        console.print(Text(f"Warning: {visible(difference)}", style="yellow"), soft_wrap=True)
    changed = [check for check in found.checks if check.changed]
    if changed:
        columns = {"configuration": False, "baseline": True, "run": True, found.move: True, "95 % interval": True}
        table = plain_table(None, columns | {"p": True, "verdict": False}, fixed="verdict")
        for check in changed:
            word = gate_word(found, check)
            verdict = Text(word, style=STYLES.get(word, "red"))
            table.add_row(Text(visible(check.configuration)), *gate_figures(check), verdict)
        console.print(table)
    if len(found.checks) > len(changed):
        unchanged = counted(len(found.checks) - len(changed), "configurations")
        console.print(f"{unchanged} with every score as in the baseline.", highlight=False)
    noticed = [check.noticed_from for check in changed if check.noticed_from is not None]
    if not found.can_fail:
        say(console, too_few(found.units, found.unit, len(found.checks)), "yellow")
    elif noticed:
        least = number(min(noticed), max(check.before for check in changed))
        console.print(f"A {found.move} of less than about {least} cannot be detected here.", highlight=False)
    for name, reason in found.missing.items():
        sentence = f"{visible(name)} is in the baseline and has no score in this run: {visible(reason)}"
        console.print(Text(sentence, style="red"), soft_wrap=True)
    unsure = any(check.unsure for check in found.checks)
    style = ("yellow" if unsure else "green") if found.passed else "bold red"
    console.print(Text(found.verdict, style=style), soft_wrap=True)
    if found.passed:
        if unsure and len(found.checks) > 1:
            say(console, "Gating one is more sensitive: rag-eval gate --configuration NAME, such as the one you ship")
        if found.run == found.baseline:
            say(console, "The run is the baseline itself: run the benchmark again to compare.", "yellow")
        return
    shipped = "; or gate what you ship: rag-eval gate --configuration NAME" if found.missing and found.checks else ""
    say(console, f"If this is intended: rag-eval baseline set {found.run}{shipped}")


def too_few(units: int, unit: "Unit", configurations: int) -> str:
    """Say that no drop can fail the gate, and what would allow one to."""
    from rag_eval.benchmark.gate import fewest_units, most_configurations

    together = f"{counted(units, unit)} and {counted(configurations, 'configurations')}"
    fewest = fewest_units(configurations)
    ways = [f"ask about {fewest} documents" if unit == "documents" else f"ask {fewest} questions"]
    most = most_configurations(units)
    if most:
        few = "one" if most == 1 else f"at most {most}"
        ways.insert(0, f"gate {few} of them with --configuration, such as the one you ship")
    return f"With {together} no drop can be significant, so none can fail the gate: {', or '.join(ways)}."


app = typer.Typer(help="Choose and show the run that others are compared with.", no_args_is_help=True)


@app.command("set")
def choose(
    run: Annotated[str, typer.Argument(help="latest, a run's name, or the start of it.")],
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    as_json: options.JsonOption = False,
) -> None:
    """Make a run the baseline."""
    from rag_eval.benchmark.runs import choose_baseline, read_run
    from rag_eval.benchmark.workspace import Workspace

    kept = Workspace.at(workspace)
    chosen = choose_baseline(kept, run)
    console = Console()
    if as_json:
        print_json(console, asdict(chosen))
        return
    console.print(Text(f"The baseline is {chosen.run}"), soft_wrap=True)
    _warn(console, kept, read_run(kept, chosen.run))


@app.command()
def show(workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE, as_json: options.JsonOption = False) -> None:
    """Show the baseline, when it was chosen, and its ranking."""
    from flows.cli.ranking import print_result
    from rag_eval.benchmark.runs import BASELINE, read_baseline, read_run
    from rag_eval.benchmark.workspace import Workspace

    kept = Workspace.at(workspace)
    chosen = read_baseline(kept)
    console = Console()
    if as_json:
        print_json(console, asdict(chosen))
        return
    console.print(Text(f"{chosen.run}, chosen {chosen.chosen}"), soft_wrap=True)
    print_result(read_run(kept, BASELINE), kept, as_json=False)


def _warn(console: Console, kept: "Workspace", baseline: "BenchmarkOutcome") -> None:
    """Warn when the baseline has too few units for a gate to fail."""
    from rag_eval.benchmark.gate import fewest_units, gate_units

    configurations = len(baseline.configurations)
    try:
        units = gate_units(kept, baseline)
    except ArtifactError as error:
        say(console, f"It cannot be gated against: {error}", "yellow")
        return
    if units.count < fewest_units(configurations):
        say(console, too_few(units.count, units.kind, configurations), "yellow")
