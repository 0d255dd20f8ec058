"""One call of a task or an evaluator: sync or async, in time, tried again when it fails."""

import asyncio
import inspect
import os
import re
from typing import Any

from rag_eval.errors import RagEvalError
from rag_eval.experiments.naming import Named
from rag_eval.experiments.slots import Slots

LONGEST_MESSAGE = 2_000
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
SHORTEST_SECRET = 8
# A key that was given in code: after "Bearer", or with the beginning that a vendor gives its keys.
_KEY = re.compile(r"(?<=Bearer )[\w.~+/-]{8,}=*|\b(?:sk|pk|rk|ghp|lsv2|hf|xox[abp])[-_][\w-]{12,}", re.IGNORECASE)


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
            return await self._in_time(target, asyncio.ensure_future(target.call(*args)))
        if target.instant:
            return target.call(*args)
        future = self._slots.call(target.call, *args)
        future.add_done_callback(_looked_at)
        try:
            given = await self._in_time(target, asyncio.shield(future) if self._timeout else future)
        except TimedOutError as error:
            error.still_running = future
            raise
        return await self._in_time(target, asyncio.ensure_future(given)) if inspect.isawaitable(given) else given

    async def _in_time(self, target: Named, work: "asyncio.Future[Any]") -> Any:
        if self._timeout is None:
            return await work
        try:
            return await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            if work.done() and not work.cancelled() and isinstance(work.exception(), TimeoutError):
                raise  # the target's own
            raise TimedOutError(f"{target.name} did not end within {self._timeout:g} seconds") from None


def _looked_at(future: "asyncio.Future[Any]") -> None:
    """Keep asyncio from complaining about an error of a call that nobody waits for any more."""
    if not future.cancelled():
        future.exception()


def message_of(error: BaseException) -> str:
    """An error in one line, cut, without any key; an error of ours is its sentence alone."""
    if isinstance(error, TimedOutError):
        return redacted(f"TimeoutError: {error}")
    if isinstance(error, RagEvalError):
        return redacted(str(error))
    return redacted(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def redacted(text: str) -> str:
    """A text in one line, cut, without what the environment holds as a key and what looks like one."""
    for name, value in os.environ.items():
        if len(value) >= SHORTEST_SECRET and _SECRET_NAME.search(name):
            text = text.replace(value, f"<{name}>")
    text = " ".join(_KEY.sub("<key>", text).split())
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
