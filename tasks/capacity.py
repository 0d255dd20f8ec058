"""How much is done at once in one process."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Tokenizers, numpy and LanceDB use several cores each, and Python code one at a time: as many stages as cores would
# take a third more CPU time and no less real time.
_computing = threading.BoundedSemaphore(max(1, cores() // 2))


@contextmanager
def room_to_compute(*, remote: bool) -> Iterator[None]:
    """Wait until a stage may compute; one that mostly waits for a service need not wait for others too."""
    if remote:
        yield
        return
    with _computing:
        yield
