"""A LangSmith on loopback: real HTTP, everything kept for a test to look at, faults on request.

::

    with LangSmithServer() as server:
        server.fail("POST", "/runs/multipart", status=429, times=2)
        client = langsmith_client(KEY, server.url)
"""

from typing import Any

from tests.doubles.langsmith_api import LangSmithApi
from tests.doubles.langsmith_records import Record
from tests.doubles.loopback import LoopbackServer, Request

KEY = "test-key"


class LangSmithServer(LoopbackServer):
    """Serves ``api`` to clients that send ``KEY``."""

    def __init__(self) -> None:
        super().__init__()
        self.api = LangSmithApi()

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
