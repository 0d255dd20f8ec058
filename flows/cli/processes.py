"""Ending processes together with all that they started."""

from collections.abc import Callable

import psutil

GRACE_SECONDS = 10.0


def end_descendants(process: int, *, grace: float = GRACE_SECONDS) -> None:
    """Have all that a process started, and what that started in turn, stop; by force after so many seconds."""
    end_all(descendants(process), grace=grace)


def descendants(process: int) -> list[psutil.Process]:
    """All that a process started, and what that started in turn."""
    try:
        return list(psutil.Process(process).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def end_all(processes: list[psutil.Process], *, grace: float = GRACE_SECONDS) -> None:
    """Have processes stop; by force after so many seconds."""
    for each in processes:
        quietly(each.terminate)
    _, alive = psutil.wait_procs(processes, timeout=grace)
    for each in alive:
        quietly(each.kill)
    psutil.wait_procs(alive, timeout=grace)


def quietly(act: Callable[[], None]) -> None:
    """Do something to a process that may have ended by now."""
    try:
        act()
    except psutil.NoSuchProcess:
        return
