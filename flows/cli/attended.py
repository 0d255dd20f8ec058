"""A server or a worker of Prefect as a child that does not outlive its parent, however that ends.

Run as ``python -m flows.cli.attended PARENT server HOST PORT [RUNS]`` or ``… PARENT worker POOL``.
"""

import asyncio
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LOOK_SECONDS = 0.5
COLLECT_SECONDS = 2.0


def start_attended(arguments: list[str], log: int, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """The child, with settings added to our environment; what it writes goes to the open file ``log``."""
    return subprocess.Popen(  # noqa: S603  # our own module
        [sys.executable, "-m", "flows.cli.attended", str(os.getpid()), *arguments],
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

    from flows.cli.locked_database import RepeatedRequests

    app = create_app()
    if runs is not None:
        from flows.cli.run_pages import runs_mount

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


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    ROLES[sys.argv[2]](*sys.argv[3:])
