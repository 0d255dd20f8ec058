"""Run the child processes of commands: a Prefect server behind a gate, and a worker."""

import asyncio
import gc
import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import uvicorn
from filelock import FileLock
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from uvicorn.lifespan.on import LifespanOn

from rag_eval.cli.prefect_home import RUNS_PATH, RUNS_TOKEN, SIGN_IN_PATH
from rag_eval.cli.processes import GRACE_SECONDS, descendants, end_all
from rag_eval.cli.server_gate import LoopbackGate, sign_in
from tasks.current_folder import ignore_settings_here

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOK_SECONDS, LOOK_FOR_EVENTS_SECONDS, STALLED_SECONDS, COLLECT_SECONDS, CLOSE_SECONDS = 0.5, 0.02, 5.0, 2.0, 10
PAUSES, UNAVAILABLE = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8), 503


class RepeatedRequests:
    """Middleware that repeats requests answered with 503, as Prefect does while its database is locked.

    Prefect's own client repeats them; the dashboard does not.
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
            if await self._answer(dict(scope), request, receive, send):
                return
            await asyncio.sleep(pause)
        await self._answer(scope, request, receive, send, is_last=True)

    async def _answer(
        self, scope: "Scope", request: "list[Message]", receive: "Receive", send: "Send", *, is_last: bool = False
    ) -> bool:
        """Pass the request to the app, and send its answer unless it is a 503 and another attempt follows."""
        messages, refused = iter(request), False

        async def replay() -> "Message":
            return next(messages, None) or await receive()

        async def forward(message: "Message") -> None:
            nonlocal refused
            refused = refused or (message.get("status") == UNAVAILABLE and not is_last)
            if not refused:
                await send(message)

        try:
            await self._app(scope, replay, forward)
        except Exception:
            if not refused:  # the cause of a 503 is raised after it
                raise
        return not refused


class OrderlyLifespan(LifespanOn):
    """Starts the app while no other server migrates its database, and stops it once all events are recorded."""

    async def startup(self) -> None:
        """Start the app; two servers that migrate one database at once would fail."""
        with FileLock(Path(os.environ["PREFECT_HOME"]) / "start.lock"):
            await super().startup()

    async def shutdown(self) -> None:
        """Stop the app once Prefect's services have taken every event; they would drop the rest."""
        from prefect.server.utilities.messaging.memory import METRICS

        events, before, changed = METRICS["events"], -1, time.monotonic()
        while (left := events["published"] - events["consumed"]) > 0 and time.monotonic() - changed < STALLED_SECONDS:
            if left != before:
                before, changed = left, time.monotonic()
            await asyncio.sleep(LOOK_FOR_EVENTS_SECONDS)
        await super().shutdown()


class RunPages(StaticFiles):
    """Serves report files from a sandboxed origin, so that their scripts cannot call the API at the same address."""

    async def check_config(self) -> None:
        """Accept a folder that does not exist yet: the first run creates it."""

    async def get_response(self, path: str, scope: "Scope") -> "Response":
        """Return a file of a run."""
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = "sandbox allow-scripts allow-popups"
        response.headers["Referrer-Policy"] = "no-referrer"  # the address is the only key to the file
        return response


def serve(host: str, port: str, *runs: str) -> None:
    """Run a Prefect server, and serve folders of runs, each given as ``NAME=FOLDER``, beside it."""
    app = _create_app()
    # Before the UI, which answers every path.
    app.router.routes.insert(0, Route(SIGN_IN_PATH, sign_in))
    for name, _, folder in (run.partition("=") for run in runs):
        pages = RunPages(directory=folder, check_dir=False)
        app.router.routes.insert(0, Mount(f"{RUNS_PATH}/{os.environ[RUNS_TOKEN]}/{name}", app=pages))
    with socket.socket() as listener:  # only bound: connections are refused until the app has started
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        _serve(app, listener)


def serve_temporarily(listener: str) -> None:
    """Run a Prefect server on an inherited socket, given by its file descriptor."""
    _serve(_create_app(), socket.socket(fileno=int(listener)))


def _create_app() -> "FastAPI":
    gc.disable()  # the import creates 400,000 objects that stay; collecting garbage would take a fifth of the start
    from prefect.server.api.server import create_app

    return create_app()


def _serve(app: "FastAPI", listener: socket.socket) -> None:
    gc.freeze()
    threading.Thread(target=_collect_garbage, daemon=True).start()
    config = uvicorn.Config(
        LoopbackGate(RepeatedRequests(app)), log_level="error", timeout_graceful_shutdown=CLOSE_SECONDS
    )
    config.load()
    config.lifespan_class = OrderlyLifespan
    uvicorn.Server(config).run([listener])


def _collect_garbage() -> None:
    """Collect garbage in this thread instead of the event loop.

    Collecting an SQLite cursor waits for its connection. That connection may wait for up to a minute for a transaction
    that only the event loop can end.
    """
    for turn in itertools.count():
        time.sleep(COLLECT_SECONDS)
        gc.collect(2 if turn % 10 == 0 else 1)


def run_worker(pool: str) -> None:
    """Run a worker that executes flows as processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as on Ctrl-C, so that its runs are stopped too
    from prefect.workers.process import ProcessWorker

    asyncio.run(ProcessWorker(work_pool_name=pool, create_pool_if_not_found=True).start())


ROLES: dict[str, Callable[..., None]] = {"server": serve, "temporary-server": serve_temporarily, "worker": run_worker}


def _end_with(parent: int) -> None:
    """Exit when the parent process has ended."""
    while os.getppid() == parent and psutil.pid_exists(parent):
        time.sleep(LOOK_SECONDS)
    end_all(descendants(os.getpid()))
    os.kill(os.getpid(), signal.SIGTERM)  # a server first records what it has received
    time.sleep(GRACE_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    ignore_settings_here()
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    ROLES[sys.argv[2]](*sys.argv[3:])
