"""Find the Prefect API for a command: a configured one, a running ``rag-eval up``, or a temporary server.

``rag-eval run`` enters ``prefect_api`` first, checks the benchmark while a temporary server starts, and imports Prefect
after ``wait``. ``deploy`` and ``watch`` need a server that outlives them: ``use_lasting_server``.
"""

import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, ClassVar

from rag_eval.cli.prefect_home import (
    LOOPBACK,
    TEMPORARY,
    home_of,
    known_server_at,
    known_servers,
    prefect_home,
    running_temporary_servers,
    use_own_server,
    use_server,
)
from rag_eval.cli.processes import STOP_SECONDS, ChildProcess
from rag_eval.errors import ServiceError
from tasks.current_folder import profiles_path, reads_settings_here

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace


@contextmanager
def prefect_api(workspace: "Workspace") -> "Iterator[LastingServer | TemporaryServer]":
    """Choose the Prefect API for a run, point Prefect to it, and yield its server without waiting for it.

    A temporary server is stopped after the block, once everything sent to it is in its database.

    Example:
        with prefect_api(workspace) as server:
            check_files(config)
            server.wait()
            from flows.benchmark import benchmark
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # for the processes of task runners, which start in the current folder
    lasting = lasting_server(workspace)
    if lasting is not None:
        yield lasting
        return
    temporary = TemporaryServer(workspace)
    try:
        yield temporary
    finally:
        temporary.stop()


def use_lasting_server(workspace: "Workspace") -> str:
    """Point Prefect to the configured API or a running ``rag-eval up``; return its address once it answers."""
    server = lasting_server(workspace)
    if server is None:
        raise ServiceError("no Prefect server is running: start one with `rag-eval up`, or set PREFECT_API_URL")
    return server.wait()


def lasting_server(workspace: "Workspace") -> "LastingServer | None":
    """Point Prefect to the configured API, else to a running ``rag-eval up``; return None if there is neither."""
    server = configured_api() or running_up(workspace)
    if server is not None:
        server.use()
    return server


@dataclass(frozen=True)
class LastingServer:
    """A server that outlives the command; ``source`` says where its address comes from."""

    address: str
    source: str
    is_temporary: ClassVar[bool] = False

    def use(self) -> None:
        """Point Prefect to the server, in this process and its children."""
        server = known_server_at(self.address)
        use_server(self.address, server.key if server else None)

    def wait(self) -> str:
        """Return the address of the API; raise ``ServiceError`` if it does not answer."""
        shown = without_credentials(self.address)
        if not answers(self.address, 10.0):
            raise ServiceError(
                f"the Prefect server at {shown} does not answer: start it, or remove its address from {self.source}"
            )
        return shown

    def trouble(self) -> ServiceError | None:
        """Return None, because this server is not a child process."""
        return None


def configured_api() -> LastingServer | None:
    """Return the API that the environment or the user's Prefect profile names; None without one."""
    address: str | None
    if address := os.environ.get("PREFECT_API_URL"):
        return LastingServer(address, "PREFECT_API_URL")
    if reads_settings_here():
        from prefect.settings import get_current_settings

        address, source = get_current_settings().api.url, "the Prefect settings in this folder"
        return LastingServer(address, source) if address else None
    path = profiles_path()
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8"))
        settings = profiles["profiles"][os.environ.get("PREFECT_PROFILE") or profiles["active"]]
        return LastingServer(str(settings["PREFECT_API_URL"]), str(path)) if settings["PREFECT_API_URL"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running_up(workspace: "Workspace") -> LastingServer | None:
    """Return the server of a running ``rag-eval up`` of this user, preferring one that serves the workspace."""
    home = str(home_of(workspace))
    servers = sorted(known_servers(), key=lambda server: home not in server.homes)
    return LastingServer(f"http://127.0.0.1:{servers[0].port}/api", "rag-eval up") if servers else None


class TemporaryServer:
    """A Prefect server for one command, with the same database, gate and kind of key as ``rag-eval up``.

    Its runs appear in the UI of the next ``rag-eval up``. It exits with this process, even if this process is killed.
    """

    is_temporary: ClassVar[bool] = True

    def __init__(self, workspace: "Workspace") -> None:
        home = prefect_home(workspace)
        running_temporary_servers(home)  # remove the logs of killed servers
        self._has_answered: bool | None = None  # nobody has waited for it yet
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._api = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
            settings = use_own_server(home, self._api, secrets.token_urlsafe(32)) | TEMPORARY
            log = home / f"temporary-server-{os.getpid()}.log"
            self._process = ChildProcess("temporary-server", [str(listener.fileno())], log, settings, [listener])

    def wait(self) -> str:
        """Return the address of the API once it answers; raise ``ServiceError`` if it does not in time."""
        self._has_answered = False
        self._process.wait_until(lambda: answers(self._api))
        self._has_answered = True
        return self._api

    def trouble(self) -> ServiceError | None:
        """Return why the server has ended unexpectedly; None while it runs."""
        return self._process.failure()

    def stop(self) -> None:
        """Stop the server once everything sent by this process is in the database; keep the log of a failed server."""
        has_failed = self._has_answered is False or self._process.failure() is not None
        if self._has_answered and not has_failed:
            if worker := sys.modules.get("prefect.events.worker"):  # task runs are recorded from events
                for name in ("APILogWorker", "EventsWorker"):
                    logging.getLogger(name).setLevel(logging.ERROR)  # no warning that the queues are not empty yet
                worker.EventsWorker.drain_all(timeout=STOP_SECONDS)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self._process.kill()  # while it starts there is nothing to lose
        self._process.wait()
        if not has_failed:
            self._process.log.unlink(missing_ok=True)


def answers(api: str, seconds: float = 2.0) -> bool:
    """Tell whether a Prefect server answers at an address; one that asks for a key counts."""
    try:
        request = urllib.request.Request(f"{without_credentials(api).rstrip('/')}/health")  # noqa: S310  # http(s) only
        is_here = urllib.parse.urlsplit(request.full_url).hostname in LOOPBACK  # a proxy cannot reach it
        opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_here else []))
        with opener.open(request, timeout=seconds) as answer:
            return bool(answer.read(16).strip() == b"true")
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except (OSError, ValueError, HTTPException):  # something else may listen there
        return False


def without_credentials(address: str) -> str:
    """Return the address without user and password."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address, count=1)
