"""A server on loopback that answers like Cohere's reranking."""

from typing import Any

from tests.doubles.loopback import LoopbackServer, Request

KEY = "secret-cohere-key"


class CohereServer(LoopbackServer):
    """Ranks by the length of the text, shortest first, unless told what to answer.

    After ``refused_after`` requests it answers 500.
    """

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] | None = None
        self.answered: object = None
        self.refused_after: int | None = None

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return 401, {"message": f"invalid api token {KEY}"}
        if self.refused_after is not None and len(self.requests) > self.refused_after:
            return 500, {"message": "on fire"}
        if self.answered is not None:
            return 200, self.answered
        asked = request.json()
        order = self.order or sorted(range(len(asked["documents"])), key=lambda n: len(asked["documents"][n]))
        results = [{"index": number, "relevance_score": 1 / (1 + rank)} for rank, number in enumerate(order)]
        return 200, {"id": "1", "results": results[: asked["top_n"]], "meta": {"api_version": {"version": "2"}}}
