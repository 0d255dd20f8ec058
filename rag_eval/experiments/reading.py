"""Reading rows on a thread of their own, so that a slow source holds up no call that is under way."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterable
from typing import Any

from rag_eval.experiments.slots import Slots

AHEAD = 64
"""At most so many rows are read before somebody asks for them."""
CLOSE_SECONDS = 1.0
"""How long the end of a stream waits for a source that is just being read, which may hang."""


async def read_beside(source: Iterable[Any], reader: Slots) -> AsyncGenerator[Any, None]:
    """The rows of a source; raises what it raises, after the rows before. A generator is closed where it was read."""
    buffer = _Buffer()
    ended = reader.call(buffer.fill, source)
    ended.add_done_callback(lambda _: buffer.arrived.set())
    try:
        while buffer.rows or not ended.done():
            if buffer.rows:
                yield buffer.take()
            else:
                await buffer.more()
        ended.result()
    finally:
        buffer.stop()
        await asyncio.wait({ended}, timeout=CLOSE_SECONDS)


class _Buffer:
    """Rows on their way from the thread that reads them to the event loop."""

    def __init__(self) -> None:
        self.rows: deque[Any] = deque()
        self.arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._is_awaited = False
        self._has_room = threading.Event()
        self._is_stopped = False

    def fill(self, source: Iterable[Any]) -> None:
        """Read all rows; on the thread."""
        try:
            for row in source:
                self.rows.append(row)
                if self._is_awaited:
                    self._is_awaited = False
                    self._loop.call_soon_threadsafe(self.arrived.set)
                while len(self.rows) >= AHEAD and not self._is_stopped:
                    self._has_room.wait()
                    self._has_room.clear()
                if self._is_stopped:
                    return
        finally:
            if isinstance(source, Generator):
                source.close()

    def take(self) -> Any:
        """The next row, of which there is one; on the loop, as what follows."""
        row = self.rows.popleft()
        if len(self.rows) == AHEAD // 2:
            self._has_room.set()
        return row

    async def more(self) -> None:
        """Wait until there is a row, or the end."""
        self.arrived.clear()
        self._is_awaited = True
        # A row that came before the thread could know that it is awaited told nobody.
        if not self.rows:
            await self.arrived.wait()

    def stop(self) -> None:
        """Read no further."""
        self._is_stopped = True
        self._has_room.set()
