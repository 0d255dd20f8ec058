"""Which Prefect API a command uses: the configured one, that of a running ``rag-eval up``, or a temporary server's.

``rag-eval run`` enters ``prefect_api`` first, checks the benchmark while a temporary server starts, and imports Prefect
once ``wait`` has returned. ``deploy`` and ``watch`` need a server that stays, and call ``use_lasting_server``.
"""

import logging
import os
import re
import socket
import subprocess
import sys
import time
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
    RETENTION,
    TEMPORARY,
    home_of,
    known_server_at,
    known_servers,
    new_key,
    prefect_home,
    running_temporary_servers,
    signing_in,
    temporary_log,
    use_own_server,
    use_prefect_settings,
)
from rag_eval.cli.processes import describe_end, last_words, start_attended
from rag_eval.errors import ConfigurationError, ServiceError
from tasks.current_folder import profiles_path, reads_settings_here

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace


@contextmanager
def prefect_api(workspace: "Workspace") -> "Iterator[LastingServer | TemporaryServer]":
    """Choose the Prefect API for runs in a workspace, point Prefect to it, and yield its server at once.

    It is the configured API, else that of a running ``rag-eval up``, else that of a temporary server, which is stopped
    at the end of the block, when all that it was sent is in its database.

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
    temporary.start()
    try:
        yield temporary
    finally:
        temporary.stop()


def use_lasting_server(workspace: "Workspace") -> str:
    """Point Prefect to the configured API or to a running ``rag-eval up``; return the address.

    Raises ``ServiceError`` when there is none, or it does not answer.
    """
    server = lasting_server(workspace)
    if server is None:
        raise ServiceError("there is no Prefect server: start one with `rag-eval up`, or name one with PREFECT_API_URL")
    return server.wait()


def lasting_server(workspace: "Workspace") -> "LastingServer | None":
    """Point Prefect to the configured API or to a running ``rag-eval up``; None if there is neither."""
    server = configured_api() or running_up(workspace)
    if server is not None:
        server.use()
    return server


@dataclass(frozen=True)
class LastingServer:
    """A server that was there before the command and stays; ``source`` is what names its address."""

    address: str
    source: str
    is_temporary: ClassVar[bool] = False

    def use(self) -> None:
        """Point Prefect in this process and its children to it."""
        server = known_server_at(self.address)
        use_prefect_settings(signing_in(self.address, server.key if server else None))

    def wait(self) -> str:
        """Return the address of the API; raise ``ServiceError`` when it does not answer."""
        shown = without_credentials(self.address)
        if not answers(self.address, 10.0):
            raise ServiceError(
                f"the Prefect server at {shown} does not answer: start it, or take its address out of {self.source}"
            )
        return shown

    def trouble(self) -> ServiceError | None:
        """Return None: whether it goes on is not ours to watch."""
        return None


def configured_api() -> LastingServer | None:
    """Return the API that the environment or the user's Prefect profile names; None without one."""
    address = os.environ.get("PREFECT_API_URL")
    if address:
        return LastingServer(address, "PREFECT_API_URL")
    if reads_settings_here():
        asked = subprocess.run(  # noqa: S603  # our own line
            [sys.executable, "-P", "-c", ASK_PREFECT], capture_output=True, text=True, check=False
        )
        return LastingServer(address, "the settings here") if (address := asked.stdout.strip()) else None
    address = active_profile().get("PREFECT_API_URL")
    return LastingServer(address, str(profiles_path())) if address else None


ASK_PREFECT = "from prefect.settings import get_current_settings as s; print(s().api.url or '')"


def active_profile() -> dict[str, str]:
    """Return the settings of the user's active Prefect profile; none where its file cannot be read."""
    try:
        profiles = tomllib.loads(profiles_path().read_text(encoding="utf-8"))
        settings = profiles["profiles"][os.environ.get("PREFECT_PROFILE") or profiles["active"]]
        return {name: str(value) for name, value in settings.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def running_up(workspace: "Workspace") -> LastingServer | None:
    """Return the server of a running ``rag-eval up`` of this user: rather of one that serves the workspace."""
    home = str(home_of(workspace))
    servers = sorted(known_servers(), key=lambda server: home not in server.homes)
    return LastingServer(f"http://127.0.0.1:{servers[0].port}/api", "rag-eval up") if servers else None


START_SECONDS, STOP_SECONDS = 180.0, 30.0
START_TIMEOUT = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"


class TemporaryServer:
    """A Prefect server for one command, on the database of ``rag-eval up`` and behind the same gate and a key.

    Its runs are in the UI of the next ``rag-eval up``. It ends with this process, even when that is killed.
    """

    is_temporary: ClassVar[bool] = True

    def __init__(self, workspace: "Workspace") -> None:
        self._home = prefect_home(workspace)
        self._log = temporary_log(self._home, os.getpid())
        self._process: subprocess.Popen[bytes] | None = None
        self._api, self._answered, self._failed = "", False, False

    def start(self) -> None:
        """Start the server and return at once; point Prefect in this process to it."""
        running_temporary_servers(self._home)  # which removes the logs of others that were killed
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._api = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
            settings = use_own_server(self._home, self._api, new_key()) | RETENTION | TEMPORARY
            arguments = ["temporary-server", str(listener.fileno())]
            self._process = start_attended(arguments, self._log, settings, [listener])

    def wait(self) -> str:
        """Return the address of the API once it answers; raise ``ServiceError`` when it does not in time."""
        seconds = _start_seconds()
        deadline = time.monotonic() + seconds
        while not answers(self._api):
            problem = self.trouble()
            if problem is None and time.monotonic() > deadline:
                words = last_words(self._log)
                problem = ServiceError(
                    f"the temporary Prefect server did not answer within {seconds:g} seconds"
                    f"{f' ({words})' if words else ''}: see {str(self._log)!r}, or set {START_TIMEOUT} to more"
                )
            if problem is not None:
                self._failed = True
                raise problem
            time.sleep(0.05)
        self._answered = True
        return self._api

    def trouble(self) -> ServiceError | None:
        """Tell how the server ended by itself, with its last words; None while it is running."""
        ended = None if self._process is None else describe_end(self._process, self._log)
        if ended is None:
            return None
        self._failed = True
        return ServiceError(f"the temporary Prefect server {ended}: see {str(self._log)!r}")

    def stop(self) -> None:
        """Stop the server once everything that this process has for it is in the database."""
        process = self._process
        if process is None:
            return
        if self._answered and process.poll() is None:
            _send_events()
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        process.kill()  # in its start there is nothing to be lost
        process.wait()
        self._process = None
        if not self._failed:
            self._log.unlink(missing_ok=True)


def _start_seconds() -> float:
    try:
        return float(os.environ.get(START_TIMEOUT) or START_SECONDS)
    except ValueError:
        raise ConfigurationError(f"{START_TIMEOUT} expects a number of seconds, for example 300") from None


def _send_events() -> None:
    """Have Prefect's client send the events and the logs that it still has: task runs are recorded by events."""
    worker = sys.modules.get("prefect.events.worker")
    if worker is not None:
        for name in ("APILogWorker", "EventsWorker"):
            logging.getLogger(name).setLevel(logging.ERROR)  # that they are not done yet is no news
        worker.EventsWorker.drain_all(timeout=STOP_SECONDS)


def answers(api: str, seconds: float = 2.0) -> bool:
    """Tell whether a Prefect server answers there, or one that wants to know who asks."""
    try:
        request = urllib.request.Request(f"{without_credentials(api).rstrip('/')}/health")  # noqa: S310  # by rule
        is_here = urllib.parse.urlsplit(request.full_url).hostname in LOOPBACK  # which no proxy can reach
        opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_here else []))
        with opener.open(request, timeout=seconds) as answer:
            return bool(answer.read(16).strip() == b"true")
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)
    except (OSError, ValueError, HTTPException):  # whatever else may listen there
        return False


def without_credentials(address: str) -> str:
    """Return the address without the user and the password that may stand in it."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address, count=1)
