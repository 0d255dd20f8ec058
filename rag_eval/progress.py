"""How far work that takes long has come: loops tell it, and whoever runs them may listen."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

OnProgress = Callable[[int, int], None]
"""Is told how many are done, and of how many."""

_listener: ContextVar[OnProgress | None] = ContextVar("progress", default=None)


@contextmanager
def listening_to(listener: OnProgress) -> Iterator[None]:
    """Have the listener told of all progress in the block, from the thread that makes it; nobody above is."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_progress(done: int, total: int) -> None:
    """Tell whoever listens, if anybody does."""
    if (listener := _listener.get()) is not None:
        listener(done, total)


def followed(items: Sequence[T]) -> Iterator[T]:
    """The items, each counted as done when the next one is asked for."""
    for number, item in enumerate(items, start=1):
        yield item
        tell_progress(number, len(items))
