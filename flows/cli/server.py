"""Which Prefect server a command uses: the one the user named, one that answers on this machine, or a temporary one.

A temporary server is a child that is started first thing, so that its slow import goes on beside our own. Each has a
database of its own, and runs side by side do not lock each other out: the first database on a machine is migrated,
which takes most of a first start, and kept as a template for the next.
"""

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from rag_eval.errors import ServiceError
from rag_eval.files import SCRATCH_PREFIX, scratch_path

LOCAL_API = "http://127.0.0.1:4200/api"
START_SECONDS = 180.0
QUIET = {"DO_NOT_TRACK": "1", "PREFECT_LOGGING_LEVEL": "WARNING", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
# A server that ends with the command schedules nothing and is asked for no history; keeping one would only hold the
# database when a run wants it.
NO_SERVICES = {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "CANCELLATION_CLEANUP",
        "EVENT_PERSISTER",
        "FOREMAN",
        "LATE_RUNS",
        "PAUSE_EXPIRATIONS",
        "SCHEDULER",
        "TASK_RUN_RECORDER",
        "TRIGGERS",
    )
}


class PrefectServer:
    """A server that may still be starting: ``wait`` until it answers."""

    def __init__(
        self, api: str, process: "subprocess.Popen[bytes] | None" = None, template: Path | None = None
    ) -> None:
        self.api = api
        self._process = process
        self._template = template

    @property
    def is_temporary(self) -> bool:
        """Whether it was started for this command."""
        return self._process is not None

    def wait(self) -> None:
        """Wait until the server answers; raises ``ServiceError`` when it ends or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.api, 2.0):
            if self._process is not None and self._process.poll() is not None:
                raise ServiceError(
                    f"the temporary Prefect server ended with code {self._process.returncode}: "
                    "run `prefect server start` to see why, or set PREFECT_API_URL"
                )
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"the Prefect server at {self.api} did not answer within {START_SECONDS:.0f} seconds"
                )
            time.sleep(0.05)


@contextmanager
def prefect_server(home: Path) -> Iterator[PrefectServer]:
    """A server for one command, and the environment that points Prefect to it; import Prefect inside the block.

    A temporary server ends with the block. Raises ``ServiceError`` when the server that ``PREFECT_API_URL`` names does
    not answer.
    """
    named = os.environ.get("PREFECT_API_URL")
    if named:
        if not answers(named, 10.0):
            raise ServiceError(f"the Prefect server at {named} does not answer: start it, or unset PREFECT_API_URL")
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
        yield PrefectServer(named)
        return
    if answers(LOCAL_API, 0.5):
        os.environ.update({**QUIET, **os.environ, "PREFECT_API_URL": LOCAL_API})
        yield PrefectServer(LOCAL_API)
        return
    with _temporary_server(home) as server:
        yield server


def answers(api: str, seconds: float) -> bool:
    """Whether a Prefect server answers there."""
    try:
        with urllib.request.urlopen(f"{api.rstrip('/')}/health", timeout=seconds) as answer:  # noqa: S310  # http by rule
            return bool(answer.status == 200 and answer.read(16).strip() == b"true")
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)  # a server that wants to know who asks
    except (OSError, ValueError):
        return False


@contextmanager
def _temporary_server(home: Path) -> Iterator[PrefectServer]:
    home.mkdir(parents=True, exist_ok=True)
    template = _template()
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=home) as folder:
        database = Path(folder) / "prefect.db"
        migrated = template.is_file()
        if migrated:
            shutil.copy(template, database)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        api = f"http://127.0.0.1:{port}/api"
        os.environ.update({**QUIET, **os.environ, "PREFECT_HOME": str(home.absolute()), "PREFECT_API_URL": api})
        process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", "flows.cli.server_process", str(port), str(os.getpid())],
            env=os.environ
            | NO_SERVICES
            | {
                "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
                "PREFECT_API_DATABASE_MIGRATE_ON_START": "false" if migrated else "true",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us, who then stop it
        )
        try:
            server = PrefectServer(api, process)
            if not migrated:
                server.wait()
                _keep_as_template(database, template)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _template() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rag-eval" / f"prefect-{version('prefect')}.db"


def _keep_as_template(database: Path, template: Path) -> None:
    """Keep a migrated database for the next server; where that cannot be written, the next one migrates again."""
    try:
        with scratch_path(template.parent) as scratch:
            source, target = sqlite3.connect(database), sqlite3.connect(scratch)
            with source, target:
                source.backup(target)
            source.close()
            target.close()
            os.replace(scratch, template)
    except (OSError, sqlite3.Error):
        return
