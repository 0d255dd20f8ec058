"""Query services over HTTP, including whole retrieval systems."""

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import KW_ONLY
from typing import Annotated, Any, Literal

import httpx
from pydantic import Field, StrictFloat

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError, preview
from rag_eval.llm.client import quoted
from rag_eval.parts import Running, Shown, part
from rag_eval.parts.part_settings import Address, Count, Name, Whole
from rag_eval.retry import Failure, RetryPolicy, retry_after_of, status_may_pass
from rag_eval.types.evidence import Query

Method = Literal["POST", "GET"]


class JsonService:
    """A service that answers with JSON. Failed requests are retried, and no error contains the key.

    The key is ``key``, or else the value of the environment variable ``key_variable``; without one no key is sent.
    Raises ``ConfigurationError`` if the key is missing or contains invalid characters.
    """

    def __init__(
        self, name: str, timeout: float, max_retries: int, key_variable: str | None = None, key: str | None = None
    ) -> None:
        self._name, self._timeout, self._policy = name, timeout, RetryPolicy(max_retries)
        if key_variable is not None and not key:
            key = os.environ.get(key_variable)
            if not key:
                raise ConfigurationError(f"{name} needs a key: set {key_variable} in the environment")
        self._key = key or ""
        if not all("!" <= character <= "~" for character in self._key):
            raise ConfigurationError(f"the key of {name} contains invalid characters, such as a space: check it")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=timeout)

    def close(self) -> None:
        self._client.close()

    def ask(self, method: Method, url: str, body: object, stopped: threading.Event | None = None) -> object:
        """Return the answer to a request; with GET the body is sent as parameters.

        Raises ``ServiceError`` if the service fails, ``RequestRefusedError`` if a retry cannot help. ``stopped`` ends
        the retries.
        """
        answer = self._policy.run(lambda left: self._attempt(method, url, body, left), stopped or threading.Event())
        if isinstance(answer, Failure):
            kind = RequestRefusedError if answer.is_refusal else ServiceError
            raise kind(f"{self._name} failed, {answer.reason}: {answer.advice}")
        return answer

    def _attempt(self, method: Method, url: str, body: object, seconds_left: float) -> object | Failure:
        sent: dict[str, Any] = {"json": body} if method == "POST" else {"params": body}
        try:
            answer = self._client.request(method, url, timeout=min(self._timeout, max(seconds_left, 0.001)), **sent)
        except httpx.TimeoutException:
            return Failure(f"no answer within {self._timeout:g} s", "start the service or raise timeout", True)
        except httpx.HTTPError as error:
            return Failure(f"it cannot be reached ({type(error).__name__})", "check the address", True)
        text = quoted(answer.text, self._key)
        status, may_pass = answer.status_code, status_may_pass(answer.status_code)
        if status in (401, 403):  # do not quote: a service may repeat the key in another form
            return Failure(f"it refused the key ({status})", "check the key", is_refusal=True)
        if status >= 400:
            wait, is_refusal = retry_after_of(answer.headers), status < 500 and not may_pass
            return Failure(f"it answered {status}: {text}", "see its log", may_pass, wait, is_refusal)
        try:
            decoded: object = answer.json()
        except ValueError:
            return Failure(f"its answer is not JSON: {text}", "check the address")
        return decoded


_FIELDS = {"text": "text", "doc_id": "doc_id", "start": "start", "end": "end", "score": "score", "chunk_id": "chunk_id"}


@part
class HttpSystem:
    """A service that answers a query with its hits, as JSON.

    In ``body``, ``{query}`` and ``{k}`` stand for the question and the number of hits. ``hits`` is the path of the list
    in the answer, such as ``data.results``, and ``fields`` maps text, document, start, end, score and chunk id to paths
    in a hit. Answers are cached until ``version`` or another setting changes. Raises ``ServiceError`` if the service
    fails or answers in another form.
    """

    remote = True

    url: Annotated[Address, Shown, Field(description="Address of the service.")]
    _: KW_ONLY
    version: Annotated[
        Name | None, Field(description="Version of the service; change it when the service changes.")
    ] = None
    method: Annotated[Method, Field(description="HTTP method; GET sends the body as parameters.")] = "POST"
    body: Annotated[dict[str, object], Field(description="Body of the request; {query}, {k} are filled in.")] = Field(
        default_factory=lambda: dict[str, object](query="{query}", k="{k}")
    )
    hits: Annotated[str, Field(description="Path of the list of hits in the answer; empty: the whole answer.")] = ""
    fields: Annotated[
        dict[Name, Name], Field(description="Paths of text, doc_id, start, end, score and chunk_id in a hit.")
    ] = Field(default_factory=dict)
    key_variable: Annotated[
        Name | None, Running, Field(description="Environment variable that holds the bearer token.")
    ] = None
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Timeout of a request in seconds.")] = 30.0
    max_retries: Annotated[Whole, Running, Field(description="Maximum number of retries of a request.")] = 3
    concurrency: Annotated[Count, Running, Field(description="Maximum number of concurrent requests.")] = 4

    def __post_init__(self) -> None:
        unknown = self.fields.keys() - _FIELDS.keys()
        if unknown:
            raise ConfigurationError(f"fields has {', '.join(sorted(unknown))}: name {', '.join(_FIELDS)}")

    @property
    def name(self) -> str:
        return f"http {self.url}"

    def search_many(self, queries: Sequence[Query], k: int) -> list[list[dict[str, object]]]:
        """Return the hits of every query; the first query that fails for good stops the others."""
        stopped = threading.Event()
        service = JsonService(f"the system {self.name}", self.timeout, self.max_retries, self.key_variable)
        with closing(service), ThreadPoolExecutor(self.concurrency) as pool:

            def search(query: Query) -> list[dict[str, object]]:
                if stopped.is_set():
                    return []
                try:
                    answer = service.ask(self.method, self.url, _filled(self.body, query.text, k), stopped)
                    return self._hits(answer)
                except BaseException:
                    stopped.set()
                    raise

            return list(pool.map(search, queries))

    def _hits(self, answer: object) -> list[dict[str, object]]:
        listed = _at(answer, self.hits)
        if not isinstance(listed, list):
            where = f"at {self.hits}" if self.hits else "as its answer"
            raise ServiceError(f"the system {self.name} gave {preview(repr(listed))} {where}: expected a list of hits")
        paths = _FIELDS | self.fields
        return [
            {"text": hit} if isinstance(hit, str) else {name: _at(hit, path) for name, path in paths.items()}
            for hit in listed
        ]


def _filled(template: object, query: str, k: int) -> object:
    if isinstance(template, Mapping):
        return {key: _filled(value, query, k) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, query, k) for value in template]
    if template == "{k}":
        return k
    return template.replace("{query}", query).replace("{k}", str(k)) if isinstance(template, str) else template


def _at(data: object, path: str) -> object:
    """Return the value at a dotted path; None if there is none."""
    for step in path.split(".") if path else ():
        if isinstance(data, Mapping):
            data = data.get(step)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data
