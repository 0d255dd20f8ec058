"""A server on loopback that answers like OpenAI's API, embeddings and chat completions, and fails on request.

::

    with OpenAIServer() as server:
        server.faults += [Status(429, headers={"retry-after": "0.1"}), Hang(5)]
        OpenAIEmbedder(base_url=server.base_url, api_key="any").embed(["text"])
        server.requests  # what was asked, in order

Each request takes the next fault, if there is one left. Vectors depend on the text and the dimension alone.
"""

import base64
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.doubles.loopback import LoopbackServer, Reply
from tests.doubles.loopback import Request as HttpRequest

JSON = dict[str, Any]
DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
MAX_TEXTS = 2_048


@dataclass(frozen=True)
class Status:
    """An error status with OpenAI's error body, or another body."""

    status: int
    message: str = "scripted"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True)
class Hang:
    """No answer for so many seconds, then a closed connection."""

    seconds: float


@dataclass(frozen=True)
class Drip:
    """The answer a byte at a time, with so many seconds between them."""

    seconds: float


@dataclass(frozen=True)
class CutJSON:
    """The first bytes of the right answer, sent as if they were all of it."""

    keep: float = 0.5


@dataclass(frozen=True)
class Disconnect:
    """The connection is closed after this share of the answer's bytes."""

    keep: float = 0.0


@dataclass(frozen=True)
class Change:
    """The right answer, changed."""

    change: Callable[[JSON], JSON] = field(repr=False)  # its address would be in the names of tests


Fault = Status | Hang | Drip | CutJSON | Disconnect | Change


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    headers: dict[str, str]
    body: JSON


def vector_of(text: str, dimension: int) -> np.ndarray:
    """The vector that the server gives a text: of length 1, the same every time."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


class OpenAIServer(LoopbackServer):
    """The server, from entering the context to leaving it.

    ``dimension`` is for models it does not know; ``api_key``, if set, is the only one it takes; ``seconds`` is how
    long it thinks; ``reply`` makes the content of a chat answer from the request.
    """

    requests: list[Request]  # type: ignore[assignment]  # with their JSON

    def __init__(self, *, dimension: int = 8, api_key: str | None = None, seconds: float = 0.0) -> None:
        super().__init__()
        self.dimension, self.api_key, self.seconds = dimension, api_key, seconds
        self.faults: deque[Fault] = deque()
        self.reply: Callable[[JSON], str] = lambda body: str(body["messages"][-1]["content"])
        self.most_at_once = 0
        self._at_once = 0

    @property
    def host(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def texts(self) -> list[str]:
        """All texts of all requests for embeddings, in their order."""
        return [text for request in self.requests for text in request.body.get("input", [])]

    def respond(self, received: HttpRequest) -> Reply | None:
        request = Request(received.path, received.headers, received.json())
        with self._lock:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            fault = self.faults.popleft() if self.faults else None
        try:
            if self.seconds:
                self._healed.wait(self.seconds)
            return self._reply_with(request, fault)
        finally:
            with self._lock:
                self._at_once -= 1

    def _reply_with(self, request: Request, fault: Fault | None) -> Reply | None:
        if isinstance(fault, Status):
            told = json.dumps(_error(fault.message, fault.code)).encode() if fault.body is None else fault.body
            return fault.status, told, fault.headers
        if isinstance(fault, Hang):
            self._healed.wait(fault.seconds)
            return None
        status, answer = self.answer(request)
        told = json.dumps(fault.change(answer) if isinstance(fault, Change) else answer).encode()
        if isinstance(fault, CutJSON):
            return status, told[: int(len(told) * fault.keep)], {}
        length = {"Content-Length": str(len(told))}
        if isinstance(fault, Drip):
            return status, self._dripping(told, fault.seconds), length
        if isinstance(fault, Disconnect):
            kept = told[: int(len(told) * fault.keep)]
            return (status, kept, length | {"Connection": "close"}) if kept else None
        return status, told, {}

    def _dripping(self, told: bytes, seconds: float) -> Iterator[bytes]:
        for byte in told:
            yield bytes([byte])
            self._healed.wait(seconds)

    def answer(self, request: Request) -> tuple[int, JSON]:  # type: ignore[override]  # its own requests
        """Status and body of the right answer."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.api_key is not None and key != self.api_key:
            return 401, _error(f"Incorrect API key provided: {key}.", "invalid_api_key")
        if request.path.endswith("/embeddings"):
            return self._embeddings(request.body)
        if request.path.endswith("/chat/completions"):
            return 200, self._chat_completion(request.body)
        return 404, _error(f"Unknown request URL: POST {request.path}", "unknown_url")

    def _embeddings(self, body: JSON) -> tuple[int, JSON]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        if not texts or not all(texts) or len(texts) > MAX_TEXTS:
            return 400, _error("'$.input' is invalid.", None)
        dimension = body.get("dimensions") or DIMENSIONS.get(body["model"], self.dimension)
        data = []
        for index, text in enumerate(texts):
            vector = vector_of(text, dimension)
            if body.get("encoding_format") == "base64":
                embedding: object = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            else:
                embedding = vector.tolist()
            data.append({"object": "embedding", "index": index, "embedding": embedding})
        tokens = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return 200, {"object": "list", "data": data, "model": body["model"], "usage": usage}

    def _chat_completion(self, body: JSON) -> JSON:
        message = {"role": "assistant", "content": self.reply(body), "refusal": None}
        asked = sum(len(str(part.get("content")).split()) for part in body["messages"])
        told = len(message["content"].split())
        return {
            "id": f"chatcmpl-{len(self.requests)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told},
        }


def _error(message: str, code: str | None) -> JSON:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
