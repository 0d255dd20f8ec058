"""A Prefect server on SQLite that asks itself again.

SQLite refuses at once what has read before another's write and wants to write after it. Prefect answers 503 then, and
its clients wait for two seconds before they repeat the request; here it is repeated within moments, before anybody is
told.
"""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds before each further attempt."""
UNAVAILABLE = 503


class RepeatedRequests:
    """The app, with every request that it answers with 503 repeated, and the last answer given."""

    def __init__(self, app: "ASGIApp", pauses: tuple[float, ...] = PAUSES) -> None:
        self._app, self._pauses = app, pauses

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = [await receive()]
        while request[-1].get("more_body"):
            request.append(await receive())
        for pause in self._pauses:
            if not await self._is_refused(dict(scope), _replayed(request, receive), send):
                return
            await asyncio.sleep(pause)
        await self._app(scope, _replayed(request, receive), send)

    async def _is_refused(self, scope: "Scope", receive: "Receive", send: "Send") -> bool:
        """Pass the answer on and give False, unless it is 503."""
        refused = False

        async def pass_on(message: "Message") -> None:
            nonlocal refused
            refused = refused or message.get("status") == UNAVAILABLE
            if not refused:
                await send(message)

        try:
            await self._app(scope, receive, pass_on)
        except Exception:
            if not refused:  # what led to a 503 is raised after it, to be logged
                raise
        return refused


def _replayed(request: "list[Message]", receive: "Receive") -> "Receive":
    """What was received, from its beginning, and then whatever comes."""
    kept = iter(request)

    async def again() -> "Message":
        message = next(kept, None)
        return await receive() if message is None else message

    return again
