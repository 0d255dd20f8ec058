"""Events of a running benchmark, for listeners in the same process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

Status = Literal["started", "waiting", "retrying", "computed", "reused", "failed"]


@dataclass(frozen=True, slots=True)
class StageEvent:
    """A stage of a configuration (None: of the whole benchmark) has changed its status.

    ``reason`` says in one sentence why a stage waits, is retried or has failed; None otherwise.
    """

    configuration: str | None
    stage: str
    status: Status
    reason: str | None = None


Listener = Callable[[StageEvent], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with every event of this process, from the threads that do the work."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(event: StageEvent) -> None:
    """Tell every listener."""
    for listener in list(_listeners):
        listener(event)
