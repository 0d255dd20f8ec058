"""``rag-eval truth review``: a local page to review ground truth on the documents' own text."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def review(
    truth: Annotated[Path, typer.Argument(help="Ground truth as JSON lines; decisions are saved to it.")],
    corpus: Annotated[Path, typer.Option(help="Folder of documents.")],
    glob: Annotated[str, typer.Option(help="Which files of the folder are documents.")] = "**/*.md",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Accept, reject and adjust spans on a page that only this machine can see, until Ctrl+C."""
    from rich.console import Console

    from flows.cli.stopping import Stopped
    from flows.cli.text import say
    from rag_eval.ground_truth.review.serve import serve_review

    console = Console()

    def started(address: str) -> None:
        say(console, f"Review at {address}")
        say(console, "Every decision is saved at once; Ctrl+C ends the review.")
        if not no_browser:
            webbrowser.open(address)

    try:
        serve_review(truth, corpus, glob, port, on_start=started)
    except Stopped:
        say(console, "Ended; every decision is saved.")
