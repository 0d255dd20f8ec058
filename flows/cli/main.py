"""``rag-eval``. Prefect and everything heavy is imported only by the command that needs it."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from rag_eval.errors import BenchmarkFailedError, RagEvalError

app = typer.Typer(
    help="Which way of chunking, embedding and searching your documents brings back the right content.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    corpus: Annotated[Path | None, typer.Option(help="Folder of documents; without it, the sample.")] = None,
    truth: Annotated[Path | None, typer.Option(help="Ground truth as JSON lines; needed with --corpus.")] = None,
    glob: Annotated[str, typer.Option(help="Which files of the folder are documents.")] = "**/*.md",
    k: Annotated[int, typer.Option(min=1, help="How many chunks to retrieve for a query.")] = 5,
    workspace: Annotated[Path, typer.Option(help="Where work is kept between runs.")] = Path(".rag-eval"),
) -> None:
    """Compare two ways of chunking on your documents, or on the sample."""
    from flows.cli.benchmark import run_benchmark

    run_benchmark(corpus, truth, glob, k, workspace)


@app.command()
def certify(
    chunkers: Annotated[
        list[str] | None, typer.Argument(help="Built-in chunkers, or yours as module:name; without, all built-in ones.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the built-in chunker, such as chunk_size=200.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="A folder of texts to use in place of the built-in ones.")] = None,
    glob: Annotated[str, typer.Option(help="Which files of the folder are texts.")] = "**/*.md",
) -> None:
    """Check what chunkers do to text that breaks chunkers; exit code 1 when a check fails."""
    from flows.cli.certify import run_certification

    certificates = run_certification(chunkers or [], settings or [], texts, glob)
    if not all(certificate.passed for certificate in certificates):
        raise typer.Exit(1)


def main() -> None:
    """Run the command; a user's mistake is one sentence on standard error. Exit codes: 1 failed, 2 bad input."""
    try:
        app()
    except RagEvalError as error:
        Console(stderr=True).print(f"rag-eval: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1 if isinstance(error, BenchmarkFailedError) else 2)
