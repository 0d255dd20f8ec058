"""HTTP on loopback for doubles of services: requests are kept, bodies decompressed, faults scripted."""

import gzip
import io
import json
import re
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import zstandard

HANG_SECONDS = 60.0


@dataclass(frozen=True)
class Part:
    """One part of a multipart body."""

    name: str
    content_type: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Request:
    """A request as it was understood: the body is decompressed."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def parts(self) -> list[Part]:
        match = re.search(r'boundary="?([^";]+)', self.headers.get("content-type", ""))
        if match is None:
            raise Refusal(400, "not a multipart body")
        parts = []
        for piece in self.body.split(b"--" + match[1].encode())[1:-1]:
            head, _, body = piece.removeprefix(b"\r\n").removesuffix(b"\r\n").partition(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n"))
            name = re.search(r'name="([^"]*)"', head.decode())
            if name is None:
                raise Refusal(400, "a part without a name")
            parts.append(Part(name[1], headers.get("content-type", ""), body))
        return parts

    def one(self, name: str) -> str | None:
        return self.query.get(name, [None])[0]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


Reply = tuple[int, bytes | Iterator[bytes], dict[str, str]]
"""Status, body and headers; a body in pieces needs a ``Content-Length``."""


@dataclass
class Fault:
    """What happens to the next ``times`` requests that match, after ``after`` others; below 0 times: to all of them.

    With ``done`` the request is executed; with ``hang`` there is no answer until the server is healed or stops.
    """

    method: str
    path: str
    status: int | None = None
    body: bytes = b'{"detail": "scripted fault"}'
    headers: dict[str, str] = field(default_factory=dict)
    after: int = 0
    times: int = 1
    done: bool = False
    hang: bool = False

    def strikes(self, request: Request) -> bool:
        is_meant = re.fullmatch(self.method, request.method) and re.fullmatch(self.path, request.path)
        if not self.times or not is_meant:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


class LoopbackServer(ABC):
    """A server on a free port; a context manager that leaves nothing running."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._healed = threading.Event()
        self.hanging = threading.Event()
        self._http = _HttpServer(self)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._healed.set()
        self._http.shutdown()
        self._thread.join()
        self._http.hang_up()
        self._http.server_close()

    @property
    def url(self) -> str:
        """The endpoint for a client."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def fail(
        self,
        method: str,
        path: str,
        *,
        status: int | None = None,
        hang: bool = False,
        retry_after: float | None = None,
        times: int = 1,
    ) -> None:
        """Answer the next requests to a path (a regular expression) with a status; without one, hang up.

        With ``hang`` nothing is answered until the client gives up or the server stops.
        """
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        self._faults.append(Fault(method, path, status, headers=headers, hang=hang, times=times))

    def lose_answer(self, method: str, path: str) -> None:
        """Do what the next request to a path (a regular expression) asks, and hang up without an answer."""
        self._faults.append(Fault(method, path, done=True))

    def answer_with(self, method: str, path: str, body: bytes) -> None:
        """Answer the next request to a path with a body of success, and do nothing."""
        self._faults.append(Fault(method, path, 200, body))

    def fail_after(self, count: int, method: str, path: str, status: int) -> None:
        """Answer so many requests to a path, and the others with a status until it is healed."""
        self._faults.append(Fault(method, path, status, after=count, times=-1))

    def hang_after(self, count: int, *, done: bool) -> None:
        """Answer so many requests that change something, and hang at the next, which is ``done`` or is not."""
        self.hanging.clear()
        self._healed.clear()
        self._faults.append(Fault("POST|PATCH|DELETE", ".*", after=count, done=done, hang=True))

    def heal(self) -> None:
        """No faults from now on."""
        self._faults.clear()
        self._healed.set()

    def calls(self) -> list[str]:
        """The requests in order, such as ``POST /feedback``, ids left out."""
        return [re.sub(r"/[0-9a-f-]{36}", "/{id}", str(request)) for request in self.requests]

    def respond(self, request: Request) -> Reply | None:
        """Return the answer, or None to hang up without one."""
        with self._lock:
            self.requests.append(request)
            fault = next((fault for fault in self._faults if fault.strikes(request)), None)
            if fault is None:
                return *self._safe_answer(request), {}  # written out under the lock: records change
            if fault.done:
                self._safe_answer(request)
        if fault.hang:
            self.hanging.set()
            self._healed.wait(HANG_SECONDS)
        return None if fault.hang or fault.status is None else (fault.status, fault.body, fault.headers)

    @abstractmethod
    def answer(self, request: Request) -> tuple[int, Any]:
        """Status and JSON of the answer to a request; may raise ``Refusal``."""

    def _safe_answer(self, request: Request) -> tuple[int, bytes]:
        try:
            status, data = self.answer(request)
        except Refusal as refusal:
            status, data = refusal.status, {"detail": str(refusal)}
        except (KeyError, TypeError, ValueError) as error:
            status, data = 422, {"detail": f"{request} cannot be understood: {error!r}"}
        return status, json.dumps(data, default=repr).encode()


def refused_url() -> str:
    """An endpoint on this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them
    request_queue_size = 64

    def __init__(self, double: LoopbackServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.double = double
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news; ``socketserver`` would print it."""

    def hang_up(self) -> None:
        """End the connections that clients keep open."""
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # closed by the other side meanwhile
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body go apart, and the second would wait 40 ms for the first
    server: _HttpServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, url.path, parse_qs(url.query), headers, self._body(headers))
        answer = self.server.double.respond(request)
        if answer is None:
            self.close_connection = True
            return
        status, body, extra = answer
        self.send_response(status)
        length = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {}
        for name, value in ({"Content-Type": "application/json"} | length | extra).items():
            self.send_header(name, value)
        self.end_headers()
        for piece in [body] if isinstance(body, bytes) else body:
            self.wfile.write(piece)

    do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = do_GET

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self.rfile.read(int(headers.get("content-length", 0)))
        match headers.get("content-encoding"):
            case "zstd":
                return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body), read_across_frames=True).read()
            case "gzip":
                return gzip.decompress(body)
        return body

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline().split(b";")[0], 16)
        chunk = self.rfile.read(size)
        self.rfile.readline()
        return chunk

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: pytest would show it."""
