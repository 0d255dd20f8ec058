"""Being stopped: by Ctrl-C, by ``kill``, or because something that a command needs has ended.

Work that may not come back from where it is, such as a flow that asks a server which is gone, is done in a thread, and
the main thread waits for it. When the wait is over before the work, the process ends without it: what was finished is
kept by then, and nothing else is in a state that matters.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TypeVar

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


def _stop(number: int, frame: FrameType | None) -> None:
    # One request is enough: what happens now is the tidying up.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def watched(work: Callable[[], R], trouble: Callable[[], Exception | None]) -> R:
    """What ``work`` gives back or raises; raises what ``trouble`` tells of, and ``Stopped``, without waiting for it."""
    outcome: list[R] = []
    failure: list[BaseException] = []

    def do() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001  # raised again by who waits
            failure.append(error)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    _left_behind.set()
    while thread.is_alive():
        thread.join(LOOK_SECONDS)
        problem = trouble()
        if problem is not None and not outcome:
            raise problem
    _left_behind.clear()
    if failure:
        raise failure[0]
    return outcome[0]


def leave(code: int) -> NoReturn:
    """End this process; at once, with its children, when work was left behind."""
    if not _left_behind.is_set():
        sys.exit(code)
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
