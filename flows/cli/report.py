"""``rag-eval report``: a run as one page to look at, beside an earlier run if asked."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import DEFAULT_WORKSPACE, AllowDifferentOption, WorkspaceOption
from flows.cli.text import say, visible


def report(
    run: Annotated[str, typer.Argument(help="latest, baseline, a run's name, or the start of it.")] = "latest",
    against: Annotated[str | None, typer.Option(metavar="RUN", help="An earlier run to compare with.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where to write it, as .html or .md; without it, into the run's folder.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    allow_different: AllowDifferentOption = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
) -> None:
    """Write a run's report: the answer, the ranking, charts, and every question with its text."""
    from rag_eval.pipeline.workspace import Workspace
    from rag_eval.reports.report import build_report
    from rag_eval.reports.write import is_markdown, page_of, write_report
    from rag_eval.results.runs import read_run

    if output is not None:
        is_markdown(output)  # says what is wrong with the name before anything is computed
    kept = Workspace.at(workspace)
    outcome = read_run(kept, run)
    before = read_run(kept, against) if against is not None else None
    built = build_report(kept, outcome, against=before, allow_different=allow_different)
    path = output.absolute() if output is not None else page_of(kept, outcome, before)
    write_report(kept, built, path)
    console = Console()
    console.print(Text(visible(str(built.answer))))
    say(console, f"Report: {path}")
    if open_:
        typer.launch(path.as_uri())
