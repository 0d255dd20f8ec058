"""``rag-eval deploy``: make the deployments known to a Prefect server that lasts, for workers elsewhere."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import (
    DEFAULT_WORKSPACE,
    CorpusOption,
    CronOption,
    GateMetricOption,
    GlobOption,
    MaxDropOption,
    RunnerOption,
    TruthOption,
    WorkspaceOption,
)
from flows.cli.text import visible


def deploy(
    config: Annotated[
        Path | None, typer.Argument(help="A benchmark on the workers' machines; without it, the sample's.")
    ] = None,
    corpus: CorpusOption = None,
    truth: TruthOption = None,
    glob: GlobOption = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    runner: RunnerOption = "threads",
    cron: CronOption = None,
    gate_metric: GateMetricOption = None,
    max_drop: MaxDropOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where runs happen on the workers' machines; without it, this folder.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="The work pool, in place of rag-eval.")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Runs are Kubernetes jobs, from this base job template.")
    ] = None,
) -> None:
    """Make the nightly, ad-hoc, on-change and experiment deployments known to the Prefect server, for its workers."""
    from flows.cli.quiet import print_notes
    from flows.cli.server import use_lasting_server

    console = Console(stderr=True)
    print_notes(console)
    api = use_lasting_server()
    from flows.deploying import deploy as make_known

    parameters = deployment_parameters(config, corpus, truth, glob, workspace, runner, gate_metric, max_drop)
    ids = make_known(folder or Path.cwd(), parameters, cron, pool, kubernetes)
    for name, number in ids.items():
        page = f"{api.removesuffix('/api')}/deployments/deployment/{number}"
        console.print(Text(visible(f"{name:18}{page}")), soft_wrap=True)


def deployment_parameters(
    config: Path | None,
    corpus: Path | None,
    truth: Path | None,
    glob: str | None,
    workspace: str,
    runner: str,
    gate_metric: str | None,
    max_drop: float | None,
) -> dict[str, str | float]:
    """What was given, as parameters of the deployed flow."""
    named = {"benchmark_file": config, "corpus": corpus, "truth": truth, "glob": glob, "gate_metric": gate_metric}
    given: dict[str, str | float] = {key: str(value) for key, value in named.items() if value is not None}
    return given | ({} if max_drop is None else {"max_drop": max_drop}) | {"workspace": workspace, "runner": runner}
