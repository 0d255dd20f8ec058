"""A Prefect server for one command: a child that ends with it.

It is started first thing, so that its slow import goes on beside our own. Each has a database of its own, and runs
side by side do not lock each other out.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.cli.attended import start_attended
from flows.cli.database_template import keep_template, use_template
from flows.cli.server_log import last_words
from rag_eval.errors import ServiceError
from rag_eval.files import SCRATCH_PREFIX

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
# A server that ends with the command schedules nothing, has no blocks and is asked for no history; keeping one would
# only hold the database when a run wants it.
BARE = {"PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false"} | {
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


class TemporaryServer:
    """The child, where it answers, and what it leaves behind."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home
        self._log = folder / "server.log"
        self._database = folder / "prefect.db"
        self.migrated = use_template(self._database)
        port = free_port()
        self.api = f"http://127.0.0.1:{port}/api"
        self._stopping = False
        use_own_server(home, self.api)
        # Nobody can read them there; what is still to be sent when the server has ended would be tried for a minute.
        os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"
        with self._log.open("wb") as log:
            self._process = start_attended(
                ["server", "127.0.0.1", str(port)],
                log.fileno(),
                BARE
                | {
                    "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self._database}",
                    "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false" if self.migrated else "true",
                },
            )

    def trouble(self) -> ServiceError | None:
        """What befell the server if it has ended by itself; what it wrote is kept beside the database."""
        code = self._process.poll()
        if code is None or self._stopping:
            return None
        ending = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        said = last_words(self._log)
        if said:
            kept = self._home / "server.log"
            shutil.copyfile(self._log, kept)
            ending += f" ({said}; the whole of it is in {str(kept)!r})"
        return ServiceError(
            f"the temporary Prefect server {ending}: run again to continue, or start a server yourself and set "
            "PREFECT_API_URL"
        )

    def keep_as_template(self) -> None:
        """Keep the database that this server has migrated, so that the next one starts sooner."""
        if not self.migrated:
            keep_template(self._database)

    def stop(self) -> None:
        """End the server; at once, because nothing of it is kept."""
        self._stopping = True
        self._process.kill()
        self._process.wait()


@contextmanager
def temporary_server(home: Path) -> Iterator[TemporaryServer]:
    """A server that may still be starting, and the environment that points Prefect to it; it ends with the block."""
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=home, ignore_cleanup_errors=True) as folder:
        server = TemporaryServer(home, Path(folder))
        try:
            yield server
        finally:
            server.stop()


def use_own_server(home: Path, api: str) -> None:
    """Point Prefect, which is imported later, and its children to a server of ours and what it keeps."""
    # The user's profiles belong to another home and another server.
    for name in ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        os.environ.pop(name, None)
    os.environ.update({**QUIET, **os.environ, "PREFECT_HOME": str(home.absolute()), "PREFECT_API_URL": api})


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
