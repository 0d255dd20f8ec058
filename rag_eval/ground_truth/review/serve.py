"""Serving the review page on this machine only."""

import secrets
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.review.documents import DocumentFolder
from rag_eval.ground_truth.review.guard import Guard
from rag_eval.ground_truth.review.session import ReviewSession

if TYPE_CHECKING:
    from uvicorn import Server

HOST = "127.0.0.1"


def serve_review(truth: Path, corpus: Path, glob: str, port: int = 0, *, on_start: Callable[[str], object]) -> None:
    """Serve the page until the process is interrupted; ``on_start`` is given its address, with the key in it.

    Port 0 takes a free one. Raises ``GroundTruthError`` or ``CorpusError`` when there is nothing to review, and
    ``ConfigurationError`` when the port is taken.
    """
    session = ReviewSession(truth, DocumentFolder(corpus, glob))
    with closing(listening_socket(port)) as listener:
        server, address = review_server(session, listener)
        on_start(address)
        server.run(sockets=[listener])


def review_server(session: ReviewSession, listener: socket.socket) -> "tuple[Server, str]":
    """A server for a session on a socket that listens already, not yet running, and the page's address."""
    import uvicorn

    from rag_eval.ground_truth.review.app import ReviewApp

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
    """A socket that only this machine can reach; raises ``ConfigurationError`` when the port is taken."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"port {port} cannot be used ({error.strerror}): give another with --port") from None
    return listener
