"""``rag-eval``. Prefect and everything heavy is imported only by the command that needs it.

Exit codes: 0 done, 1 a configuration or a check failed, 2 bad input, 3 a gate failed.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from flows.cli.compare import compare
from flows.cli.console import (
    DEFAULT_WORKSPACE,
    CorpusOption,
    GlobOption,
    JsonOption,
    RunnerOption,
    TruthOption,
    WorkspaceOption,
    visible,
)
from flows.cli.deploy import deploy, watch
from flows.cli.experiment import app as experiment_app
from flows.cli.gate import app as baseline_app
from flows.cli.gate import gate
from flows.cli.generate import generate
from flows.cli.parts import parts, schema
from flows.cli.processes import Stopped, leave, stop_on_signals
from flows.cli.publish import publish
from flows.cli.runs import cache, history, report, show
from flows.cli.truth import app as truth_app
from flows.cli.up import up
from rag_eval.errors import BenchmarkFailedError, ExperimentFailedError, RagEvalError, as_sentence, shown_sentences

EVALUATE = "Evaluate"
LOOK = "What there is to choose from"
KEEP = "Every day"


class Commands(TyperGroup):
    """The commands of an app, whose help shows ``--json`` where typer would show ``--json <bool>``."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or None."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _name_no_types_of_switches(command, ctx)
        return command

    def get_params(self, ctx: Any) -> Any:
        """The app's own options."""
        return _without_types(super().get_params(ctx))


def _name_no_types_of_switches(command: Any, ctx: Any) -> None:
    _without_types(command.get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        _name_no_types_of_switches(inner, ctx)


def _without_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


app = typer.Typer(
    cls=Commands,
    help="Which way of chunking, embedding and searching your documents brings back the right content.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(truth_app, name="truth", rich_help_panel=EVALUATE)
app.command(rich_help_panel=EVALUATE)(generate)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"rag-eval {version('rag-eval')}")
        raise typer.Exit


@app.callback()
def everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which way of chunking, embedding and searching your documents brings back the right content."""
    if debug:
        os.environ["RAG_EVAL_DEBUG"] = "1"


@app.command(rich_help_panel=EVALUATE)
def run(
    config: Annotated[
        Path | None, typer.Argument(help="A benchmark as YAML or TOML; without it, the sample's.")
    ] = None,
    corpus: CorpusOption = None,
    truth: TruthOption = None,
    glob: GlobOption = None,
    workspace: WorkspaceOption = DEFAULT_WORKSPACE,
    runner: RunnerOption = "threads",
    refresh: Annotated[bool, typer.Option("--refresh", help="Compute everything again.")] = False,
    reanchor: Annotated[
        bool, typer.Option("--reanchor", help="Carry spans over to documents that have changed, for this run.")
    ] = False,
    publish_to: Annotated[
        str | None,
        typer.Option("--publish", metavar="DATASET", help="A LangSmith dataset for an experiment per configuration."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark and rank its configurations."""
    from flows.cli.benchmark import run_benchmark
    from rag_eval.benchmark.config import check_runner
    from rag_eval.benchmark.config_files import chosen_benchmark
    from rag_eval.benchmark.workspace import Workspace

    chosen = chosen_benchmark(config, corpus, truth, glob, publish_to)
    check_runner(runner)
    kept = Workspace.at(workspace, refresh=refresh)
    run_benchmark(chosen, kept, runner, reanchor=reanchor, as_json=as_json)


@app.command(rich_help_panel=EVALUATE)
def validate(config: Annotated[Path, typer.Argument(help="A benchmark as YAML or TOML.")]) -> None:
    """Check a benchmark file, its documents and its ground truth, and list its configurations."""
    from flows.cli.benchmark import check_files
    from flows.cli.parts import print_configurations
    from rag_eval.benchmark.config_files import load_config

    chosen = load_config(config)
    check_files(chosen)
    print_configurations(chosen)


@app.command(rich_help_panel=EVALUATE)
def certify(
    chunkers: Annotated[
        list[str] | None, typer.Argument(help="Built-in chunkers, or yours as module:name; without, all built-in ones.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the built-in chunker, such as chunk_size=200.")
    ] = None,
    texts: Annotated[Path | None, typer.Option(help="A folder of texts to use in place of the built-in ones.")] = None,
    glob: Annotated[str, typer.Option(help="Which files of the folder are texts.")] = "**/*.md",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a README.")] = False,
) -> None:
    """Check what chunkers do to text that breaks chunkers; exit code 1 when a check fails."""
    from flows.cli.certify import run_certification

    certificates = run_certification(chunkers or [], settings or [], texts, glob, markdown=markdown)
    if not all(certificate.passed for certificate in certificates):
        raise typer.Exit(1)


app.command(rich_help_panel=EVALUATE)(show)
app.command(rich_help_panel=EVALUATE)(report)
app.command(rich_help_panel=KEEP)(up)
app.command(rich_help_panel=KEEP)(watch)
app.command(rich_help_panel=KEEP)(deploy)
app.command(rich_help_panel=KEEP)(history)
app.command(rich_help_panel=KEEP)(compare)
app.command(rich_help_panel=KEEP)(cache)
app.add_typer(baseline_app, name="baseline", rich_help_panel=KEEP)
app.command(rich_help_panel=KEEP)(gate)
app.command(rich_help_panel=KEEP)(publish)
app.add_typer(experiment_app, name="experiment", rich_help_panel=EVALUATE)
app.command(rich_help_panel=LOOK)(parts)
app.command(rich_help_panel=LOOK)(schema)


def main() -> None:
    """Run the command; what goes wrong is one sentence on standard error, and a traceback only with ``--debug``."""
    stop_on_signals()
    try:
        app()
    except Stopped as stop:
        _say(f"stopped; {stop.consequence}")
        leave(stop.exit_code)
    except RagEvalError as error:
        _say(*shown_sentences(error))
        leave(1 if isinstance(error, BenchmarkFailedError | ExperimentFailedError) else 2)
    except Exception as error:  # noqa: BLE001  # the last place where a fault of ours can be put into a sentence
        _say(f"{as_sentence(error)}; run with --debug before the command to see where")
        leave(1)


def _say(*sentences: str) -> None:
    console = Console(stderr=True)
    if os.environ.get("RAG_EVAL_DEBUG"):
        console.print_exception()
    for sentence in sentences:
        # One line, whatever its length, for who reads it with another program.
        console.print(Text(f"rag-eval: {visible(sentence)}", style="red"), soft_wrap=not console.is_terminal)
