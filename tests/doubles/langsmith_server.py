"""A LangSmith on loopback: real HTTP, everything kept for a test to look at, faults on request.

::

    with LangSmithServer() as server:
        server.fail("POST", "/runs/multipart", status=429, times=2)
        client = langsmith_client(KEY, server.url)
"""

import re
import threading
from dataclasses import dataclass
from typing import Any

from tests.doubles.langsmith_api import LangSmithApi
from tests.doubles.langsmith_records import Record
from tests.doubles.loopback import HANG_SECONDS, LoopbackServer, Request

KEY = "test-key"


@dataclass
class Mishap:
    """What happens to a request to a path, once ``after`` others were answered."""

    method: str
    path: str
    after: int = 0
    body: bytes | None = None
    status: int = 200
    done: bool = False
    hang: bool = False
    times: int = 1

    def strikes(self, request: Request) -> bool:
        if (
            self.times == 0
            or not re.fullmatch(self.method, request.method)
            or not re.fullmatch(self.path, request.path)
        ):
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


class LangSmithServer(LoopbackServer):
    """Serves ``api`` to clients that send ``KEY``."""

    def __init__(self) -> None:
        super().__init__()
        self.api = LangSmithApi()
        self.hanging = threading.Event()
        self._mishaps: list[Mishap] = []
        self._healed = threading.Event()

    def lose_answer(self, method: str, path: str) -> None:
        """Do what the next request to a path (a regular expression) asks, and hang up without an answer."""
        self._mishaps.append(Mishap(method, path, done=True))

    def answer_with(self, method: str, path: str, body: bytes) -> None:
        """Answer the next request to a path with a body of success, and do nothing."""
        self._mishaps.append(Mishap(method, path, body=body))

    def fail_after(self, count: int, method: str, path: str, status: int) -> None:
        """Answer so many requests to a path, and the others with a status until it is healed."""
        self._mishaps.append(Mishap(method, path, count, b'{"detail": "scripted fault"}', status, times=-1))

    def hang_after(self, count: int, *, done: bool) -> None:
        """Answer so many requests that change something, and hang at the next, which is ``done`` or is not."""
        self.hanging.clear()
        self._healed.clear()
        self._mishaps.append(Mishap("POST|PATCH|DELETE", ".*", count, done=done, hang=True))

    def heal(self) -> None:
        """No mishaps from now on."""
        self._mishaps.clear()
        self._healed.set()

    def respond(self, request: Request) -> tuple[int, bytes, dict[str, str]] | None:
        with self._lock:
            mishap = next((mishap for mishap in self._mishaps if mishap.strikes(request)), None)
        if mishap is None:
            return super().respond(request)
        if mishap.done:
            super().respond(request)
        if mishap.hang:
            self.hanging.set()
            self._healed.wait(HANG_SECONDS)
        return None if mishap.body is None else (mishap.status, mishap.body, {})

    def scores(self, key: str) -> list[float | None]:
        """The scores of the feedback with this key, in the order of arrival."""
        return [one.get("score") for one in self.feedback(key)]

    def feedback(self, key: str) -> list[Record]:
        """The feedback with this key, in the order of arrival."""
        return [one for one in self.api.feedback.values() if one["key"] == key]

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.path != "/info" and request.headers.get("x-api-key") != KEY:
            return 401, {"detail": "Invalid token"}
        return self.api.answer(request)
