"""Running a file again whenever it, or a Python file beside it, changes."""

import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from watchfiles import PythonFilter, watch

from flows.cli.processes import end_descendants
from flows.cli.stopping import as_interrupts, leaving
from flows.cli.text import say
from rag_eval.errors import ExperimentError

LOOK_MILLISECONDS = 200
OWN_END_SECONDS = 2.0
"""How long a run is given to end by itself: Ctrl-C at a terminal reached it too."""


def watch_file(file: Path, options: list[str]) -> None:
    """Run the file in a process of its own, now and after every change, until the user stops it.

    Raises ``ExperimentError`` when the file is not there.
    """
    if not file.is_file():
        raise ExperimentError(f"the file {str(file)!r} is not there: give a Python file that runs an experiment")
    command = [sys.executable, "-m", "flows.cli", "experiment", "run", str(file), *options]
    folder = file.absolute().parent
    changes = watch(folder, watch_filter=PythonFilter(), rust_timeout=LOOK_MILLISECONDS, yield_on_timeout=True)
    with leaving("finished samples are kept"), as_interrupts():
        next(changes)  # from here on changes are seen, those that are saved during the first run too
        _run(command)
        say(Console(stderr=True), f"Watching {folder}; stop with Ctrl-C")
        for changed in changes:
            if changed:
                _run(command)


def _run(command: list[str]) -> None:
    with subprocess.Popen(command) as run:  # noqa: S603  # our own command
        try:
            run.wait()
        except KeyboardInterrupt:
            try:
                run.wait(OWN_END_SECONDS)
            except subprocess.TimeoutExpired:
                end_descendants(os.getpid())
            raise
