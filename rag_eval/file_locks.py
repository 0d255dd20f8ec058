"""A lock on a file that dies with the process that holds it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rag_eval.errors import ArtifactError

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        # flock, not lockf: it keeps threads of one process apart too.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
