"""Running a file again whenever it, or a Python file beside it, changes."""

import subprocess
import sys
from pathlib import Path

from rich.console import Console
from watchfiles import PythonFilter, watch

from flows.cli.text import say
from rag_eval.errors import ExperimentError


def watch_file(file: Path, options: list[str]) -> None:
    """Run the file in a process of its own, now and after every change, until the user stops it.

    Raises ``ExperimentError`` when the file is not there.
    """
    if not file.is_file():
        raise ExperimentError(f"the file {str(file)!r} is not there: give a Python file that runs an experiment")
    console = Console(stderr=True)
    command = [sys.executable, "-m", "flows.cli", "experiment", "run", str(file), *options]
    folder = file.absolute().parent
    subprocess.run(command, check=False)  # noqa: S603  # our own command
    say(console, f"Watching {folder}; stop with Ctrl-C")
    for _ in watch(folder, watch_filter=PythonFilter(), raise_interrupt=False):
        subprocess.run(command, check=False)  # noqa: S603  # our own command
