"""``rag-eval deploy`` and ``rag-eval watch``: deployments on a lasting Prefect server, and events on changes."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from flows.cli import options
from flows.cli.console import print_notes, visible
from flows.cli.processes import watched
from rag_eval.documents.watch import CorpusWatch
from rag_eval.errors import ServiceError

DEFAULT_GLOB = "**/*.md"
AGAIN_SECONDS = 5.0


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder of documents.")],
    glob: options.DocumentGlobOption = DEFAULT_GLOB,
) -> None:
    """Report added, changed and removed documents to the Prefect server, until stopped."""
    from flows.cli.server import use_lasting_server

    console = Console(stderr=True)
    print_notes(console)
    corpus = CorpusWatch(folder, glob)
    api = use_lasting_server()
    tell(console, f"watching {folder} for {glob}; changes go to {api}")
    # In a thread, because what watches files takes signals for itself.
    watched(lambda: emit_changes(corpus, threading.Event(), lambda words: tell(console, words)))


def emit_changes(corpus: CorpusWatch, stop: threading.Event, tell: Callable[[str], object]) -> None:
    """Emit ``corpus.changed`` for every change until ``stop`` is set; what the server does not take is kept for it.

    Raises ``CorpusFolderError`` when the folder goes away.
    """
    from flows.deploying import emit_corpus_change

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
    """Print what happened, with the time."""
    console.print(f"{time.strftime('%H:%M:%S')} {visible(words)}", highlight=False, markup=False, soft_wrap=True)


def deploy(
    config: Annotated[
        Path | None, typer.Argument(help="Benchmark file on the workers' machines; by default the sample.")
    ] = None,
    corpus: options.CorpusOption = None,
    truth: options.TruthOption = None,
    glob: options.GlobOption = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
    runner: options.RunnerOption = "threads",
    cron: options.CronOption = None,
    gate_metric: options.GateMetricOption = None,
    max_drop: options.MaxDropOption = None,
    folder: Annotated[
        Path | None, typer.Option(help="Working directory on the workers' machines; by default the current one.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Work pool; by default rag-eval.")] = None,
    kubernetes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run as Kubernetes jobs, from this base job template.")
    ] = None,
) -> None:
    """Create or update the nightly, ad-hoc, on-change and experiment deployments on the Prefect server."""
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
    """Turn the options that were given into parameters of the deployed flow."""
    named = {"benchmark_file": config, "corpus": corpus, "truth": truth, "glob": glob, "gate_metric": gate_metric}
    given: dict[str, str | float] = {key: str(value) for key, value in named.items() if value is not None}
    return given | ({} if max_drop is None else {"max_drop": max_drop}) | {"workspace": workspace, "runner": runner}
