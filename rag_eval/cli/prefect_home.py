"""Manage the files, key and settings of the Prefect servers that rag-eval starts.

Prefect executes what ``logging.yml``, profiles and deployments in its home say. A workspace may come from anybody, so
the home is among the user's own files and never in the workspace.

A server that rag-eval starts accepts only requests with its key, which is new at each start. The key is in the
environment of our processes and, for commands that look for a running ``rag-eval up``, in a file that only the user can
read.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import psutil

from rag_eval.errors import ArtifactError
from rag_eval.storage.files import data_sha256, scratch_path, sweep_scratch, user_folder, writing
from rag_eval.storage.locks import try_lock, wait_for_lock

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace

LOOPBACK = ("127.0.0.1", "localhost", "::1")
USER = "rag-eval"
"""The user name that Prefect expects before the password."""
SIGN_IN_PATH, RUNS_PATH = "/rag-eval/sign-in", "/rag-eval/runs"
RUNS_TOKEN = "RAG_EVAL_RUNS_TOKEN"  # noqa: S105  # the name of the variable

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
SERVER = {
    # Slots held by a killed run are freed by the next server too.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P30D",  # a plain number stops the server from starting
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 86_400),
    # Record task runs in batches, after a second at most.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    # Relative, or the UI would call port 4200 or another name of this machine.
    "PREFECT_SERVER_UI_API_URL": "/api",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
TEMPORARY = {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "CANCELLATION_CLEANUP",
        "CLEANUP_RECONCILER",
        "FOREMAN",
        "LATE_RUNS",
        "PAUSE_EXPIRATIONS",
        "SCHEDULER",
        "TRIGGERS",
    )
} | {
    "PREFECT_SERVER_EVENTS_STREAM_OUT_ENABLED": "false",
    # Set both: otherwise Prefect notes that blocks are registered, and the next `rag-eval up` never registers them.
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
}
"""Settings of a server that only records runs, and starts none."""


def home_of(workspace: "Workspace") -> Path:
    """Return the Prefect home for a workspace; it may not exist yet."""
    return user_folder("state") / data_sha256(workspace.remote or str(workspace.root.resolve()))[:16]


def prefect_home(workspace: "Workspace") -> Path:
    """Create the Prefect home for a workspace, readable by the user alone; raise ``ArtifactError`` if that fails."""
    home = home_of(workspace)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(
            f"cannot create Prefect's folder {str(home)!r} ({error.strerror}): set XDG_STATE_HOME to another folder"
        ) from None
    sweep_scratch(home)
    return home


def running_temporary_servers(home: Path) -> list[int]:
    """Return the processes that run temporary servers in a home; remove the logs of killed servers."""
    processes = []
    for log in home.glob("temporary-server-*.log"):
        process = int(log.stem.rpartition("-")[2])
        if psutil.pid_exists(process):
            processes.append(process)
        else:
            log.unlink(missing_ok=True)
    return processes


class KnownServer(NamedTuple):
    """A server of a running ``rag-eval up``: its sign-in address, and the homes of the workspaces it serves."""

    port: int
    sign_in: str
    homes: frozenset[str]

    @property
    def key(self) -> str:
        """The key, which is the part of the sign-in address after ``#``."""
        return self.sign_in.rpartition("#")[2]


def key_file(port: int) -> Path:
    """Return the file with the sign-in address of the user's server on a port."""
    return user_folder("state") / "servers" / str(port)


@contextmanager
def kept_key(port: int, sign_in: str, homes: Iterable[Path] = ()) -> Iterator[None]:
    """Store the sign-in address and the homes of a server in a locked file while the block runs."""
    file = key_file(port)
    write_secret(file, "\n".join([sign_in, *map(str, homes)]))
    with wait_for_lock(file.with_suffix(".lock")):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def known_server(port: int) -> KnownServer | None:
    """Return the running ``rag-eval up`` of the user on a port, or None."""
    file = key_file(port)
    try:
        sign_in, *homes = file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    with try_lock(file.with_suffix(".lock")) as was_killed:
        if was_killed:  # somebody else may listen on the port now
            file.unlink(missing_ok=True)
            return None
    return KnownServer(port, sign_in, frozenset(homes))


def known_servers() -> list[KnownServer]:
    """Return the servers of all ``rag-eval up`` commands that this user is running, by port."""
    ports = sorted(int(path.name) for path in key_file(0).parent.glob("*") if path.name.isdecimal())
    return [server for server in map(known_server, ports) if server is not None]


def known_server_at(api: str) -> KnownServer | None:
    """Return the running ``rag-eval up`` of the user at an address, or None."""
    try:
        address = urlsplit(api)
        return known_server(address.port or 80) if address.hostname in LOOPBACK else None
    except ValueError:  # not a port
        return None


def write_secret(file: Path, text: str) -> None:
    """Write a file atomically that only the user can read; raise ``ArtifactError`` if that fails."""
    with writing(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with scratch_path(file.parent) as scratch, writing(file):
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
        os.replace(scratch, file)


def runs_token(home: Path) -> str:
    """Return the secret part of the addresses of reports. It never changes, because run pages link to it."""
    file = home / "runs.token"
    if not file.exists():
        write_secret(file, secrets.token_urlsafe(32))
    return file.read_text(encoding="utf-8")


def use_own_server(home: Path, api: str, key: str) -> dict[str, str]:
    """Point Prefect, in this process and its children, to our own server; return the server's settings."""
    # The user's profiles belong to another home and another server.
    for name in ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        os.environ.pop(name, None)
    use_server(api, key, PREFECT_HOME=str(home.absolute()))
    return SERVER | {
        "PREFECT_SERVER_API_AUTH_STRING": f"{USER}:{key}",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
    }


def use_server(api: str, key: str | None, **settings: str) -> None:
    """Point Prefect to a server, in this process and its children; log little unless the environment says otherwise."""
    settings["PREFECT_API_URL"] = api
    if key is not None:
        settings["PREFECT_API_AUTH_STRING"] = f"{USER}:{key}"
    host = urlsplit(api).hostname
    if host in LOOPBACK:  # a proxy cannot reach it
        direct = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), host]))
        settings |= {"no_proxy": direct, "NO_PROXY": direct}
    os.environ.update({**QUIET, **os.environ, **settings})
    context = sys.modules.get("prefect.context")
    if context is not None:  # a user's module imported Prefect, which then read its settings
        context.refresh_global_settings_context()
