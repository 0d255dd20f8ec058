"""The review page: its data, who may ask for it, its requests, and serving it on this machine only."""

import hmac
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rag_eval.documents.reading import page_picture
from rag_eval.errors import ConfigurationError, RagEvalError, ReviewConflictError
from rag_eval.ground_truth.review.entries import Entry
from rag_eval.ground_truth.review.session import DocumentFolder, NewSpan, Passage, ReviewSession, Verdict
from rag_eval.types.evidence import JUDGED
from rag_eval.types.ids import text_sha256

if TYPE_CHECKING:
    from uvicorn import Server


Data = dict[str, object]
"""An answer to the page, as JSON has it."""


def state(session: ReviewSession) -> Data:
    """Return the whole list: every query with its status, and the documents there are."""
    return {
        "file": session.files.path.name,
        "revision": session.revision,
        "broken": session.files.broken,
        "documents": list(session.documents),
        "queries": [_row(session, entry) for entry in session.entries.values()],
    }


def _row(session: ReviewSession, entry: Entry) -> Data:
    """Return a query as the list shows it."""
    return {
        "id": entry.record.query_id,
        "text": entry.record.query,
        "status": entry.status,
        "unanswerable": entry.record.unanswerable,
        "faulty": session.is_faulty(entry),
        "offered": session.offered(entry),
    }


def query(session: ReviewSession, query_id: str) -> Data:
    """Return a query with all its passages, each with its grade and what is wrong with it."""
    entry = session.entry(query_id)
    return {
        "row": _row(session, entry),
        "revision": session.revision,
        "version": entry.version,
        "undo": session.can_undo,
        "metadata": {key: value for key, value in entry.record.metadata.items() if key not in ("review", JUDGED)},
        "spans": [_passage(session, passage) for passage in session.passages(entry)],
    }


def _passage(session: ReviewSession, passage: Passage) -> Data:
    span, judged = passage.span, passage.judged
    document = session.documents.get(span.doc_id) if passage.fault is None else None
    judge = judged.judge if judged else None
    return {
        **span.model_dump(exclude={"alternatives"}),
        "place": document and document.place_of(span.start, span.end),
        "boxes": document.boxes(span.start, span.end) if document else [],
        "kind": passage.kind,
        "status": passage.status,
        "fault": passage.fault,
        "judge": judge,
        "grade": judged.grades[judge] if judged and judge else None,
        "reason": judged.reasons.get(judge) if judged and judge else None,
    }


def document(session: ReviewSession, doc_id: str) -> Data:
    """Return a document's text; raises ``ReviewConflictError`` when there is none of this id."""
    found = session.documents.get(doc_id)
    if found is None:
        raise ReviewConflictError(f"the document {doc_id!r} is not in the folder")
    # JSON, since a browser would drop a byte-order mark from plain text.
    return {"id": doc_id, "text": found.content, "digest": text_sha256(found.content)}


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str


class _Decision(_Message):
    version: str
    decision: Verdict


class _Judgement(_Message):
    place: tuple[str, int, int]
    decision: Literal["accepted", "rejected"]


class _Span(_Message):
    span: NewSpan


def _decide(session: ReviewSession, data: bytes) -> Data:
    message = _Decision.model_validate_json(data)
    session.decide(message.id, message.version, message.decision)
    return query(session, message.id)


def _judge(session: ReviewSession, data: bytes) -> Data:
    message = _Judgement.model_validate_json(data)
    session.judge(message.id, message.place, message.decision)
    return query(session, message.id)


def _put_span(session: ReviewSession, data: bytes) -> Data:
    message = _Span.model_validate_json(data)
    session.put_span(message.id, message.span)
    return query(session, message.id)


def _undo(session: ReviewSession, _: bytes) -> Data:
    query_id = session.undo()
    return {"nothing": True} if query_id is None else query(session, query_id)


Answer = Callable[[ReviewSession, Any], Data]
READS: dict[str, Answer] = {
    "state": lambda session, _: state(session),
    "revision": lambda session, _: {"revision": session.refresh()},
    "query": query,
    "document": document,
}
"""What the page asks for, with the id of what it asks about."""
CHANGES: dict[str, Answer] = {"decide": _decide, "judge": _judge, "span": _put_span, "undo": _undo}
"""What the page posts, with the body of the request."""


LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Decides on requests by their headers."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        # Cookies are shared by all ports of a host: two reviews at once must not take each other's.
        self.cookie = f"rag_eval_review_{port}"

    def is_token(self, given: str) -> bool:
        """Whether this is the token, told in the same time whatever it is."""
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)

    def refusal(self, method: str, headers: Mapping[str, str], cookies: Mapping[str, str]) -> str | None:
        """Why a request for anything but the first page is refused; None when it is let in."""
        reason = self.foreign(method, headers)
        if reason is not None:
            return reason
        if not self.is_token(cookies.get(self.cookie, "")):
            return "open the address that rag-eval truth review printed: it holds the key to this page"
        return None

    def foreign(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why a request does not come from this machine and, where it changes something, from the page; else None."""
        host = headers.get("host", "")
        if _hostname(f"//{host}") not in LOOPBACK_NAMES:
            return "this page is served to 127.0.0.1 and localhost only"
        origin = headers.get("origin")
        if origin is None and method in ("GET", "HEAD"):
            return None
        if origin != f"http://{host}":
            return "this request comes from another page"
        return None


def _hostname(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises on a port that is none
    except ValueError:
        return None
    return None if parts.username is not None or parts.path else parts.hostname


STATIC = Path(__file__).parent / "static"
LARGEST_BODY = 1 << 20
CONFLICT, IMPOSSIBLE = 409, 422
PICTURE_WIDTH = 900


class ReviewApp:
    """The page's requests, one at a time, on a session."""

    def __init__(self, session: ReviewSession, guard: Guard) -> None:
        self._session = session
        self._guard = guard
        self._lock = threading.Lock()

    def application(self) -> Starlette:
        routes = [
            Route("/", self._page),
            *(Route(f"/api/{name}", self._endpoint(answer)) for name, answer in READS.items()),
            *(Route(f"/api/{name}", self._endpoint(answer), methods=["POST"]) for name, answer in CHANGES.items()),
            Route("/api/picture", self._picture),
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

    async def _picture(self, request: Request) -> Response:
        name, page = request.query_params.get("id", ""), request.query_params.get("page", "")
        return await run_in_threadpool(self._drawn, name, int(page) if page.isdecimal() and len(page) < 8 else 0)

    def _drawn(self, doc_id: str, page: int) -> Response:
        """A page of a document; drawn while other requests go on."""
        with self._lock:
            found = self._session.documents.get(doc_id)
        try:
            if found is None or found.path is None:
                return _problem(CONFLICT, f"the document {doc_id!r} is not in the folder")
            return Response(page_picture(found.path, page, PICTURE_WIDTH), media_type="image/png")
        except RagEvalError as error:
            return _problem(IMPOSSIBLE, str(error))

    def _endpoint(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            data = b""
            try:
                async for part in request.stream():
                    data += part
                    if len(data) > LARGEST_BODY:
                        return _problem(413, "this is too much for one decision")
            except ClientDisconnect:
                return _problem(400, "the request was not finished")
            given = data if request.method == "POST" else request.query_params.get("id", "")
            return await run_in_threadpool(self._answer, answer, given)

        return respond

    def _answer(self, answer: Answer, given: str | bytes) -> Response:
        with self._lock:
            try:
                return JSONResponse(answer(self._session, given))
            except ReviewConflictError as error:
                return _problem(CONFLICT, str(error))
            except RagEvalError as error:
                return _problem(IMPOSSIBLE, str(error))
            except UnicodeEncodeError:
                return _problem(IMPOSSIBLE, "its metadata has characters that UTF-8 cannot hold: correct the file")
            except ValidationError as error:
                return _problem(400, f"this request is not understood: {error.errors()[0]['msg']}")


def _problem(status: int, sentence: str) -> Response:
    return JSONResponse({"problem": sentence}, status_code=status)


HOST = "127.0.0.1"


def serve_review(
    truth: Path,
    corpus: Path,
    glob: str | Sequence[str],
    loaders: Mapping[str, Any],
    port: int,
    *,
    on_start: Callable[[str], object],
) -> None:
    """Serve the page until the process is interrupted; ``on_start`` is called with its address, which has the key.

    Port 0 takes a free one. Raises ``GroundTruthError`` or ``CorpusError`` when there is nothing to review, and
    ``ConfigurationError`` when the port is taken.
    """
    session = ReviewSession(truth, DocumentFolder(corpus, glob, loaders))
    with closing(listening_socket(port)) as listener:
        server, address = review_server(session, listener)
        on_start(address)
        server.run(sockets=[listener])


def review_server(session: ReviewSession, listener: socket.socket) -> "tuple[Server, str]":
    """Return a server for a session on a socket that listens already, not yet running, and the page's address."""
    import uvicorn

    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(32)
    config = uvicorn.Config(
        ReviewApp(session, Guard(token, port)).application(),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config), f"http://{HOST}:{port}/?token={token}"


def listening_socket(port: int) -> socket.socket:
    """Return a socket that only this machine can reach; raises ``ConfigurationError`` when the port is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"port {port} cannot be used ({error.strerror}): give another with --port") from None
    return listener
