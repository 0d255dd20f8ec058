"""Which Prefect server a command uses: the one the user named, one that answers on this machine, or a temporary one."""

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from flows.cli.temporary_server import QUIET, TemporaryServer, temporary_server
from rag_eval.errors import ServiceError

LOCAL_API = "http://127.0.0.1:4200/api"
START_SECONDS = 180.0
ASK_PREFECT = "from prefect.settings import get_current_settings as s; print(s().api.url or '')"


class PrefectServer:
    """A server that may still be starting: ``wait`` until it answers."""

    def __init__(self, api: str, temporary: TemporaryServer | None = None) -> None:
        self.api = api
        self._temporary = temporary

    def __str__(self) -> str:
        if self._temporary is None:
            return f"the Prefect server at {without_credentials(self.api)}"
        return "a temporary Prefect server" + ("" if self._temporary.migrated else ", whose database is made first")

    @property
    def is_temporary(self) -> bool:
        """Whether it was started for this command."""
        return self._temporary is not None

    def wait(self) -> None:
        """Wait until the server answers; raises ``ServiceError`` when it ends or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        while not answers(self.api, 2.0):
            problem = self.trouble()
            if problem is not None:
                raise problem
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"the Prefect server at {without_credentials(self.api)} did not answer within "
                    f"{START_SECONDS:.0f} seconds: start one yourself and set PREFECT_API_URL"
                )
            time.sleep(0.05)
        if self._temporary is not None:
            self._temporary.keep_as_template()

    def trouble(self) -> ServiceError | None:
        """What befell a temporary server that has ended; None while it lives, and for servers that are not ours."""
        return self._temporary.trouble() if self._temporary is not None else None


@contextmanager
def prefect_server(home: Path) -> Iterator[PrefectServer]:
    """A server for one command, and the environment that points Prefect to it; import Prefect inside the block.

    A temporary server ends with the block. Raises ``ServiceError`` when a server that the user named does not answer.
    """
    named = named_server()
    if named:
        os.environ.update({**QUIET, **os.environ})
        yield PrefectServer(named)
    elif answers(LOCAL_API, 0.5):
        os.environ.update({**QUIET, **os.environ, "PREFECT_API_URL": LOCAL_API})
        yield PrefectServer(LOCAL_API)
    else:
        with temporary_server(home) as temporary:
            yield PrefectServer(temporary.api, temporary)


def use_lasting_server() -> str:
    """Use the server that the user named, or one on this machine, and say where it is; import Prefect after it.

    Raises ``ServiceError`` when there is none, or it does not answer.
    """
    api = named_server() or (LOCAL_API if answers(LOCAL_API, 2.0) else None)
    if api is None:
        raise ServiceError("there is no Prefect server: start one with `rag-eval up`, or name one with PREFECT_API_URL")
    os.environ.update({**QUIET, **os.environ, "PREFECT_API_URL": api})
    return without_credentials(api)


def named_server() -> str | None:
    """The server that the user named; raises ``ServiceError`` when it does not answer."""
    named, where = named_api()
    if named and not answers(named, 10.0):
        raise ServiceError(
            f"the Prefect server at {without_credentials(named)} does not answer: start it, or take its address out of "
            f"{where}"
        )
    return named


def named_api() -> tuple[str | None, str]:
    """The server that the user named, and where: the environment, or the files Prefect's settings come from."""
    named = os.environ.get("PREFECT_API_URL")
    if named:
        return named, "PREFECT_API_URL"
    mentioned = [path for path, sign in _settings_files().items() if _holds(path, sign)]
    if not mentioned:
        return None, ""
    # Prefect alone knows which profile and which file win; asked in a process of its own, because whoever imports
    # Prefect settles its settings, and a temporary server wants others.
    asked = subprocess.run(  # noqa: S603  # our own line
        [sys.executable, "-c", ASK_PREFECT], capture_output=True, text=True, timeout=60, check=False
    )
    return asked.stdout.strip() or None, " or ".join(map(str, mentioned))


def _settings_files() -> dict[Path, str]:
    """The files that may name a server, and what stands in them if they do."""
    home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect").expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml").expanduser()
    here = {"prefect.toml": "", "pyproject.toml": "tool.prefect", ".env": "PREFECT_"}
    return {profiles: "PREFECT_API_URL"} | {Path(name): sign for name, sign in here.items()}


def _holds(path: Path, sign: str) -> bool:
    try:
        return sign in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def answers(api: str, seconds: float) -> bool:
    """Whether a Prefect server answers there."""
    health = f"{without_credentials(api).rstrip('/')}/health"
    try:
        with urllib.request.urlopen(health, timeout=seconds) as answer:  # noqa: S310  # http by rule
            return bool(answer.status == 200 and answer.read(16).strip() == b"true")
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)  # a server that wants to know who asks
    except (OSError, ValueError, HTTPException):  # whatever else may listen there
        return False


def without_credentials(address: str) -> str:
    """The address without the user and the password that may stand in it."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address, count=1)
