"""Calling a task or an evaluator: sync or async, with a time-out and retries, on threads of our own."""

import asyncio
import contextvars
import inspect
import os
import queue
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from rag_eval.errors import RagEvalError
from rag_eval.experiments.naming import Named
from rag_eval.retry import RetryPolicy

SHORTEST_SECRET = 8
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# A key that was given in code: after "Bearer", or with the beginning that a vendor gives its keys.
_KEY = re.compile(r"(?<=Bearer )[\w.~+/-]{8,}=*|\b(?:sk|pk|rk|ghp|lsv2|hf|xox[abp])[-_][\w-]{12,}", re.IGNORECASE)


def recordable(text: str) -> str:
    """Remove the keys that the environment holds, whatever looks like a key, and what UTF-8 cannot hold."""
    secrets = [(value, name) for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    for value, name in sorted(secrets, key=lambda pair: -len(pair[0])):  # one key may be the beginning of another
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, f"<{name}>")
    return _KEY.sub("<key>", text).encode("utf-8", "replace").decode()


_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Slots:
    """Daemon threads that start when they are needed; one that hangs does not keep the program from ending.

    anyio's worker threads are no daemons, so that a hanging call would, and cost six times the CPU time a call.
    """

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


LONGEST_MESSAGE = 2_000


class TimedOutError(Exception):
    """A call did not end in time; ``still_running`` is the call where it could not be stopped."""

    still_running: "asyncio.Future[Any] | None" = None


class Caller:
    """Calls tasks and evaluators within a time-out, and again, after the waits of ``retries``, when they fail.

    A sync call that is out of time cannot be stopped: it is not tried again, and the error holds what still runs.
    """

    def __init__(self, slots: Slots, timeout: float | None, retries: RetryPolicy) -> None:
        self._slots, self._timeout, self._retries = slots, timeout, retries

    async def call(self, target: Named, *args: Any) -> Any:
        """What the target gives; raises what its last attempt raised."""
        for attempt in range(self._retries.max_retries + 1):
            try:
                return await self._once(target, args)
            except TimedOutError:
                if not target.is_async or attempt == self._retries.max_retries:
                    raise
            except Exception:  # any error of the user's code may be the network's
                if attempt == self._retries.max_retries:
                    raise
            await asyncio.sleep(self._retries.wait_before_retry(attempt, None))
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, target: Named, args: tuple[Any, ...]) -> Any:
        if target.is_async:
            return await self._awaited(target, target.call(*args))
        if target.instant:
            return target.call(*args)
        future = self._slots.call(target.call, *args)
        try:
            given = await self._in_time(target, asyncio.shield(future) if self._timeout else future)
        except TimedOutError as error:
            error.still_running = future
            raise
        return await self._awaited(target, given) if inspect.isawaitable(given) else given

    async def _awaited(self, target: Named, given: Awaitable[Any]) -> Any:
        work = asyncio.ensure_future(given)
        try:
            return await self._in_time(target, work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not work.cancelled() or task is None or task.cancelling():
                raise  # the run is being cancelled
            # Something that the target waited for was cancelled: its failure, which must not end the worker.
            raise RuntimeError("CancelledError: what it waited for was cancelled") from None

    async def _in_time(self, target: Named, work: "asyncio.Future[Any]") -> Any:
        if self._timeout is None:
            return await work
        try:
            return await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            if work.done() and not work.cancelled() and isinstance(work.exception(), TimeoutError):
                raise  # the target's own
            raise TimedOutError(f"{target.name} did not end within {self._timeout:g} seconds") from None


def message_of(error: BaseException) -> str:
    """An error in one line, cut, without any key; an error of ours is its sentence alone."""
    kind = "TimeoutError" if isinstance(error, TimedOutError) else type(error).__name__
    try:
        told = str(error)
    except Exception:  # noqa: BLE001  # an error of the user's that cannot say what it is
        told = ""
    if not isinstance(error, RagEvalError):
        told = f"{kind}: {told}" if told else kind
    line = " ".join(recordable(told).split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"
