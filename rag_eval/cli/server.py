"""Which Prefect server a command uses, the one the user named or one of his on this machine, and being one."""

import asyncio
import base64
import gc
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rag_eval.cli.prefect_home import QUIET, USER, find_key, use_key
from rag_eval.cli.server_gate import SIGN_IN_PATH, LoopbackGate, sign_in
from rag_eval.errors import RagEvalError, ServiceError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
            if await self._is_answered(dict(scope), request, receive, send):
                return
            await asyncio.sleep(pause)
        await self._is_answered(scope, request, receive, send, is_last=True)

    async def _is_answered(
        self, scope: "Scope", request: "list[Message]", receive: "Receive", send: "Send", *, is_last: bool = False
    ) -> bool:
        """Give the app what was received, from its beginning; pass its answer on unless it is 503 and not the last."""
        kept, refused = iter(request), False

        async def replay() -> "Message":
            message = next(kept, None)
            return await receive() if message is None else message

        async def pass_on(message: "Message") -> None:
            nonlocal refused
            refused = refused or (message.get("status") == UNAVAILABLE and not is_last)
            if not refused:
                await send(message)

        try:
            await self._app(scope, replay, pass_on)
        except Exception:
            if not refused:  # what led to a 503 is raised after it, to be logged
                raise
        return not refused


RUNS_PATH = "/rag-eval/runs"


class RunPages(StaticFiles):
    """Files that run their scripts as strangers: they hold texts of documents, and the API is on the same address."""

    async def check_config(self) -> None:
        """Not refuse a folder that comes with its first run."""

    async def get_response(self, path: str, scope: "Scope") -> Response:
        """A file of a run, or, below ``tables/``, a table of the workspace beside the runs, as lines of JSON."""
        if not TABLE.fullmatch(path) or self.directory is None:
            return await super().get_response(path, scope)
        return self._sandboxed(await asyncio.to_thread(_table_response, Path(self.directory).parent / path))

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, in a sandbox."""
        return self._sandboxed(super().file_response(*args, **kwargs))

    def _sandboxed(self, response: Response) -> Response:
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts allow-popups"
        response.headers["Referrer-Policy"] = "no-referrer"  # the address is the only key to it
        return response


TABLE = re.compile(r"tables/[a-z_-]+/[0-9a-f]{64}\.arrow")
MOST_ROWS = 1_000


def _table_response(path: Path) -> Response:
    """The first rows of a table, one JSON object a line; 404 where it is gone."""
    from rag_eval.disk.rows import read_table

    try:
        table = read_table(path)
    except (OSError, RagEvalError):
        return PlainTextResponse("The table is gone from the workspace.", 404)
    shown = table.slice(0, MOST_ROWS).to_pylist()
    lines = [f"# {table.num_rows:,} rows, the first {len(shown):,} of them:"]
    lines += [json.dumps(row, ensure_ascii=False, default=str) for row in shown]
    return PlainTextResponse("\n".join(lines), headers={"X-Content-Type-Options": "nosniff"})


LOOK_SECONDS = 0.5
COLLECT_SECONDS = 2.0


def start_attended(arguments: list[str], log: Path, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """The child, with settings added to our environment; what it writes goes to the file ``log``."""
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", "rag_eval.cli.server", str(os.getpid()), *arguments],
            # Safe: a folder of the user's called flows, where the command was given, is not taken for ours.
            env={**os.environ, "PYTHONSAFEPATH": "1", **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us, who then stop it
        )


RUNS_TOKEN = "RAG_EVAL_RUNS_TOKEN"  # noqa: S105  # the name of the variable that holds it


def serve(host: str, port: str, *runs: str) -> None:
    """Be a Prefect server, and serve folders of runs beside it, each as ``NAME=FOLDER``, until told to stop."""
    gc.disable()  # importing it makes 400,000 objects, which all stay: looking through them is a fifth of its start
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app()
    # Before the UI, which answers to every path; the folder may come later.
    app.router.routes.insert(0, Route(SIGN_IN_PATH, sign_in))
    for name, _, folder in (one.partition("=") for one in runs):
        pages = RunPages(directory=folder, check_dir=False)
        app.router.routes.insert(0, Mount(f"{RUNS_PATH}/{os.environ[RUNS_TOKEN]}/{name}", app=pages))
    _collect_garbage_aside()
    uvicorn.run(LoopbackGate(RepeatedRequests(app)), host=host, port=int(port), log_level="error")


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
    while os.getppid() == parent and psutil.pid_exists(parent):  # Windows goes on naming one that has ended
        time.sleep(LOOK_SECONDS)
    from rag_eval.cli.processes import descendants, end_all

    end_all(descendants(os.getpid()))
    os._exit(0)


LOCAL_API = "http://127.0.0.1:4200/api"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LISTENING = "0A"
"""The state of a socket that listens, in the tables of the kernel."""
ASK_PREFECT = "from prefect.settings import get_current_settings as s; print(s().api.url or '')"


def use_lasting_server() -> str:
    """Use the server that the user named, or one on this machine, and say where it is; import Prefect after it.

    Raises ``ServiceError`` when there is none, or it does not answer.
    """
    api = lasting_server()
    if api is None:
        raise ServiceError("there is no Prefect server: start one with `rag-eval up`, or name one with PREFECT_API_URL")
    use_lasting(api)
    return without_credentials(api)


def lasting_server(here: str = LOCAL_API) -> str | None:
    """The server that the user named, or has on this machine, at this address; None without one.

    Raises ``ServiceError`` when the one that he named does not answer.
    """
    return named_server() or (here if is_open_to_us(here) else None)


def use_lasting(api: str) -> None:
    """Point Prefect to a server that runs already, with its key where ``rag-eval up`` started it."""
    os.environ.update({**QUIET, **os.environ, "PREFECT_API_URL": api})
    key = running_key(api)
    if key is not None:
        use_key(key)


def running_key(api: str) -> str | None:
    """The key of the server there, where a ``rag-eval up`` of this user started it."""
    address = urllib.parse.urlsplit(without_credentials(api))
    with suppress(ValueError):  # a port that is none
        key = find_key(address.port or 80) if address.hostname in LOOPBACK else None
        if key and not admits(api, None) and admits(api, f"{USER}:{key}"):
            return key
    return None


def is_open_to_us(api: str) -> bool:
    """Whether a server that the user did not name is one to use: his own or root's, which lets us in.

    A worker does what its server says, so another user's is not.
    """
    port = urllib.parse.urlsplit(api).port or 80
    us = os.getuid() if hasattr(os, "getuid") else 0  # Windows has no such numbers, and tells of no listeners
    if not answers(api) or not _listeners(port) <= {us, 0}:
        return False
    return admits(api, os.environ.get("PREFECT_API_AUTH_STRING")) or running_key(api) is not None


def _listeners(port: int) -> set[int]:
    """The users who listen on a port of this machine; empty where the system does not tell."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(int(fields[7]))
    return found


def admits(api: str, credentials: str | None) -> bool:
    """Whether the server there answers who has these credentials, ``user:password``."""
    return _ask(api, "admin/version", 10.0, credentials)[0] == 200


def named_server() -> str | None:
    """The server that the user named, in the environment or in the files that Prefect's settings come from.

    Raises ``ServiceError`` when it does not answer.
    """
    named, where = os.environ.get("PREFECT_API_URL"), "PREFECT_API_URL"
    if not named:
        home = Path(os.environ.get("PREFECT_HOME") or Path.home() / ".prefect").expanduser()
        profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml").expanduser()
        here = {"prefect.toml": "", "pyproject.toml": "tool.prefect", ".env": "PREFECT_"}
        mentioned = []
        for path, sign in [(profiles, "PREFECT_API_URL"), *((Path(name), sign) for name, sign in here.items())]:
            with suppress(OSError):
                if sign in path.read_text(encoding="utf-8", errors="replace"):
                    mentioned.append(str(path))
        if not mentioned:
            return None
        # Prefect alone knows which profile and which file win; asked in a process of its own, because whoever imports
        # Prefect settles its settings, and a server of ours wants others.
        asked = subprocess.run(  # noqa: S603  # our own line
            [sys.executable, "-c", ASK_PREFECT], capture_output=True, text=True, timeout=60, check=False
        )
        named, where = asked.stdout.strip() or None, " or ".join(mentioned)
    if named and not answers(named, 10.0):
        raise ServiceError(
            f"the Prefect server at {without_credentials(named)} does not answer: start it, or take its address out of "
            f"{where}"
        )
    return named


def answers(api: str, seconds: float = 2.0) -> bool:
    """Whether a Prefect server answers there, or one that wants to know who asks."""
    status, said = _ask(api, "health", seconds)
    return status in (401, 403) or (status == 200 and said.strip() == b"true")


def _ask(api: str, path: str, seconds: float, credentials: str | None = None) -> tuple[int, bytes]:
    """The status and the first bytes of an answer; 0 without one."""
    try:
        request = urllib.request.Request(f"{without_credentials(api).rstrip('/')}/{path}")  # noqa: S310  # by rule
        if credentials is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310  # http by rule
            return answer.status, answer.read(16)
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (OSError, ValueError, HTTPException):  # whatever else may listen there
        return 0, b""


def without_credentials(address: str) -> str:
    """The address without the user and the password that may stand in it."""
    return re.sub(r"(?<=://)[^/?#]*@", "", address, count=1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    ROLES[sys.argv[2]](*sys.argv[3:])
