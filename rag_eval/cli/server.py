"""The child processes of commands: a Prefect server behind a gate, and a worker."""

import asyncio
import gc
import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvicorn
from filelock import FileLock
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.lifespan.on import LifespanOn

from rag_eval.cli.prefect_home import RUNS_PATH, RUNS_TOKEN, SIGN_IN_PATH
from rag_eval.cli.server_gate import LoopbackGate, sign_in
from rag_eval.errors import RagEvalError
from tasks.current_folder import ignore_settings_here

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further attempt."""
UNAVAILABLE = 503


class RepeatedRequests:
    """The app, with every request repeated that it answers with 503, as Prefect does while its database is locked.

    Prefect's client repeats such requests by itself; the dashboard does not.
    """

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
        """Pass the request to the app, from its beginning, and its answer on unless it is 503 and not the last."""
        messages, refused = iter(request), False

        async def replay() -> "Message":
            message = next(messages, None)
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


LOOK_FOR_EVENTS_SECONDS, STALLED_SECONDS = 0.02, 5.0


class OrderlyLifespan(LifespanOn):
    """Start the app while no other server on its database starts, and stop it once all events are recorded."""

    async def startup(self) -> None:
        """Start the app; two servers that migrate one database at once would fail."""
        with FileLock(Path(os.environ["PREFECT_HOME"]) / "start.lock"):
            await super().startup()

    async def shutdown(self) -> None:
        """Stop the app when Prefect's services have taken every event: what they have not taken by then, they drop."""
        from prefect.server.utilities.messaging.memory import METRICS

        events, before, changed = METRICS["events"], -1, time.monotonic()
        while (left := events["published"] - events["consumed"]) > 0 and time.monotonic() - changed < STALLED_SECONDS:
            if left != before:
                before, changed = left, time.monotonic()
            await asyncio.sleep(LOOK_FOR_EVENTS_SECONDS)
        await super().shutdown()


class RunPages(StaticFiles):
    """Serve report files from a sandboxed origin, so that their scripts cannot call the API at the same address."""

    async def check_config(self) -> None:
        """Accept a folder that comes with its first run."""

    async def get_response(self, path: str, scope: "Scope") -> Response:
        """Return a file of a run or, below ``tables/``, a table of the workspace beside the runs, as lines of JSON."""
        if not TABLE.fullmatch(path) or self.directory is None:
            return await super().get_response(path, scope)
        return self._sandboxed(await asyncio.to_thread(_table_response, Path(self.directory).parent / path))

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file, in a sandbox."""
        return self._sandboxed(super().file_response(*args, **kwargs))

    def _sandboxed(self, response: Response) -> Response:
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts allow-popups"
        response.headers["Referrer-Policy"] = "no-referrer"  # the address is the only key to it
        return response


TABLE = re.compile(r"tables/[a-z_-]+/[0-9a-f]{64}\.arrow")
MOST_ROWS = 1_000


def _table_response(path: Path) -> Response:
    """Return the first rows of a table, one JSON object a line; 404 where it is gone."""
    from rag_eval.storage.rows import read_table

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


CLOSE_SECONDS = 10
"""How long requests that are under way may take when the server is stopped."""


def serve(host: str, port: str, *runs: str) -> None:
    """Be a Prefect server, and serve folders of runs beside it, each as ``NAME=FOLDER``, until told to stop."""
    app = _create_app()
    # Before the UI, which answers to every path; the folder may come later.
    app.router.routes.insert(0, Route(SIGN_IN_PATH, sign_in))
    for name, _, folder in (run.partition("=") for run in runs):
        pages = RunPages(directory=folder, check_dir=False)
        app.router.routes.insert(0, Mount(f"{RUNS_PATH}/{os.environ[RUNS_TOKEN]}/{name}", app=pages))
    _serve(app, host=host, port=int(port))


def serve_temporarily(listener: str) -> None:
    """Be a Prefect server on a socket that was inherited, by its number, until told to stop."""
    _serve(_create_app(), sockets=[socket.socket(fileno=int(listener))])


def _create_app() -> "FastAPI":
    gc.disable()  # importing it makes 400,000 objects, which all stay: looking through them is a fifth of its start
    from prefect.server.api.server import create_app

    return create_app()


def _serve(app: "FastAPI", sockets: list[socket.socket] | None = None, **address: Any) -> None:
    gc.freeze()
    threading.Thread(target=_collect_garbage, daemon=True).start()
    gated = LoopbackGate(RepeatedRequests(app))
    config = uvicorn.Config(gated, log_level="error", timeout_graceful_shutdown=CLOSE_SECONDS, **address)
    config.load()
    config.lifespan_class = OrderlyLifespan
    uvicorn.Server(config).run(sockets)


def _collect_garbage() -> None:
    """Collect garbage in this thread, because the event loop must not.

    A cursor of SQLite that is collected waits for its connection, and that may wait, up to a minute, for another one's
    transaction, which only the event loop can end.
    """
    for turn in itertools.count():
        time.sleep(COLLECT_SECONDS)
        gc.collect(2 if turn % 10 == 0 else 1)


def run_worker(pool: str) -> None:
    """Be a worker that runs flows as processes, until told to stop."""
    # As on Ctrl-C, so that what it runs is told to stop too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from prefect.workers.process import ProcessWorker

    asyncio.run(ProcessWorker(work_pool_name=pool, create_pool_if_not_found=True).start())


ROLES: dict[str, Callable[..., None]] = {"server": serve, "temporary-server": serve_temporarily, "worker": run_worker}


def _end_with(parent: int) -> None:
    while os.getppid() == parent and psutil.pid_exists(parent):  # Windows goes on naming one that has ended
        time.sleep(LOOK_SECONDS)
    from rag_eval.cli.processes import GRACE_SECONDS, descendants, end_all

    end_all(descendants(os.getpid()))
    os.kill(os.getpid(), signal.SIGTERM)  # a server records what it has received before it ends
    time.sleep(GRACE_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    ignore_settings_here()
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    ROLES[sys.argv[2]](*sys.argv[3:])
