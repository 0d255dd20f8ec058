"""Serve the review page: its data, its access control, and a server that only this machine can reach."""

import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
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


def state(session: ReviewSession) -> Data:
    """Return all queries with their status, and the names of the documents."""
    return {
        "file": session.files.path.name,
        "revision": session.revision,
        "broken": session.files.broken,
        "documents": list(session.documents),
        "queries": [_row(session, entry) for entry in session.entries.values()],
    }


def _row(session: ReviewSession, entry: Entry) -> Data:
    return {
        "id": entry.record.query_id,
        "text": entry.record.query,
        "status": entry.status,
        "unanswerable": entry.record.unanswerable,
        "faulty": session.is_faulty(entry),
        "offered": session.offered(entry),
    }


def query(session: ReviewSession, query_id: str) -> Data:
    """Return a query with its passages, their grades and faults."""
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
    """Return the text of a document; raise ``ReviewConflictError`` if there is no such document."""
    shown = session.documents.get(doc_id)
    if shown is None:
        raise ReviewConflictError(f"the document {doc_id!r} is not in the folder")
    # JSON, since a browser would drop a byte-order mark from plain text.
    return {"id": doc_id, "text": shown.content, "digest": text_sha256(shown.content)}


class _Change(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str

    def apply(self, session: ReviewSession) -> None: ...


class _Decision(_Change):
    version: str
    decision: Verdict

    def apply(self, session: ReviewSession) -> None:
        session.decide(self.id, self.version, self.decision)


class _Judgement(_Change):
    place: tuple[str, int, int]
    decision: Literal["accepted", "rejected"]

    def apply(self, session: ReviewSession) -> None:
        session.judge(self.id, self.place, self.decision)


class _Span(_Change):
    span: NewSpan

    def apply(self, session: ReviewSession) -> None:
        session.put_span(self.id, self.span)


def _changed(session: ReviewSession, name: str, data: bytes) -> Data:
    if name == "undo":
        query_id = session.undo()
        return {"nothing": True} if query_id is None else query(session, query_id)
    message = CHANGES[name].model_validate_json(data)
    message.apply(session)
    return query(session, message.id)


READS: dict[str, Callable[[ReviewSession, str], Data]] = {
    "state": lambda session, _: state(session),
    "revision": lambda session, _: {"revision": session.refresh()},
    "query": query,
    "document": document,
}
"""GET requests, answered from the parameter ``id``."""
CHANGES: dict[str, type[_Change]] = {"decide": _Decision, "judge": _Judgement, "span": _Span, "undo": _Change}
"""POST requests, answered from the body; the body of ``undo`` is ignored."""


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
    """Refuses requests from other machines, from other pages, and without the token."""

    def __init__(self, token: str, port: int) -> None:
        self._token = token.encode()
        # Cookies are shared by all ports of a host, and several reviews may run at once.
        self.cookie = f"rag_eval_review_{port}"

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self._token)

    async def __call__(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Answer the first request with a cookie, and later requests only with it."""
        token = request.query_params.get("token")
        is_first = request.url.path == "/" and request.method == "GET" and token is not None
        response: Response
        if (refusal := self._foreign(request)) is not None:
            response = PlainTextResponse(f"{refusal}\n", status_code=403)
        elif not self.is_token((token or "") if is_first else request.cookies.get(self.cookie, "")):
            refusal = "open the address that rag-eval truth review printed: it contains the key to this page\n"
            response = PlainTextResponse(refusal, status_code=403)
        elif is_first:
            # The redirect keeps the token out of the browser history.
            response = RedirectResponse("/", status_code=303)
            response.set_cookie(self.cookie, token or "", httponly=True, samesite="strict")
        else:
            response = await call_next(request)
        response.headers.update(SECURITY_HEADERS)
        return response

    @staticmethod
    def _foreign(request: Request) -> str | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if _hostname(host) not in LOOPBACK_NAMES:
            return "this page is served to 127.0.0.1 and localhost only"
        is_read = origin is None and request.method in ("GET", "HEAD")
        return None if is_read or origin == f"http://{host}" else "this request comes from another page"


def _hostname(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises ValueError on an invalid port
    except ValueError:
        return None
    return None if parts.username is not None or parts.path else parts.hostname


STATIC = Path(__file__).parent / "static"
LARGEST_BODY = 1 << 20
CONFLICT, IMPOSSIBLE = 409, 422
PICTURE_WIDTH = 900


def review_app(session: ReviewSession, guard: Guard) -> Starlette:
    """Return the application that shows and changes a session, handling one request at a time."""
    lock = threading.Lock()

    def read(name: str) -> Route:
        def respond(request: Request) -> Response:
            return _answered(lock, lambda: READS[name](session, request.query_params.get("id", "")))

        return Route(f"/api/{name}", respond)

    def change(name: str) -> Route:
        async def respond(request: Request) -> Response:
            body = await _body(request)
            if isinstance(body, Response):
                return body
            return await run_in_threadpool(_answered, lock, lambda: _changed(session, name, body))

        return Route(f"/api/{name}", respond, methods=["POST"])

    def picture(request: Request) -> Response:
        doc_id, page = request.query_params.get("id", ""), request.query_params.get("page", "")
        with lock:
            shown = session.documents.get(doc_id)
        if shown is None or shown.path is None:
            return _problem(CONFLICT, f"the document {doc_id!r} is not in the folder")
        try:
            number = int(page) if page.isdecimal() and len(page) < 8 else 0
            return Response(page_picture(shown.path, number, PICTURE_WIDTH), media_type="image/png")
        except RagEvalError as error:
            return _problem(IMPOSSIBLE, str(error))

    page = Route("/", lambda _: FileResponse(STATIC / "index.html"))
    routes = [page, *map(read, READS), *map(change, CHANGES), Route("/api/picture", picture)]
    return Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
    )


def _answered(lock: threading.Lock, make: Callable[[], Data]) -> Response:
    try:
        with lock:
            return JSONResponse(make())
    except ReviewConflictError as error:
        return _problem(CONFLICT, str(error))
    except RagEvalError as error:
        return _problem(IMPOSSIBLE, str(error))
    except UnicodeEncodeError:
        return _problem(IMPOSSIBLE, "its metadata has characters that UTF-8 cannot encode: correct the file")
    except ValidationError as error:
        return _problem(400, f"this request is not valid: {error.errors()[0]['msg']}")


async def _body(request: Request) -> bytes | Response:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_BODY:
                return _problem(413, "this request is too large")
    except ClientDisconnect:
        return _problem(400, "the request was incomplete")
    return body


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
    """Serve the page until the process is interrupted.

    Args:
        truth: The ground-truth file.
        corpus: The folder of the documents.
        glob: The patterns of their files.
        loaders: Loaders by file extension.
        port: The port; 0 uses any free port.
        on_start: Called with the address, which contains the token.

    Raises:
        GroundTruthError: If the ground truth cannot be reviewed.
        CorpusError: If the folder cannot be read.
        ConfigurationError: If the port is taken.
    """
    session = ReviewSession(truth, DocumentFolder(corpus, glob, loaders))
    with closing(listening_socket(port)) as listener:
        server, address = review_server(session, listener)
        on_start(address)
        server.run(sockets=[listener])


def review_server(session: ReviewSession, listener: socket.socket) -> "tuple[Server, str]":
    """Return a server for a listening socket, not yet running, and the address of the page."""
    import uvicorn

    port = listener.getsockname()[1]
    token = secrets.token_urlsafe(32)
    config = uvicorn.Config(
        review_app(session, Guard(token, port)),
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
    """Return a socket that only this machine can reach; raise ``ConfigurationError`` if the port is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"port {port} cannot be used ({error.strerror}): give another with --port") from None
    return listener
