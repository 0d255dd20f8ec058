"""``rag-eval`` as a process of its own, with nothing of this machine's Prefect settings."""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import chdir
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeVar

import pytest
from typer.testing import CliRunner

from rag_eval.cli.main import app
from rag_eval.errors import RagEvalError, shown_sentences
from rag_eval.sample import CORPUS, GROUND_TRUTH
from rag_eval.storage.files import user_folder

T = TypeVar("T")
COMMAND = str(Path(sys.executable).with_name("rag-eval"))
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "OPENAI_", "LANGSMITH_"))
}
TWO = f"""
corpus: {CORPUS}
ground_truth: {GROUND_TRUTH}
chunkers: {{type: recursive-token, chunk_size: [60, 300]}}
"""


def rag_eval(*arguments: str, cwd: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, run to its end; from the beginning where Python itself is told something."""
    if any(name.startswith("PYTHON") for name in settings):
        ended = started(*arguments, cwd=cwd, **settings)
        out, err = ended.communicate(timeout=600)
        return subprocess.CompletedProcess(arguments, ended.returncode, out, err)
    with TemporaryDirectory() as folder, FORKED:
        files = {name: Path(folder, name) for name in ("stdout", "stderr")}
        for file in files.values():
            file.touch()
        asked = {"arguments": arguments, "cwd": str(cwd), "environment": CLEAN | settings}
        server = forked_commands()
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(asked | {name: str(file) for name, file in files.items()}), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, *(file.read_text("utf-8") for file in files.values()))


def in_process(*arguments: str, cwd: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that starts no flow in this process; what goes wrong is on standard error, as ``main`` says it."""
    removed: dict[str, str | None] = {name: None for name in os.environ if name not in CLEAN}
    with chdir(cwd):
        result = CliRunner().invoke(app, arguments, env={**removed, **settings})
    if isinstance(result.exception, RagEvalError):
        sentences = "".join(f"rag-eval: {sentence}\n" for sentence in shown_sentences(result.exception))
        return subprocess.CompletedProcess(arguments, 2, result.stdout, result.stderr + sentences)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


FORKED = threading.Lock()


@cache
def forked_commands() -> "subprocess.Popen[str]":
    """The process whose forks are commands: what every command imports is imported once."""
    # Safe: as for the command itself, the folder where this is started is not one to import from.
    words = [sys.executable, "-P", str(Path(__file__).with_name("forked_command.py"))]
    server = subprocess.Popen(words, env=CLEAN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


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


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


MIGRATE = """
import asyncio
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def migrated_database(path: Path) -> None:
    """Put a new database of a Prefect server there, unless there is one; it is made once, which takes seconds."""
    kept = user_folder("cache") / f"tests-prefect-{version('prefect')}.db"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept.parent) as folder:
            made = Path(folder, "prefect.db")
            here = {"PREFECT_HOME": folder, "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{made}"}
            subprocess.run([sys.executable, "-c", MIGRATE], env=CLEAN | here, check=True)
            made.replace(kept)
    if not path.exists():
        shutil.copyfile(kept, path)


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
