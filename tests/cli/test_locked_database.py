"""A server whose database is locked for a moment answers as if nothing had been."""

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rag_eval.cli.server import RepeatedRequests


class Locked(Exception):
    """What the database says."""


class Server:
    """An app that is locked for its first requests, and answers 503 then, as Prefect does."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals
        self.bodies: list[bytes] = []
        self.app = Starlette(
            routes=[Route("/{path:path}", self.answer, methods=["GET", "POST"])],
            exception_handlers={Exception: self.explain},
        )

    def explain(self, request: Request, error: Exception) -> Response:
        return PlainTextResponse("sorry", 503 if isinstance(error, Locked) else 500)

    async def answer(self, request: Request) -> Response:
        self.bodies.append(await request.body())
        if request.url.path == "/broken":
            raise KeyError("not the database")
        if self.left:
            self.left -= 1
            raise Locked
        return JSONResponse({"path": request.path_params["path"]}, 201)

    def asked(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(RepeatedRequests(self.app, (0.0, 0.0, 0.0)))
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, content=body)

        return asyncio.run(ask())


@pytest.mark.parametrize("refusals", [0, 1, 3])
def test_a_request_is_repeated_with_its_body_until_it_is_taken(refusals: int) -> None:
    server = Server(refusals)
    answer = server.asked("POST", "/runs", b"x" * 100_000)
    assert (answer.status_code, answer.json()) == (201, {"path": "runs"})
    assert server.bodies == [b"x" * 100_000] * (refusals + 1)


def test_one_that_stays_locked_is_told_so() -> None:
    server = Server(9)
    with pytest.raises(Locked):  # raised after the answer, to be logged
        server.asked("GET", "/runs")
    assert len(server.bodies) == 4


def test_another_error_is_not_repeated() -> None:
    server = Server(0)
    with pytest.raises(KeyError):
        server.asked("GET", "/broken")
    assert len(server.bodies) == 1
