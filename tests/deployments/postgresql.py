"""Debian's PostgreSQL with a database of its own, for as long as a test needs it."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.commands import free_port, wait_for

DEBIAN = Path("/usr/lib/postgresql")
BIN = max(DEBIAN.glob("*/bin"), key=lambda found: float(found.parent.name), default=DEBIAN / "15" / "bin")
USER, PASSWORD, NAME = "prefect", "of the tests", "prefect"


@dataclass(frozen=True)
class PostgreSQL:
    """A server on loopback with a user, a password and a database."""

    port: int
    folder: Path

    def ask(self, sql: str) -> str:
        """What the database answers."""
        command = [str(BIN / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", NAME, "-Atc", sql]
        return subprocess.run(
            command, env=os.environ | {"PGPASSWORD": PASSWORD}, capture_output=True, text=True, check=True
        ).stdout.strip()


def missing() -> str | None:
    """Why there can be no PostgreSQL here; None when there can."""
    if not (BIN / "initdb").exists():
        return f"there is no PostgreSQL in {BIN}"
    if os.geteuid() == 0 and not (shutil.which("runuser") and "postgres" in {user.pw_name for user in pwd.getpwall()}):
        return "PostgreSQL does not run as root, and there is no user postgres to run it as"
    return None


@contextmanager
def postgresql(folder: Path) -> Iterator[PostgreSQL]:
    """A new one in a folder; it ends with the block."""
    # Root may not run it, and who may must get to the folder.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    data, secret, port = folder / "data", folder / "password", free_port()
    secret.write_text(PASSWORD)
    if as_user:
        for place in (folder, secret):
            shutil.chown(place, "postgres")
        for place in folder.parents[:-1]:
            place.chmod(place.stat().st_mode | 0o011) if place.owner() == "root" and place != Path("/tmp") else None  # noqa: S108
    subprocess.run(
        [*as_user, str(BIN / "initdb"), "-D", str(data), "-U", USER, "-A", "scram-sha-256", f"--pwfile={secret}"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    settings = [f"-p{port}", "-h127.0.0.1", f"-k{folder}", "-cfsync=off"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*as_user, str(BIN / "postgres"), "-D", str(data), *settings], cwd=folder, stderr=log
        )
    server = PostgreSQL(port, folder)
    try:
        ready = [str(BIN / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
        wait_for(lambda: subprocess.run(ready, check=False).returncode == 0)
        make = [str(BIN / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, NAME]
        subprocess.run(make, env=os.environ | {"PGPASSWORD": PASSWORD}, check=True)
        yield server
    finally:
        process.terminate()
        process.wait(30)
