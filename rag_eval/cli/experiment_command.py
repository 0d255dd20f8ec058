"""``rag-eval experiment``: run the experiments of a Python file, or answer questions from the passages of a run."""

import contextlib
import logging
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
import watchfiles
from rich.console import Console

from rag_eval.cli import options
from rag_eval.cli.console import print_json, say
from rag_eval.cli.processes import Stopped, as_interrupts, leaving
from rag_eval.errors import ExperimentError, ExperimentFailedError
from rag_eval.formatting import counted

app = typer.Typer(help="Run experiments: any task on any data with any evaluators.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(help="Python file that runs one or more experiments.")]
ConcurrencyOption = Annotated[
    int | None, typer.Option(min=1, help="Maximum number of concurrent calls.", show_default="set in the file")
]
FailUnderOption = Annotated[
    list[str] | None,
    typer.Option("--fail-under", help="Minimum as metric=value; exit code 3 below it; repeatable."),
]
OutputDirOption = Annotated[
    Path | None, typer.Option(help="Folder for results.", show_default="set in the project file")
]


@app.command()
def run(
    file: FileArgument,
    concurrency: ConcurrencyOption = None,
    fail_under: FailUnderOption = None,
    output_dir: OutputDirOption = None,
    as_json: options.JsonOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent to orq.ai, and send nothing.")
    ] = False,
) -> None:
    """Run the experiments of a file; exit code 1 if a call failed, 3 if an average is below its minimum."""
    from rag_eval.experiments.experiment_file import Session, load_settings, run_file
    from rag_eval.experiments.file_outputs import JsonOutput, head_record, summary_record
    from rag_eval.experiments.results import OutputHandler, below, parse_minimums

    minimums = parse_minimums(fail_under or [])
    outputs: list[OutputHandler] | None = None
    if dry_run:
        from rag_eval.experiments.service_outputs import OrqOutput

        settings = load_settings().updated({"output_dir": output_dir})
        outputs = [JsonOutput(settings.output_dir), OrqOutput(settings.orq, dry_run=sys.stdout)]
    opened = Session(concurrency, output_dir, outputs, is_quiet=as_json, raises=False)
    # The output of the file itself must not mix with the JSON.
    aside = contextlib.redirect_stdout(sys.stderr) if as_json or dry_run else contextlib.nullcontext()
    with aside, leaving("finished samples are saved, and the same command continues from there"), as_interrupts():
        results = run_file(file, opened)
    if as_json:
        records = [
            head_record(result) | {"summary": summary_record(result), "saved": result.saved} for result in results
        ]
        print_json(Console(), records)
    failed = [result for result in results if result.failed]
    if failed:
        raise ExperimentFailedError("; ".join(result.failure for result in failed), failed[0])
    missed = below(results, minimums)
    for sentence in missed:
        typer.echo(f"rag-eval: {sentence}", err=True)
    if missed:
        raise typer.Exit(3)


@app.command()
def answers(
    run: options.RunArgument = "latest",
    configuration: Annotated[
        list[str] | None,
        typer.Option(help="Configuration to answer from; repeatable.", show_default="the best and the last"),
    ] = None,
    model: Annotated[str, typer.Option(help="Model that answers.")] = "gpt-4.1-mini",
    judge: Annotated[str | None, typer.Option(help="Model that judges.", show_default="the one that answers")] = None,
    questions: Annotated[int, typer.Option(min=1, help="Number of questions, evenly spread.")] = 50,
    base_url: options.BaseUrlOption = None,
    concurrency: ConcurrencyOption = None,
    output_dir: OutputDirOption = None,
    workspace: options.WorkspaceOption = options.DEFAULT_WORKSPACE,
) -> None:
    """Answer questions with a model from the passages of a run, and compare the answers."""
    from rag_eval.experiments.answers import answer_experiment
    from rag_eval.experiments.running import evaluatorq
    from rag_eval.llm.chat import ChatService
    from rag_eval.results.runs import read_run

    chosen = answer_experiment(
        workspace,
        read_run(workspace, run),
        configuration or (),
        model=model,
        judge=judge,
        questions=questions,
        base_url=base_url,
    )
    ChatService(base_url).connect()  # fails on a missing key before anything is asked
    calls = counted(len(chosen.tasks) * len(chosen.data), "answers")
    say(Console(stderr=True), f"{calls} by {model}, each judged by {judge or model}")
    with leaving("finished samples are saved, and the same command continues from there"), as_interrupts():
        evaluatorq(chosen, concurrency=concurrency, output_dir=output_dir)


@app.command()
def watch(
    file: FileArgument,
    concurrency: ConcurrencyOption = None,
    fail_under: FailUnderOption = None,
    output_dir: OutputDirOption = None,
) -> None:
    """Run the experiments of a file now, and again whenever a Python file in its folder changes."""
    if not file.is_file():
        raise ExperimentError(f"there is no file {str(file)!r}: give a Python file that runs an experiment")
    command = [sys.executable, "-m", "rag_eval.cli", "experiment", "run", str(file)]
    command += ["--concurrency", str(concurrency)] if concurrency else []
    command += [word for text in fail_under or [] for word in ("--fail-under", text)]
    command += ["--output-dir", str(output_dir)] if output_dir else []
    folder = file.absolute().parent
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # watchfiles logs that it was stopped
    say(Console(stderr=True), f"Watching {folder}; stop with Ctrl-C")
    with leaving("finished samples are saved"):
        watchfiles.run_process(folder, target=shlex.join(command), watch_filter=watchfiles.PythonFilter())
        raise Stopped(signal.SIGINT)  # only a signal ends it
