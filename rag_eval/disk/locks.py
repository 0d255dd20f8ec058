"""A lock on a file that dies with the process that holds it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rag_eval.errors import ArtifactError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _lock(descriptor: int) -> None:
        while True:
            with suppress(OSError):  # after ten seconds
                return msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        # flock, not lockf: it keeps threads of one process apart too.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which is made, and give True; False at once when another holds it.

    The system lets go of it when the holder ends, however it ends. Raises ``ArtifactError`` when the file cannot be
    made, or its file system knows no locks.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        yield _is_locked(descriptor, path)
    finally:
        os.close(descriptor)


@contextmanager
def in_turn(path: Path, on_wait: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file, which is made and removed; while another holds it, say so to ``on_wait`` and wait.

    Where the file cannot be made, or its file system knows no locks, nobody waits.
    """
    descriptor: int | None = None
    with suppress(OSError, ArtifactError):
        descriptor = _own(path, on_wait)
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(descriptor)


def _own(path: Path, on_wait: Callable[[], object]) -> int:
    """The descriptor of the file that is at this path, once it is locked."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _is_locked(descriptor, path):
                on_wait()
                _lock(descriptor)
            # Whoever held it has removed it: the lock of a file that is gone keeps nobody out.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_locked(descriptor: int, path: Path) -> bool:
    try:
        _try_lock(descriptor)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise _unusable(path, error) from None
    return True


def _unusable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(f"{str(path)!r} cannot be locked ({error.strerror}): check the place")
