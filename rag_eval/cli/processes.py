"""Start and stop child processes, and stop a command on Ctrl-C, on ``kill``, or when a child has ended.

Work that may hang, such as a flow whose server is gone, runs in a thread while the main thread waits. If the wait ends
first, the process exits without the thread: everything finished has been saved by then.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import psutil

from rag_eval.errors import ServiceError, preview

R = TypeVar("R")
START_SECONDS, STOP_SECONDS, GRACE_SECONDS, LOOK_SECONDS = 180.0, 30.0, 10.0, 0.2
MOST_QUOTED = 200
"""How many characters of a log an error quotes."""
REASON = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*")
HEARTBEAT_SECONDS = 30
"""How often a run reports to its server: the shortest interval that Prefect allows."""


def descendants(process: int) -> list[psutil.Process]:
    """Return the children of a process, their children, and so on."""
    try:
        return list(psutil.Process(process).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def end_all(processes: list[psutil.Process]) -> None:
    """Terminate processes, and kill those still alive after ``GRACE_SECONDS``."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)


class ChildProcess(subprocess.Popen[bytes]):
    """A child process named by its role in ``ROLES``, with its output in a log. It exits when its parent does."""

    def __init__(
        self,
        role: str,
        arguments: Sequence[str],
        log: Path,
        settings: Mapping[str, str],
        sockets: Sequence[socket.socket] = (),
    ) -> None:
        self.name, self.log = role.replace("-", " ").replace("server", "Prefect server"), log
        with log.open("wb") as output:
            super().__init__(
                [sys.executable, "-m", "rag_eval.cli.server", str(os.getpid()), role, *arguments],
                # Safe path: a module in the current folder must not replace one of ours.
                env={**os.environ, "PYTHONSAFEPATH": "1", **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[listener.fileno() for listener in sockets],
                start_new_session=True,  # Ctrl-C reaches only the parent, which then stops the child
            )

    def failure(self) -> ServiceError | None:
        """Return why the process has ended unexpectedly; None while it runs."""
        code = self.poll()
        if code is None:
            return None
        ended = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}{self._last_words()}"
        return ServiceError(f"the {self.name} {ended}: see {str(self.log)!r}")

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait until the process is ready; raise ``ServiceError`` if it ends or is not ready in time."""
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            problem = self.failure()
            if problem is None and time.monotonic() > deadline:
                late = f"did not answer within {START_SECONDS:g} seconds{self._last_words()}"
                problem = ServiceError(f"the {self.name} {late}: see {str(self.log)!r}")
            if problem is not None:
                raise problem
            time.sleep(0.05)

    def stop(self) -> None:
        """Terminate the process and everything in its session; kill what does not stop in time."""
        end_all(descendants(self.pid))  # stop it first, so that a worker can report the state of its runs
        self.terminate()
        try:
            self.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        end_all([process for process in psutil.process_iter() if _session(process.pid) == self.pid])

    def _last_words(self) -> str:
        words = last_words(self.log)
        return f" ({words})" if words else ""


def _session(process: int) -> int | None:
    with suppress(OSError):
        return os.getsid(process)
    return None


def last_words(log: Path) -> str:
    """Return the last line of a log that names an error, else its last line, or an empty text."""
    try:
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    reasons = [line for line in lines if REASON.match(line)]
    return preview((reasons or lines or [""])[-1], MOST_QUOTED)[1:-1]


class Stopped(SystemExit):
    """Raised on SIGINT or SIGTERM; ``consequence`` says what happens to the work."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(self.exit_code)
        self.consequence = "nothing was saved"


def stop_on_signals() -> None:
    """Make SIGINT and SIGTERM raise ``Stopped`` in the main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    for other in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the cleanup
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)


@contextmanager
def leaving(consequence: str) -> Iterator[None]:
    """Set the message that is printed if the block is stopped."""
    try:
        yield
    except Stopped as stop:
        stop.consequence = consequence
        raise


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` inside the block on a signal, and ``Stopped`` outside of it.

    asyncio cancels its tasks in order on ``KeyboardInterrupt``.
    """
    received: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(received[0] if received else signal.SIGINT) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_left_behind = threading.Event()


def watched(work: Callable[[], R], trouble: Callable[[], Exception | None] = lambda: None) -> R:
    """Run ``work`` in a thread and return its result; on ``Stopped`` or ``trouble``, raise without waiting for it."""
    outcome: Future[R] = Future()

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by the main thread
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
    """Exit; if work is still running, exit at once and end all child processes."""
    if not _left_behind.is_set():
        sys.exit(code)
    for process in descendants(os.getpid()):  # processes of a task runner may ignore SIGTERM
        with suppress(psutil.NoSuchProcess):
            process.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
