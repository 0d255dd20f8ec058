"""``rag-eval`` as a process of its own, with nothing of this machine's Prefect settings."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

import pytest

from rag_eval.sample import CORPUS, GROUND_TRUTH

T = TypeVar("T")
COMMAND = str(Path(sys.executable).with_name("rag-eval"))
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "OPENAI_"))}
TWO = f"""
corpus: {CORPUS}
ground_truth: {GROUND_TRUTH}
chunkers: {{type: recursive-token, chunk_size: [60, 300]}}
"""


def rag_eval(*arguments: str, cwd: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """The command, run to its end."""
    return subprocess.run(
        [COMMAND, *arguments], cwd=cwd, env=CLEAN | settings, capture_output=True, text=True, timeout=600, check=False
    )


def started(*arguments: str, cwd: Path, stderr: IO[str] | None = None, **settings: str) -> "subprocess.Popen[str]":
    """The command, still running; what it says is piped, or goes to a file."""
    return subprocess.Popen(
        [COMMAND, *arguments],
        cwd=cwd,
        env=CLEAN | settings,
        stdout=subprocess.PIPE,
        stderr=stderr or subprocess.PIPE,
        text=True,
    )


def children(parent: int) -> list[int]:
    """The processes that a process started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def is_running(process: int) -> bool:
    """Whether a process is there and not merely waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], T], seconds: float = 120, *, every: float = 0.05) -> T:
    """What the condition gives once it is true; fails the test when that takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(every)
    pytest.fail("it did not happen in time")
