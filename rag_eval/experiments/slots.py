"""Threads for tasks and evaluators that are not async: as many as calls may be under way at once."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Slots:
    """Daemon threads that start when they are needed; one that hangs does not keep the program from ending."""

    def __init__(self, count: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = count
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()

    def call(self, function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Call the function on a thread, in the caller's context; the future holds what it gave or raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(_looked_at)
        context = contextvars.copy_context()
        with self._lock:
            if self._idle > 0 or self._threads == self._count:
                self._idle -= 1  # below zero: how many jobs wait
            else:
                self._threads += 1
                threading.Thread(target=self._work, name=f"experiment-{self._threads}", daemon=True).start()
        self._jobs.put((lambda: context.run(function, *args), loop, future))
        return future

    def close(self) -> None:
        """Let the threads end when they have done what they are at."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, loop, future = job
            try:
                value, error = call(), None
            except BaseException as raised:  # noqa: BLE001  # whatever the user's code raises belongs to its caller
                value, error = None, raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, future, value, error)
            except RuntimeError:  # the loop was closed: nobody waits any more
                return


def _looked_at(future: "asyncio.Future[Any]") -> None:
    """Keep asyncio from complaining about an error of a call that nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def _settle(future: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:  # what a future cannot carry, or what would end the loop
        future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
