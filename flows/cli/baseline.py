"""``rag-eval baseline``: which run the others are held against."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.figures import print_json
from flows.cli.gate import too_few
from flows.cli.options import DEFAULT_WORKSPACE, JsonOption, WorkspaceOption
from flows.cli.text import say

if TYPE_CHECKING:
    from rag_eval.pipeline.outcome import BenchmarkOutcome
    from rag_eval.pipeline.workspace import Workspace

app = typer.Typer(help="Choose the run that others are held against, and show it.", no_args_is_help=True)


@app.command("set")
def choose(
    run: Annotated[str, typer.Argument(help="latest, a run's name, or the start of it.")],
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Make a run the baseline, in place of the one before."""
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.runs import choose_baseline, read_run

    kept = Workspace.at(workspace)
    chosen = choose_baseline(kept, run)
    console = Console()
    if as_json:
        print_json(console, asdict(chosen))
        return
    console.print(Text(f"The baseline is {chosen.run}"), soft_wrap=True)
    _warn(console, kept, read_run(kept, chosen.run))


@app.command()
def show(workspace: WorkspaceOption = DEFAULT_WORKSPACE, as_json: JsonOption = False) -> None:
    """Show the baseline, when it was chosen, and what it found."""
    from flows.cli.result import print_result
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.results.runs import BASELINE, read_baseline, read_run

    kept = Workspace.at(workspace)
    chosen = read_baseline(kept)
    console = Console()
    if as_json:
        print_json(console, asdict(chosen))
        return
    console.print(Text(f"{chosen.run}, chosen {chosen.chosen}"), soft_wrap=True)
    print_result(read_run(kept, BASELINE), kept, as_json=False)


def _warn(console: Console, kept: "Workspace", baseline: "BenchmarkOutcome") -> None:
    """Say when there is too little in the baseline for a gate to fail."""
    from rag_eval.errors import ArtifactError
    from rag_eval.results.gate import fewest_units, gate_units

    configurations = len(baseline.configurations)
    try:
        units = gate_units(kept, baseline)
    except ArtifactError as error:
        say(console, f"No gate can be held against it: {error}", "yellow")
        return
    if units.count < fewest_units(configurations):
        say(console, too_few(units.count, units.kind, configurations), "yellow")
