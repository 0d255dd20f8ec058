"""``rag-eval deploy``: make the deployments known to a Prefect server that lasts, for workers elsewhere."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import DEFAULT_WORKSPACE, WorkspaceOption
from flows.cli.text import visible


def deploy(
    config: Annotated[
        Path | None, typer.Argument(help="A benchmark on the workers' machines; without it, the sample's.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of documents, in place of the benchmark's.")] = None,
    truth: Annotated[Path | None, typer.Option(help="Ground truth, in place of the benchmark's.")] = None,
    glob: Annotated[str | None, typer.Option(help="Which files of the folder are documents.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    runner: Annotated[
        str, typer.Option(help="Where configurations are evaluated: threads, processes, dask or ray.")
    ] = "threads",
    cron: Annotated[str | None, typer.Option(help="When the nightly run is, in cron's words: '0 3 * * *'.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where runs happen on the workers' machines; without it, this folder.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="The work pool, in place of rag-eval.")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Runs are Kubernetes jobs, from this base job template.")
    ] = None,
) -> None:
    """Make the nightly, ad-hoc and on-change deployments known to the Prefect server, for workers to run."""
    from flows.cli.quiet import print_notes
    from flows.cli.server import use_lasting_server

    console = Console(stderr=True)
    print_notes(console)
    api = use_lasting_server()
    from flows.deploying import deploy as make_known

    parameters = deployment_parameters(config, corpus, truth, glob, workspace, runner)
    ids = make_known(folder or Path.cwd(), parameters, cron, pool, kubernetes)
    for name, number in ids.items():
        page = f"{api.removesuffix('/api')}/deployments/deployment/{number}"
        console.print(Text(visible(f"{name:18}{page}")), soft_wrap=True)


def deployment_parameters(
    config: Path | None, corpus: Path | None, truth: Path | None, glob: str | None, workspace: str, runner: str
) -> dict[str, str]:
    """What was given, as parameters of the deployed flow."""
    given = {"benchmark_file": config, "corpus": corpus, "truth": truth, "glob": glob}
    return {key: str(value) for key, value in given.items() if value is not None} | {
        "workspace": workspace,
        "runner": runner,
    }
