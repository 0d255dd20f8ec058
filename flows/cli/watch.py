"""``rag-eval watch``: tell Prefect when documents change."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from flows.cli.text import visible

if TYPE_CHECKING:
    from rag_eval.corpus_watch import CorpusWatch

DEFAULT_GLOB = "**/*.md"
AGAIN_SECONDS = 5.0


def watch(
    folder: Annotated[Path, typer.Argument(help="The folder of the documents.")],
    glob: Annotated[str, typer.Option(help="Which files of the folder are documents.")] = DEFAULT_GLOB,
) -> None:
    """Tell the Prefect server when documents are added, changed or removed, until it is stopped."""
    from flows.cli.quiet import print_notes
    from flows.cli.server import use_lasting_server
    from flows.cli.stopping import watched
    from rag_eval.corpus_watch import CorpusWatch

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
    from flows.corpus_events import emit_corpus_change
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
