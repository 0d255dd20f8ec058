"""Where Prefect keeps what is its own, and the settings that point it there.

Prefect trusts its home: it runs what ``logging.yml``, profiles and the deployments in the database tell it to. So the
home is never in the workspace, which may come from anybody, but among the user's own files. A migrated database is
kept as a template, because making one takes longer than anything else in the start of a server.
"""

import logging
import os
import shutil
import sqlite3
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rag_eval.disk.files import data_sha256, file_sha256, scratch_path, sweep_scratch
from rag_eval.errors import ArtifactError

if TYPE_CHECKING:
    from rag_eval.benchmark.workspace import Workspace

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}

DIGITS = 24
"""How much of its digest a template has in its name."""

logger = logging.getLogger("rag_eval.server")


def prefect_home(workspace: "Workspace") -> Path:
    """The folder for the servers of a workspace: made, for the user alone, and free of what killed servers left.

    Raises ``ArtifactError`` when it cannot be made.
    """
    address = workspace.remote or str(workspace.root.resolve())
    home = _user_folder("XDG_STATE_HOME", ".local/state") / data_sha256(address)[:16]
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(
            f"the folder {str(home)!r} for Prefect cannot be made ({error.strerror}): set XDG_STATE_HOME to another"
        ) from None
    sweep_scratch(home)
    return home


def use_own_server(home: Path, api: str) -> None:
    """Point Prefect, which is imported later, and its children to a server of ours and what it keeps."""
    # The user's profiles belong to another home and another server.
    for name in ("PREFECT_PROFILE", "PREFECT_PROFILES_PATH"):
        os.environ.pop(name, None)
    os.environ.update({**QUIET, **os.environ, "PREFECT_HOME": str(home.absolute()), "PREFECT_API_URL": api})


def use_template(database: Path) -> bool:
    """Copy a template to where a database is wanted; False where there is none that can be read.

    A damaged one is removed, which the log says.
    """
    for template in _templates():
        try:
            shutil.copyfile(template, database)
            if template.stem.endswith(file_sha256(database)[:DIGITS]):
                return True
            logger.warning("the database template %s was damaged: it is made anew, which takes a while", template)
            template.unlink(missing_ok=True)
        except OSError:
            pass  # somebody else's, or just removed by another start
        database.unlink(missing_ok=True)
    return False


def keep_template(database: Path) -> None:
    """Keep a migrated database for the next server; where that cannot be written, the next one migrates again."""
    try:
        with scratch_path(_user_folder("XDG_CACHE_HOME", ".cache")) as scratch:
            source, target = sqlite3.connect(database), sqlite3.connect(scratch)
            with source, target:
                source.backup(target)
            source.close()
            target.close()
            if not _templates():  # another first start may have been sooner
                name = f"prefect-{version('prefect')}-{file_sha256(scratch)[:DIGITS]}.db"
                os.replace(scratch, scratch.with_name(name))
    except (OSError, ArtifactError, sqlite3.Error):
        return


def _templates() -> list[Path]:
    return sorted(_user_folder("XDG_CACHE_HOME", ".cache").glob(f"prefect-{version('prefect')}-*.db"))


def _user_folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "rag-eval"
