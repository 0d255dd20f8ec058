"""Which Prefect API a command uses: the configured one, that of a running ``rag-eval up``, or a temporary server's.

``rag-eval run`` enters ``prefect_api`` first, checks the benchmark while a temporary server starts, and imports Prefect
once ``wait`` has returned. ``deploy`` and ``watch`` need a server that stays, and call ``use_lasting_server``.
"""

import base64
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
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rag_eval.cli.prefect_home import (
    LOOPBACK,
    RETENTION,
    TEMPORARY,
    USER,
    home_of,
    key_file,
    known_server,
    known_servers,
    new_key,
    prefect_home,
    running_temporary_servers,
    signing_in,
    temporary_log,
    use_own_server,
    use_prefect_settings,
)
from rag_eval.cli.processes import last_words
from rag_eval.cli.server import start_attended
from rag_eval.errors import ConfigurationError, ServiceError
from tasks.current_folder import profiles_path, reads_settings_here

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace

LISTENING = "0A"
"""The state of a socket that listens, in the tables of the kernel."""


class PrefectServer(Protocol):
    """What ``prefect_api`` yields: a server that answers already, or one that is starting."""

    is_temporary: bool
    """Whether it ends with the command, so that nobody can open a page of its UI."""

    def wait(self) -> str:
        """Return the address of the API once it answers; raise ``ServiceError`` when it does not."""

    def trouble(self) -> ServiceError | None:
        """Tell why the server can no longer be used; None while it can."""


@contextmanager
def prefect_api(workspace: "Workspace") -> Iterator[PrefectServer]:
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
    found = lasting_server(workspace)
    if found is None:
        raise ServiceError("there is no Prefect server: start one with `rag-eval up`, or name one with PREFECT_API_URL")
    return found.wait()


def lasting_server(workspace: "Workspace") -> "LastingServer | None":
    """Point Prefect to the configured API or to a running ``rag-eval up``; None if there is neither."""
    found = configured_api()
    if found is None and (running := running_up(workspace)) is not None:
        found = ConfiguredApi(running, "rag-eval up")
    return None if found is None else LastingServer(found)


class ConfiguredApi(NamedTuple):
    """The address of an API, and what names it."""

    address: str
    source: str


def configured_api() -> ConfiguredApi | None:
    """Return the API that the environment or the user's Prefect profile names; None without one."""
    address = os.environ.get("PREFECT_API_URL")
    if address:
        return ConfiguredApi(address, "PREFECT_API_URL")
    if reads_settings_here():
        asked = subprocess.run(  # noqa: S603  # our own line
            [sys.executable, "-P", "-c", ASK_PREFECT], capture_output=True, text=True, check=False
        )
        return ConfiguredApi(found, "the settings here") if (found := asked.stdout.strip()) else None
    address = active_profile().get("PREFECT_API_URL")
    return ConfiguredApi(address, str(profiles_path())) if address else None


ASK_PREFECT = "from prefect.settings import get_current_settings as s; print(s().api.url or '')"


def active_profile() -> dict[str, str]:
    """Return the settings of the user's active Prefect profile; none where its file cannot be read."""
    try:
        profiles = tomllib.loads(profiles_path().read_text(encoding="utf-8"))
        settings = profiles["profiles"][os.environ.get("PREFECT_PROFILE") or profiles["active"]]
        return {name: str(value) for name, value in settings.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def running_up(workspace: "Workspace") -> str | None:
    """Return the API of a running ``rag-eval up`` of this user: rather of one that serves the workspace."""
    home = str(home_of(workspace))
    for found in sorted(known_servers(), key=lambda server: home not in server.homes):
        api = f"http://127.0.0.1:{found.port}/api"
        if not _is_listening(found.port):
            key_file(found.port).unlink(missing_ok=True)  # it was killed
        elif is_open_to_us(api):
            return api
    return None


class LastingServer:
    """A server that was there before the command, and stays."""

    is_temporary = False

    def __init__(self, api: ConfiguredApi) -> None:
        self._api = api
        use_prefect_settings(signing_in(api.address, running_key(api.address)))

    def wait(self) -> str:
        """Return the address of the API; raise ``ServiceError`` when it does not answer."""
        shown = without_credentials(self._api.address)
        if not answers(self._api.address, 10.0):
            raise ServiceError(
                f"the Prefect server at {shown} does not answer: start it, or take its address out of "
                f"{self._api.source}"
            )
        return shown

    def trouble(self) -> ServiceError | None:
        """Return None: whether it goes on is not ours to watch."""
        return None


START_SECONDS, STOP_SECONDS = 180.0, 30.0
START_TIMEOUT = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"


class TemporaryServer:
    """A Prefect server for one command, on the database of ``rag-eval up`` and behind the same gate and a key.

    Its runs are in the UI of the next ``rag-eval up``. It ends with this process, even when that is killed.
    """

    is_temporary = True

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
                problem = ServiceError(
                    f"the temporary Prefect server did not answer within {seconds:g} seconds{_quoted(self._log)}: see "
                    f"{str(self._log)!r}, or set {START_TIMEOUT} to more"
                )
            if problem is not None:
                self._failed = True
                raise problem
            time.sleep(0.05)
        self._answered = True
        return self._api

    def trouble(self) -> ServiceError | None:
        """Tell how the server ended by itself, with its last words; None while it is running."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        self._failed = True
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return ServiceError(f"the temporary Prefect server {ended}{_quoted(self._log)}: see {str(self._log)!r}")

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


def _quoted(log: Path) -> str:
    words = last_words(log)
    return f" ({words})" if words else ""


def _send_events() -> None:
    """Have Prefect's client send the events and the logs that it still has: task runs are recorded by events."""
    worker = sys.modules.get("prefect.events.worker")
    if worker is not None:
        for name in ("APILogWorker", "EventsWorker"):
            logging.getLogger(name).setLevel(logging.ERROR)  # that they are not done yet is no news
        worker.EventsWorker.drain_all(timeout=STOP_SECONDS)


def running_key(api: str) -> str | None:
    """Return the key of the server there, if a ``rag-eval up`` of this user started it."""
    address = urllib.parse.urlsplit(without_credentials(api))
    with suppress(ValueError):  # a port that is none
        found = known_server(address.port or 80) if address.hostname in LOOPBACK else None
        if found is not None and not admits(api, None) and admits(api, f"{USER}:{found.key}"):
            return found.key
    return None


def is_open_to_us(api: str) -> bool:
    """Tell whether a server that the user did not name is one to use: his own or root's, which lets us in.

    A worker does what its server says, so another user's is not.
    """
    port = urllib.parse.urlsplit(api).port or 80
    us = os.getuid() if hasattr(os, "getuid") else 0  # Windows has no such numbers, and tells of no listeners
    if not answers(api) or not _listeners(port) <= {us, 0}:
        return False
    own = os.environ.get("PREFECT_API_AUTH_STRING") or active_profile().get("PREFECT_API_AUTH_STRING")
    return admits(api, own) or running_key(api) is not None


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass
    return True


def _listeners(port: int) -> set[int]:
    """Return the users who listen on a port of this machine; empty where the system does not tell."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(int(fields[7]))
    return found


def admits(api: str, credentials: str | None) -> bool:
    """Tell whether the server there answers who has these credentials, ``user:password``."""
    return _ask(api, "admin/version", 10.0, credentials)[0] == 200


def answers(api: str, seconds: float = 2.0) -> bool:
    """Tell whether a Prefect server answers there, or one that wants to know who asks."""
    status, said = _ask(api, "health", seconds)
    return status in (401, 403) or (status == 200 and said.strip() == b"true")


def _ask(api: str, path: str, seconds: float, credentials: str | None = None) -> tuple[int, bytes]:
    """Return the status and the first bytes of an answer; 0 without one."""
    try:
        request = urllib.request.Request(f"{without_credentials(api).rstrip('/')}/{path}")  # noqa: S310  # by rule
        if credentials is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}")
        is_here = urllib.parse.urlsplit(request.full_url).hostname in LOOPBACK  # which no proxy can reach
        opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if is_here else []))
        with opener.open(request, timeout=seconds) as answer:
            return answer.status, answer.read(16)
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (OSError, ValueError, HTTPException):  # whatever else may listen there
        return 0, b""


def without_credentials(address: str) -> str:
    """Return the address without the user and the password that may stand in it."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address, count=1)
