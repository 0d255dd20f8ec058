"""Where Prefect keeps what is its own, and the settings that point it there.

Prefect trusts its home: it runs what ``logging.yml``, profiles and the deployments in the database tell it to. So the
home is never in the workspace, which may come from anybody, but among the user's own files.

Whoever may ask a server of ours has its key: a new one at each start, in the environment of our processes and, for the
commands that look for a running ``rag-eval up``, in a file that the user alone can read.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
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

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


def home_of(workspace: "Workspace") -> Path:
    """Return the folder for the servers of a workspace, whether it is there or not."""
    return user_folder("state") / data_sha256(workspace.remote or str(workspace.root.resolve()))[:16]


def prefect_home(workspace: "Workspace") -> Path:
    """Make the folder for the servers of a workspace, for the user alone, and remove what killed commands left in it.

    Raises ``ArtifactError`` when it cannot be made.
    """
    home = home_of(workspace)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(
            f"the folder {str(home)!r} for Prefect cannot be made ({error.strerror}): set XDG_STATE_HOME to another"
        ) from None
    sweep_scratch(home)
    return home


RETENTION = {
    # Ended runs, and events of runs, are of use as long as the runs of a workspace are looked at.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(30 * 86_400),
    "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P30D",  # a number would stop the server from starting
}
"""The settings by which a server removes what is old from its database."""

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
    # Both, else Prefect notes down that blocks were registered, and a lasting server never registers them.
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    "PREFECT_SERVER_UI_ENABLED": "false",
}
"""The settings of a server that only records: what is scheduled or automatic is for a lasting one."""


def temporary_log(home: Path, process: int) -> Path:
    """Return the log of the temporary server that a process has; it is removed when that ends."""
    return home / f"temporary-server-{process}.log"


def running_temporary_servers(home: Path) -> list[int]:
    """Return the processes that have temporary servers in a home; the logs of those that were killed are removed."""
    processes = []
    for log in home.glob("temporary-server-*.log"):
        process = int(log.stem.rpartition("-")[2])
        if psutil.pid_exists(process):
            processes.append(process)
        else:
            log.unlink(missing_ok=True)
    return processes


LOOPBACK = ("127.0.0.1", "localhost", "::1")
USER = "rag-eval"
"""Prefect wants a name before the password."""


SIGN_IN_PATH, RUNS_PATH = "/rag-eval/sign-in", "/rag-eval/runs"
RUNS_TOKEN = "RAG_EVAL_RUNS_TOKEN"  # noqa: S105  # the name of the variable that holds it


def new_key() -> str:
    """Return a key for one start of a server."""
    return secrets.token_urlsafe(32)


class KnownServer(NamedTuple):
    """A server that ``rag-eval up`` started: the address that signs in, and the homes of the workspaces it serves."""

    port: int
    sign_in: str
    homes: frozenset[str]

    @property
    def key(self) -> str:
        """The key, which is after the ``#`` of the address."""
        return self.sign_in.rpartition("#")[2]


def key_file(port: int) -> Path:
    """Return where the address that signs in to the user's server on a port is kept."""
    return user_folder("state") / "servers" / str(port)


@contextmanager
def kept_key(port: int, sign_in: str, homes: Iterable[Path] = ()) -> Iterator[None]:
    """Keep the address that signs in and the homes that are served, for the user alone, during the block.

    Its lock is held as long. Raises ``ArtifactError`` when the file cannot be written.
    """
    file = key_file(port)
    write_secret(file, "\n".join([sign_in, *map(str, homes)]))
    with wait_for_lock(file.with_suffix(".lock")):
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def known_server(port: int) -> KnownServer | None:
    """Return the server that a running ``rag-eval up`` of this user has on a port; None if there is none."""
    file = key_file(port)
    try:
        sign_in, *homes = file.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return None
    with try_lock(file.with_suffix(".lock")) as was_killed:
        if was_killed:  # whoever listens there now may be anybody
            file.unlink(missing_ok=True)
            return None
    return KnownServer(port, sign_in, frozenset(homes))


def known_servers() -> list[KnownServer]:
    """Return the servers of all running ``rag-eval up`` of this user, by port."""
    ports = sorted(int(path.name) for path in key_file(0).parent.glob("*") if path.name.isdecimal())
    return [server for server in map(known_server, ports) if server is not None]


def known_server_at(api: str) -> KnownServer | None:
    """Return the server of a running ``rag-eval up`` of this user that has this address."""
    try:
        address = urlsplit(api)
        return known_server(address.port or 80) if address.hostname in LOOPBACK else None
    except ValueError:  # a port that is none
        return None


def write_secret(file: Path, text: str) -> None:
    """Write a file that the user alone can read, whole or not at all; raises ``ArtifactError`` when that fails."""
    with writing(file):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with scratch_path(file.parent) as scratch, writing(file):
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
        os.replace(scratch, file)


def runs_token(home: Path) -> str:
    """Return the part of the reports' address that nobody can guess; it lasts, because pages of runs link to it."""
    file = home / "runs.token"
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        write_secret(file, new_key())
        return file.read_text(encoding="utf-8")


def use_own_server(home: Path, api: str, key: str) -> dict[str, str]:
    """Point Prefect in this process and its children to a server of ours; return the settings that start it.

    Those are for its environment alone.
    """
    # The user's profiles belong to another home and another server.
    for name in ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        os.environ.pop(name, None)
    use_prefect_settings({"PREFECT_HOME": str(home.absolute())} | signing_in(api, key))
    return {
        "PREFECT_SERVER_API_AUTH_STRING": f"{USER}:{key}",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
        # Slots that a killed run held are freed by the next server too.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        # Task runs are recorded several at a time, after a second at most.
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
        # Wherever the page comes from: else the UI would ask port 4200, or another name of this machine.
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }


def signing_in(api: str, key: str | None) -> dict[str, str]:
    """Return the settings of a client of the server there, which asks for a key or does not."""
    settings = {"PREFECT_API_URL": api}
    if key is not None:
        settings["PREFECT_API_AUTH_STRING"] = f"{USER}:{key}"
    host = urlsplit(api).hostname
    if host in LOOPBACK:  # which no proxy can reach
        direct = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), host]))
        settings |= {"no_proxy": direct, "NO_PROXY": direct}
    return settings


def use_prefect_settings(settings: Mapping[str, str]) -> None:
    """Have Prefect in this process and its children use settings, and be quiet unless the environment says more."""
    os.environ.update({**QUIET, **os.environ, **settings})
    context = sys.modules.get("prefect.context")
    if context is not None:  # a module of the user's has imported it, and the settings were settled then
        context.refresh_global_settings_context()
