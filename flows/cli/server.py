"""Which Prefect server a command uses: the one the user named, one that answers on this machine, or a temporary one."""

import asyncio
import gc
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from flows.cli.prefect_home import QUIET, keep_template, prefect_home, use_own_server, use_template
from rag_eval.disk.files import SCRATCH_PREFIX
from rag_eval.errors import ServiceError, preview

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rag_eval.benchmark.workspace import Workspace

LONGEST = 200
_REASON = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*")


def last_words(log: Path) -> str:
    """The last line of a log that names an error, else its last line; empty when there is none."""
    try:
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    reasons = [line for line in lines if _REASON.match(line)]
    return preview((reasons or lines or [""])[-1], LONGEST)[1:-1]


PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further attempt."""
UNAVAILABLE = 503


class RepeatedRequests:
    """The app, with every request that it answers with 503 repeated, and the last answer given."""

    def __init__(self, app: "ASGIApp", pauses: tuple[float, ...] = PAUSES) -> None:
        self._app, self._pauses = app, pauses

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = [await receive()]
        while request[-1].get("more_body"):
            request.append(await receive())
        for pause in self._pauses:
            if not await self._is_refused(dict(scope), _replayed(request, receive), send):
                return
            await asyncio.sleep(pause)
        await self._app(scope, _replayed(request, receive), send)

    async def _is_refused(self, scope: "Scope", receive: "Receive", send: "Send") -> bool:
        """Pass the answer on and give False, unless it is 503."""
        refused = False

        async def pass_on(message: "Message") -> None:
            nonlocal refused
            refused = refused or message.get("status") == UNAVAILABLE
            if not refused:
                await send(message)

        try:
            await self._app(scope, receive, pass_on)
        except Exception:
            if not refused:  # what led to a 503 is raised after it, to be logged
                raise
        return refused


def _replayed(request: "list[Message]", receive: "Receive") -> "Receive":
    """What was received, from its beginning, and then whatever comes."""
    kept = iter(request)

    async def again() -> "Message":
        message = next(kept, None)
        return await receive() if message is None else message

    return again


RUNS_PATH = "/rag-eval/runs"


class RunPages(StaticFiles):
    """Files that run their scripts as strangers: they hold texts of documents, and the API is on the same address."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, in a sandbox."""
        response = super().file_response(*args, **kwargs)
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts allow-popups"
        return response


def runs_mount(folder: Path) -> Mount:
    """The route to the runs in a folder, which may come later."""
    return Mount(RUNS_PATH, app=RunPages(directory=folder, check_dir=False))


LOOK_SECONDS = 0.5
COLLECT_SECONDS = 2.0


def start_attended(arguments: list[str], log: int, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """The child, with settings added to our environment; what it writes goes to the open file ``log``."""
    return subprocess.Popen(  # noqa: S603  # our own module
        [sys.executable, "-m", "flows.cli.server", str(os.getpid()), *arguments],
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C is for us, who then stop it
    )


def serve(host: str, port: str, runs: str | None = None) -> None:
    """Be a Prefect server, and serve the folders of runs beside it, until told to stop."""
    gc.disable()  # importing it makes 400,000 objects, which all stay: looking through them is a fifth of its start
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app()
    if runs is not None:
        app.router.routes.insert(0, runs_mount(Path(runs)))  # before the UI, which answers to every path
    _collect_garbage_aside()
    uvicorn.run(RepeatedRequests(app), host=host, port=int(port), log_level="error")


def _collect_garbage_aside() -> None:
    """Collect garbage in a thread of its own, and not among what is there by now.

    A cursor of SQLite that is collected waits for its connection, and that may wait, up to a minute, for another one's
    transaction: when the event loop does the collecting it waits for what only the event loop can end.
    """
    gc.freeze()

    def collect() -> None:
        for turn in itertools.count():
            time.sleep(COLLECT_SECONDS)
            gc.collect(2 if turn % 10 == 0 else 1)

    threading.Thread(target=collect, daemon=True).start()


def work(pool: str) -> None:
    """Be a worker that runs flows as processes, until told to stop."""
    # As on Ctrl-C, so that what it runs is told to stop too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from prefect.workers.process import ProcessWorker

    asyncio.run(ProcessWorker(work_pool_name=pool, create_pool_if_not_found=True).start())


ROLES: dict[str, Callable[..., None]] = {"server": serve, "worker": work}


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    from flows.cli.processes import end_descendants

    end_descendants(os.getpid())
    os._exit(0)


# A server that ends with the command schedules nothing, has no blocks and is asked for no history; keeping one would
# only hold the database when a run wants it.
BARE = {"PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false"} | {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "CANCELLATION_CLEANUP",
        "EVENT_PERSISTER",
        "FOREMAN",
        "LATE_RUNS",
        "PAUSE_EXPIRATIONS",
        "SCHEDULER",
        "TASK_RUN_RECORDER",
        "TRIGGERS",
    )
}


class TemporaryServer:
    """The child, where it answers, and what it leaves behind."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home
        self._log = folder / "server.log"
        self._database = folder / "prefect.db"
        self.migrated = use_template(self._database)
        port = free_port()
        self.api = f"http://127.0.0.1:{port}/api"
        self._stopping = False
        use_own_server(home, self.api)
        # Nobody can read them there; what is still to be sent when the server has ended would be tried for a minute.
        os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"
        with self._log.open("wb") as log:
            self._process = start_attended(
                ["server", "127.0.0.1", str(port)],
                log.fileno(),
                BARE
                | {
                    "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self._database}",
                    "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false" if self.migrated else "true",
                },
            )

    def trouble(self) -> ServiceError | None:
        """What befell the server if it has ended by itself; what it wrote is kept beside the database."""
        code = self._process.poll()
        if code is None or self._stopping:
            return None
        ending = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        said = last_words(self._log)
        if said:
            kept = self._home / "server.log"
            shutil.copyfile(self._log, kept)
            ending += f" ({said}; the whole of it is in {str(kept)!r})"
        return ServiceError(
            f"the temporary Prefect server {ending}: run again to continue, or start a server yourself and set "
            "PREFECT_API_URL"
        )

    def keep_as_template(self) -> None:
        """Keep the database that this server has migrated, so that the next one starts sooner."""
        if not self.migrated:
            keep_template(self._database)

    def stop(self) -> None:
        """End the server; at once, because nothing of it is kept."""
        self._stopping = True
        self._process.kill()
        self._process.wait()


@contextmanager
def temporary_server(home: Path) -> Iterator[TemporaryServer]:
    """A server that may still be starting, and the environment that points Prefect to it; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=home, ignore_cleanup_errors=True) as folder:
        server = TemporaryServer(home, Path(folder))
        try:
            yield server
        finally:
            server.stop()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
def prefect_server(workspace: "Workspace") -> Iterator[PrefectServer]:
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
        with temporary_server(prefect_home(workspace)) as temporary:
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


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    ROLES[sys.argv[2]](*sys.argv[3:])
