"""Where Prefect keeps what is its own, and the settings that point it there.

Prefect trusts its home: it runs what ``logging.yml``, profiles and the deployments in the database tell it to. So the
home is never in the workspace, which may come from anybody, but among the user's own files.

Whoever may ask a server of ours has its key: a new one at each start, in the environment of our processes and, for the
commands that look for a running ``rag-eval up``, in a file that the user alone can read.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rag_eval.disk.files import (
    data_sha256,
    scratch_path,
    sweep_scratch,
    user_folder,
    writing,
)
from rag_eval.disk.locks import try_lock
from rag_eval.errors import ArtifactError

if TYPE_CHECKING:
    from rag_eval.pipeline.workspace import Workspace

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}


def prefect_home(workspace: "Workspace") -> Path:
    """The folder for the servers of a workspace: made, for the user alone, and free of what killed commands left.

    Raises ``ArtifactError`` when it cannot be made.
    """
    address = workspace.remote or str(workspace.root.resolve())
    home = user_folder("state") / data_sha256(address)[:16]
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
"""The settings by which a lasting server removes what is old from its database."""


def compact(workspace: "Workspace", *, dry_run: bool = False) -> int:
    """Return how many bytes were freed in Prefect's database: pages that are empty.

    Nothing is done while ``rag-eval up`` uses it, and with ``dry_run`` it is only counted.
    """
    home, freed = prefect_home(workspace), 0
    database = home / "prefect.db"
    with suppress(OSError, sqlite3.Error, ArtifactError), try_lock(home / "up.lock") as is_free:
        if is_free and database.is_file():
            with closing(sqlite3.connect(database)) as opened:
                pages, size = (
                    opened.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_size")
                )
                freed = pages * size
                if pages and not dry_run:
                    opened.execute("VACUUM")
    return freed


USER = "rag-eval"
"""Prefect wants a name before the password."""


def new_key() -> str:
    """A key for one start of a server."""
    return secrets.token_urlsafe(32)


def key_file(port: int) -> Path:
    """Where the address that signs in to the server of the user on a port is kept, its key after the ``#``."""
    return user_folder("state") / "servers" / str(port)


@contextmanager
def kept_key(port: int, address: str) -> Iterator[None]:
    """Keep the address that signs in, for the user alone, during the block.

    Raises ``ArtifactError`` when it cannot be written.
    """
    file = key_file(port)
    write_secret(file, address)
    try:
        yield
    finally:
        with suppress(OSError):
            if file.read_text(encoding="utf-8") == address:
                file.unlink()


def find_key(port: int) -> str | None:
    """The key of the server that ``rag-eval up`` started on a port, if it did; one that was killed leaves its key."""
    try:
        return key_file(port).read_text(encoding="utf-8").rpartition("#")[2]
    except (OSError, ValueError):
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
    """The part of the reports' address that nobody can guess; lasting, because pages of runs link to it."""
    file = home / "runs.token"
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        write_secret(file, new_key())
        return file.read_text(encoding="utf-8")


def use_key(key: str) -> None:
    """Have Prefect, which is imported later, and our children sign in with this key."""
    os.environ["PREFECT_API_AUTH_STRING"] = f"{USER}:{key}"


def use_own_server(home: Path, api: str, key: str) -> dict[str, str]:
    """Point Prefect, which is imported later, and its children to a server of ours; the settings of that, to start it.

    They are for its environment alone.
    """
    # The user's profiles belong to another home and another server.
    for name in ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        os.environ.pop(name, None)
    os.environ.update({**QUIET, **os.environ, "PREFECT_HOME": str(home.absolute()), "PREFECT_API_URL": api})
    use_key(key)
    return {
        "PREFECT_SERVER_API_AUTH_STRING": f"{USER}:{key}",
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / 'prefect.db'}",
        # Wherever the page comes from: else the UI would ask port 4200, or another name of this machine.
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }
