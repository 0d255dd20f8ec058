"""Lock files; the system releases the locks when their holder ends or is killed.

``filelock`` uses the system's locks (``flock``, on Windows ``LockFileEx``); its marker files, which outlive a killed
holder, are not used.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rag_eval.errors import ArtifactError

if TYPE_CHECKING:
    from filelock import BaseFileLock

POLL_SECONDS = 0.02


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is created; yield False at once if it is taken. Raises ``ArtifactError``."""
    try:
        lock = _acquired(path)
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be locked ({error.strerror}): check the path") from None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def wait_for_lock(path: Path, stopped: threading.Event | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is created and removed again; setting ``stopped`` ends the wait.

    If the file cannot be created, or its file system has no locks, do not wait.
    """
    lock = None
    with suppress(OSError):
        lock = _acquired(path, lambda: stopped is not None and stopped.is_set())
    try:
        yield
    finally:
        if lock is not None:
            # A waiting process notices that the file is gone, and creates its own. Windows keeps an open file.
            with suppress(OSError):
                path.unlink(missing_ok=True)
            lock.release()


def _acquired(path: Path, give_up: Callable[[], bool] | None = None) -> "BaseFileLock | None":
    """Return the lock once it is held; None if ``give_up`` returns true after a failed attempt, or is None."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire(poll_interval=POLL_SECONDS, blocking=give_up is not None, cancel_check=give_up)
    except Timeout:
        return None
    return lock
