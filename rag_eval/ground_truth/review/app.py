"""The review page as a web application."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rag_eval.errors import RagEvalError, ReviewConflictError
from rag_eval.ground_truth.review import answers
from rag_eval.ground_truth.review.guard import SECURITY_HEADERS, Guard
from rag_eval.ground_truth.review.session import KeptSpan, NewSpan, ReviewSession
from rag_eval.types.ids import QueryId

STATIC = Path(__file__).parent / "static"
LARGEST_BODY = 1 << 20
CONFLICT, IMPOSSIBLE = 409, 422


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Decision(_Message):
    id: str
    version: int
    decision: Literal["accepted", "rejected"]


class _Kept(_Message):
    keep: int

    def span(self) -> KeptSpan:
        return KeptSpan(self.keep)


class _New(_Message):
    doc_id: str
    start: int
    end: int
    digest: str

    def span(self) -> NewSpan:
        return NewSpan(self.doc_id, self.start, self.end, self.digest)


class _Spans(_Message):
    id: str
    version: int
    spans: Annotated[list[_Kept | _New], Field(max_length=1000)]


class ReviewApp:
    """The page's requests, one at a time, on a session."""

    def __init__(self, session: ReviewSession, guard: Guard) -> None:
        self._session = session
        self._guard = guard
        self._lock = threading.Lock()

    def application(self) -> Starlette:
        """The web application, guarded."""
        routes = [
            Route("/", self._page),
            Route("/api/state", self._state),
            Route("/api/current", self._current),
            Route("/api/query", self._query),
            Route("/api/document", self._document),
            Route("/api/decide", self._decide, methods=["POST"]),
            Route("/api/spans", self._spans, methods=["POST"]),
            Route("/api/undo", self._undo, methods=["POST"]),
            Route("/api/reload", self._reload, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._guarded)])

    async def _guarded(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        is_first = request.url.path == "/" and request.method == "GET" and "token" in request.query_params
        if is_first:
            refusal = self._guard.foreign(request.method, request.headers)
            if refusal is None and not self._guard.is_token(request.query_params["token"]):
                refusal = "this key does not fit: open the address that rag-eval truth review printed"
        else:
            refusal = self._guard.refusal(request.method, request.headers, request.cookies)
        if refusal is not None:
            response: Response = PlainTextResponse(refusal + "\n", status_code=403)
        elif is_first:
            # The address without the token is the one that stays in the browser's history.
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(self._guard.cookie, request.query_params["token"], httponly=True, samesite="strict")
        else:
            response = await call_next(request)
        response.headers.update(SECURITY_HEADERS)
        return response

    async def _page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def _state(self, request: Request) -> Response:
        return await self._answer(lambda: answers.state(self._session))

    async def _current(self, request: Request) -> Response:
        return await self._answer(lambda: {"current": self._session.is_current, "file": self._session.name})

    async def _query(self, request: Request) -> Response:
        query_id = QueryId(request.query_params.get("id", ""))
        return await self._answer(lambda: self._told(query_id))

    async def _document(self, request: Request) -> Response:
        doc_id = request.query_params.get("id", "")

        def find() -> dict[str, Any]:
            found = answers.document(self._session, doc_id)
            if found is None:
                raise ReviewConflictError(f"the document {doc_id!r} is not in the folder")
            return found

        return await self._answer(find)

    async def _decide(self, request: Request) -> Response:
        def decide(data: bytes) -> dict[str, Any]:
            message = _Decision.model_validate_json(data)
            self._session.decide(message.id, message.version, message.decision)
            return self._told(QueryId(message.id))

        return await self._changed(request, decide)

    async def _spans(self, request: Request) -> Response:
        def set_spans(data: bytes) -> dict[str, Any]:
            message = _Spans.model_validate_json(data)
            self._session.set_spans(message.id, message.version, [span.span() for span in message.spans])
            return self._told(QueryId(message.id))

        return await self._changed(request, set_spans)

    async def _undo(self, request: Request) -> Response:
        def undo(_: bytes) -> dict[str, Any]:
            query_id = self._session.undo()
            return {"nothing": True} if query_id is None else self._told(query_id)

        return await self._changed(request, undo)

    async def _reload(self, request: Request) -> Response:
        def reload(_: bytes) -> dict[str, Any]:
            self._session.reload()
            return answers.state(self._session)

        return await self._changed(request, reload)

    def _told(self, query_id: QueryId) -> dict[str, Any]:
        entry = self._session.entries.get(query_id)
        if entry is None:
            raise ReviewConflictError("this query is not in the file any more: reload")
        return answers.query(self._session, query_id, entry)

    async def _changed(self, request: Request, change: Callable[[bytes], dict[str, Any]]) -> Response:
        data = b""
        try:
            async for part in request.stream():
                data += part
                if len(data) > LARGEST_BODY:
                    return _problem(413, "this is too much for one decision")
        except ClientDisconnect:
            return _problem(400, "the request was not finished")
        return await self._answer(lambda: change(data))

    async def _answer(self, ask: Callable[[], dict[str, Any]]) -> Response:
        def locked() -> Response:
            with self._lock:
                try:
                    return JSONResponse(ask())
                except ReviewConflictError as error:
                    return _problem(CONFLICT, str(error))
                except RagEvalError as error:
                    return _problem(IMPOSSIBLE, str(error))
                except ValidationError as error:
                    return _problem(400, f"this request is not understood: {error.errors()[0]['msg']}")

        return await run_in_threadpool(locked)


def _problem(status: int, sentence: str) -> Response:
    return JSONResponse({"problem": sentence}, status_code=status)
