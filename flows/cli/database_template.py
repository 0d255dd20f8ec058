"""A migrated Prefect database, kept between runs: migrating takes most of a server's first start.

The template's name holds the version of Prefect that made it and the digest of its content, so that what was altered
or cut short is not used.
"""

import logging
import os
import shutil
import sqlite3
from importlib.metadata import version
from pathlib import Path

from rag_eval.digests import file_sha256
from rag_eval.errors import ArtifactError
from rag_eval.files import scratch_path

logger = logging.getLogger("rag_eval.server")


def use_template(database: Path) -> bool:
    """Copy a template to where a database is wanted; False where there is none that can be read.

    A damaged one is removed, and said.
    """
    for template in _templates():
        try:
            shutil.copyfile(template, database)
            if _name(database) == template.name:
                return True
            logger.warning("the database template %s was damaged: it is made anew, which takes a while", template)
            template.unlink(missing_ok=True)
        except OSError:
            pass  # somebody else's, or just removed by another start
        database.unlink(missing_ok=True)
    return False


def keep_template(database: Path) -> None:
    """Keep a migrated database for the next server; where that cannot be written, the next one migrates again."""
    folder = _folder()
    try:
        with scratch_path(folder) as scratch:
            source, target = sqlite3.connect(database), sqlite3.connect(scratch)
            with source, target:
                source.backup(target)
            source.close()
            target.close()
            if not _templates():  # another first start may have been sooner
                os.replace(scratch, folder / _name(scratch))
    except (OSError, ArtifactError, sqlite3.Error):
        return


def _templates() -> list[Path]:
    return sorted(_folder().glob(f"prefect-{version('prefect')}-*.db"))


def _name(database: Path) -> str:
    return f"prefect-{version('prefect')}-{file_sha256(database)[:24]}.db"


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rag-eval"
