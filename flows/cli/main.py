"""``rag-eval``. Prefect and everything heavy is imported only by the command that needs it.

Exit codes: 0 done, 1 a configuration or a check failed, 2 bad input, 3 a gate failed.
"""

import os
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

WorkspaceOption = Annotated[Path, typer.Option("--workspace", help="Where work is kept between runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
DEFAULT_WORKSPACE = Path(".rag-eval")


@app.callback()
def everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
) -> None:
    """Which way of chunking, embedding and searching your documents brings back the right content."""
    if debug:
        os.environ["RAG_EVAL_DEBUG"] = "1"


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="A benchmark as YAML or TOML; without it, the sample's.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Folder of documents, in place of the benchmark's.")] = None,
    truth: Annotated[Path | None, typer.Option(help="Ground truth, in place of the benchmark's.")] = None,
    glob: Annotated[str | None, typer.Option(help="Which files of the folder are documents.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    refresh: Annotated[bool, typer.Option("--refresh", help="Compute everything again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark and rank its configurations."""
    from flows.cli.benchmark import chosen_benchmark, run_benchmark
    from rag_eval.pipeline.workspace import Workspace

    chosen = chosen_benchmark(config, corpus, truth, glob)
    run_benchmark(chosen, Workspace(root=workspace.absolute(), refresh=refresh), as_json=as_json)


@app.command()
def validate(config: Annotated[Path, typer.Argument(help="A benchmark as YAML or TOML.")]) -> None:
    """Check a benchmark file, its documents and its ground truth, and list its configurations."""
    from flows.cli.benchmark import check_files
    from flows.cli.listing import print_configurations
    from rag_eval.config.load import load_config

    chosen = load_config(config)
    check_files(chosen)
    print_configurations(chosen)


@app.command()
def show(
    run: Annotated[str | None, typer.Argument(help="A run's name or the start of it; without it, the latest.")] = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    as_json: JsonOption = False,
) -> None:
    """Show what a run found."""
    from flows.cli.benchmark import print_result
    from rag_eval.pipeline.outcome import read_outcome
    from rag_eval.pipeline.workspace import Workspace

    kept = Workspace(root=workspace.absolute())
    print_result(read_outcome(kept, run), kept, as_json=as_json)


@app.command()
def chunkers() -> None:
    """List the chunkers and their settings."""
    from flows.cli.listing import print_components

    print_components("chunkers")


@app.command()
def embedders() -> None:
    """List the embedders and their settings."""
    from flows.cli.listing import print_components

    print_components("embedders")


@app.command()
def metrics() -> None:
    """List the metrics."""
    from flows.cli.listing import print_metrics

    print_metrics()


@app.command()
def cache(
    prune: Annotated[float | None, typer.Option(min=0, help="Remove work not used for so many days.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all work but the runs' summaries.")] = False,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
) -> None:
    """Show what a workspace holds, and make room in it."""
    from flows.cli.housekeeping import print_holdings

    print_holdings(workspace.absolute(), prune, clear)


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
    """Run the command; what goes wrong is one sentence on standard error, and a traceback only with ``--debug``."""
    try:
        app()
    except RagEvalError as error:
        _say(str(error))
        sys.exit(1 if isinstance(error, BenchmarkFailedError) else 2)
    except Exception as error:  # noqa: BLE001  # the last place where a fault of ours can be put into a sentence
        _say(f"{type(error).__name__}: {error}; run with --debug before the command to see where")
        sys.exit(1)


def _say(sentence: str) -> None:
    if os.environ.get("RAG_EVAL_DEBUG"):
        Console(stderr=True).print_exception()
    Console(stderr=True).print(f"rag-eval: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
