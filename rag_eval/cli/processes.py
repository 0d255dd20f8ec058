"""Being stopped: by Ctrl-C, by ``kill``, or because something that a command needs has ended.

Work that may not come back from where it is, such as a flow that asks a server which is gone, is done in a thread, and
the main thread waits for it. When the wait is over before the work, the process ends without it: what was finished is
kept by then, and nothing else is in a state that matters.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import psutil

from rag_eval.errors import preview

GRACE_SECONDS = 10.0
MOST_SAID = 200
"""How many characters are quoted of a log."""
REASON = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*")
HEARTBEAT_SECONDS = 30
"""How often a run tells its server that it is alive: the least that Prefect knows."""


def descendants(process: int) -> list[psutil.Process]:
    """Return all that a process started, and what that started in turn."""
    try:
        return list(psutil.Process(process).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def end_all(processes: list[psutil.Process]) -> None:
    """Stop processes; by force after ``GRACE_SECONDS``."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)


def start_attended(
    arguments: list[str], log: Path, settings: Mapping[str, str], sockets: Sequence[socket.socket] = ()
) -> subprocess.Popen[bytes]:
    """Start a process in one of the ``ROLES`` of ``server``; it ends when this process does.

    It inherits the sockets, and has the settings beside our environment. What it writes goes to the file ``log``.
    """
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", "rag_eval.cli.server", str(os.getpid()), *arguments],
            # Safe, as are the processes that it starts: a module in the current folder is not taken for one of ours.
            env={**os.environ, "PYTHONSAFEPATH": "1", **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[one.fileno() for one in sockets],
            start_new_session=True,  # Ctrl-C is for us, who then stop it
        )


def last_words(log: Path) -> str:
    """Return the last line of a log that names an error, else its last line; empty when there is none."""
    try:
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    reasons = [line for line in lines if REASON.match(line)]
    return preview((reasons or lines or [""])[-1], MOST_SAID)[1:-1]


def describe_end(process: subprocess.Popen[bytes], log: Path) -> str | None:
    """Say how a process ended, with its last words; None while it is running."""
    code = process.poll()
    if code is None:
        return None
    if code < 0:
        return f"was ended by signal {-code}"
    words = last_words(log)
    return f"ended with code {code}{f' ({words})' if words else ''}"


R = TypeVar("R")
LOOK_SECONDS = 0.2
_left_behind = threading.Event()


class Stopped(SystemExit):
    """Somebody asked this process to stop: a way to exit, because nothing is to be done about it but to go.

    ``consequence`` says what becomes of the work.
    """

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(self.exit_code)
        self.consequence = "nothing was kept"


def stop_on_signals() -> None:
    """Have SIGINT and SIGTERM raise ``Stopped`` in the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


@contextmanager
def leaving(consequence: str) -> Iterator[None]:
    """Say this when the block is stopped."""
    try:
        yield
    except Stopped as stop:
        stop.consequence = consequence
        raise


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` on SIGINT and SIGTERM inside of the block, and ``Stopped`` out of it.

    For asyncio, which ends its tasks in order on a ``KeyboardInterrupt``.
    """
    asked: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(asked[0] if asked else signal.SIGINT) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    # One request is enough: what happens now is the tidying up.
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)


def watched(work: Callable[[], R], trouble: Callable[[], Exception | None] = lambda: None) -> R:
    """Return what ``work`` returns; raise what ``trouble`` reports, and ``Stopped``, without waiting for it."""
    from concurrent.futures import Future, wait

    outcome: Future[R] = Future()

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by who waits
            outcome.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    _left_behind.set()
    while not wait([outcome], LOOK_SECONDS).done:
        problem = trouble()
        if problem is not None:
            raise problem
    _left_behind.clear()
    return outcome.result()


def leave(code: int) -> NoReturn:
    """End this process; at once, with its children, when work was left behind."""
    if not _left_behind.is_set():
        sys.exit(code)
    for process in descendants(os.getpid()):  # of a runner, which may have started them in any way
        with suppress(psutil.NoSuchProcess):
            process.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
