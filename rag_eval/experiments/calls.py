"""One call of a task or an evaluator: sync or async, in time, tried again when it fails."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from rag_eval.errors import RagEvalError
from rag_eval.experiments.naming import Named
from rag_eval.experiments.redaction import recordable
from rag_eval.experiments.slots import Slots

LONGEST_MESSAGE = 2_000


class TimedOutError(Exception):
    """A call did not end in time; ``still_running`` is the call where it could not be stopped."""

    still_running: "asyncio.Future[Any] | None" = None


class Caller:
    """Calls tasks and evaluators within a time-out, again after ``delay`` · 2^n seconds where ``retries`` allow it.

    A sync call that is out of time cannot be stopped: it is not tried again, and the error holds what still runs.
    """

    def __init__(self, slots: Slots, timeout: float | None, retries: int, delay: float) -> None:
        self._slots, self._timeout, self._retries, self._delay = slots, timeout, retries, delay

    async def call(self, target: Named, *args: Any) -> Any:
        """What the target gives; raises what its last attempt raised."""
        for attempt in range(self._retries + 1):
            try:
                return await self._once(target, args)
            except TimedOutError:
                if not target.is_async or attempt == self._retries:
                    raise
            except Exception:  # any error of the user's code may be the network's
                if attempt == self._retries:
                    raise
            await asyncio.sleep(self._delay * 2**attempt)
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
