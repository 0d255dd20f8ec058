"""Register the commands of ``rag-eval``, which import slow modules only when they run.

Exit codes: 0 success, 1 a configuration or a check failed, 2 bad input, 3 a gate failed, 4 it warned.
"""

import atexit
import gc
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from rag_eval.cli.compare_commands import compare, gate
from rag_eval.cli.console import visible
from rag_eval.cli.experiment_command import app as experiment_app
from rag_eval.cli.generate_command import generate
from rag_eval.cli.init_command import init
from rag_eval.cli.part_commands import parts
from rag_eval.cli.processes import Stopped, leave, stop_on_signals
from rag_eval.cli.publish_commands import publish
from rag_eval.cli.result_commands import cache, export, history, report, show
from rag_eval.cli.run_commands import run, validate
from rag_eval.cli.service_commands import deploy, up, watch
from rag_eval.cli.truth_commands import app as truth_app
from rag_eval.distribution import PRODUCT, VERSION
from rag_eval.errors import BenchmarkFailedError, ExperimentFailedError, RagEvalError, as_sentence, shown_sentences
from rag_eval.storage.files import disk_fault
from tasks.current_folder import ignore_settings_here

EVALUATE, MONITOR, REFERENCE = "Evaluate", "Evaluate continuously", "Reference"


class Commands(TyperGroup):
    """The commands of an app, with help that shows ``--port PORT`` and ``--json`` instead of Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the group, and name the values of its commands' parameters."""
        parameters = super().get_params(ctx)
        of_commands = [parameter for command in self.commands.values() for parameter in command.get_params(ctx)]
        for parameter in [*parameters, *of_commands]:
            if parameter.param_type_name == "argument":
                parameter.metavar = parameter.metavar or parameter.name.upper()
                vars(parameter).update(display_type_rich=lambda ctx: None)  # no Python type beside the name
            elif getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            elif parameter.metavar is None:
                parameter.metavar = max(parameter.opts, key=len).strip("-").replace("-", "_").upper()
        return parameters


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"{PRODUCT} {VERSION}")
        raise typer.Exit


@app.callback()
def everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find out which chunking, embedding and search retrieves the right content from your documents."""
    if debug:
        os.environ["RAG_EVAL_DEBUG"] = "1"


PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    EVALUATE: (init, run, validate, show, report, export, generate),
    MONITOR: (up, watch, deploy, history, compare, gate, publish, cache),
    REFERENCE: (parts,),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(truth_app, name="truth", cls=Commands, rich_help_panel=EVALUATE)
app.add_typer(experiment_app, name="experiment", cls=Commands, rich_help_panel=EVALUATE)

GARBAGE = 100_000, 20, 100
"""Garbage collector thresholds: imported modules stay, and scanning them takes a tenth of a short command."""


def main() -> None:
    """Run the command; print errors as one sentence on standard error, with a traceback only after ``--debug``."""
    stop_on_signals()
    ignore_settings_here()
    gc.set_threshold(*GARBAGE)
    atexit.register(gc.freeze)  # nothing is collected at exit
    try:
        app()
    except Stopped as stop:
        _print_errors(f"stopped; {stop.consequence}")
        leave(stop.exit_code)
    except RagEvalError as error:
        # Each configuration fails for its own reason, except on a full disk.
        fault = disk_fault(error) if isinstance(error, BenchmarkFailedError) else None
        _print_errors(*shown_sentences(error), *([fault] if fault else []))
        leave(1 if isinstance(error, BenchmarkFailedError | ExperimentFailedError) else 2)
    except Exception as error:  # noqa: BLE001  # an unexpected error is printed as a sentence too
        fault = disk_fault(error)
        _print_errors(fault or f"{as_sentence(error)}; run rag-eval --debug with the same command for a traceback")
        leave(1 if fault is None else 2)


def _print_errors(*sentences: str) -> None:
    console = Console(stderr=True)
    if os.environ.get("RAG_EVAL_DEBUG"):
        console.print_exception()
    for sentence in sentences:
        # Do not wrap in a file or a pipe, so that other programs read one line.
        console.print(Text(f"rag-eval: {visible(sentence)}", style="red"), soft_wrap=not console.is_terminal)
