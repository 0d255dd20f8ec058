"""``rag-eval deploy``: make the deployments known to a Prefect server that lasts, for workers elsewhere."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli.console import (
    DEFAULT_WORKSPACE,
    CorpusOption,
    CronOption,
    GateMetricOption,
    GlobOption,
    MaxDropOption,
    RunnerOption,
    TruthOption,
    WorkspaceOption,
    visible,
)

if TYPE_CHECKING:
    from rag_eval.documents.watch import CorpusWatch

DEFAULT_GLOB = "**/*.md"
AGAIN_SECONDS = 5.0


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of the documents.")],
    glob: Annotated[str, typer.Option(help="Which files of the folder are documents.")] = DEFAULT_GLOB,
) -> None:
    """Tell the Prefect server when documents are added, changed or removed, until it is stopped."""
    from flows.cli.console import print_notes
    from flows.cli.processes import watched
    from flows.cli.server import use_lasting_server
    from rag_eval.documents.watch import CorpusWatch

    console = Console(stderr=True)
    print_notes(console)
    corpus = CorpusWatch(folder, glob)
    api = use_lasting_server()
    tell(console, f"watching {folder} for {glob}; changes go to {api}")
    # In a thread, because what watches files takes signals for itself.
    watched(lambda: emit_changes(corpus, threading.Event(), lambda words: tell(console, words)), lambda: None)


def emit_changes(corpus: "CorpusWatch", stop: threading.Event, tell: Callable[[str], object]) -> None:
    """Emit ``corpus.changed`` for every change until ``stop`` is set; what the server does not take is kept for it.

    Raises ``CorpusFolderError`` when the folder goes away.
    """
    from flows.deploying import emit_corpus_change
    from rag_eval.errors import ServiceError

    refused_until = 0.0
    for change in corpus.changes(stop):
        if time.monotonic() < refused_until:
            continue
        try:
            emit_corpus_change(corpus.folder, change)
        except ServiceError as error:
            tell(f"{error}; trying again")
            refused_until = time.monotonic() + AGAIN_SECONDS
            continue
        corpus.accept()
        tell(f"{corpus.folder.name}: {change}")


def tell(console: Console, words: str) -> None:
    """Say what happened, and when."""
    console.print(f"{time.strftime('%H:%M:%S')} {visible(words)}", highlight=False, markup=False, soft_wrap=True)


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
    from flows.cli.console import print_notes
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
