"""A retrieval system behind HTTP."""

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY
from typing import Annotated, Any, Literal

import httpx
from pydantic import Field, StrictFloat

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError, preview
from rag_eval.parts import Running, Shown, part
from rag_eval.parts.part_settings import Address, Count, Name, Whole
from rag_eval.retry import Failure, RetryPolicy, retry_after_of, status_may_pass
from rag_eval.types.evidence import Query

_FIELDS = {"text": "text", "doc_id": "doc_id", "start": "start", "end": "end", "score": "score", "chunk_id": "chunk_id"}


@part
class HttpSystem:
    """A service that answers a query with what it found, as JSON.

    In ``body``, ``{query}`` and ``{k}`` stand for the question and the number of hits. ``hits`` is the path of the list
    in the answer, such as ``data.results``, and ``fields`` says which key of a hit has its text, document, start, end,
    score and chunk id. Answers are kept until ``version`` or another setting changes. Raises ``ServiceError`` when the
    service fails, is not there, or does not answer in this form.
    """

    remote = True

    url: Annotated[Address, Shown, Field(description="The address that is asked.")]
    _: KW_ONLY
    version: Annotated[Name | None, Field(description="The state of the service; give another when it changes.")] = None
    method: Annotated[
        Literal["POST", "GET"], Field(description="How it is asked; GET sends the body as parameters.")
    ] = "POST"
    body: Annotated[dict[str, Any], Field(description="What is sent; {query} and {k} are filled in.")] = Field(
        default_factory=lambda: {"query": "{query}", "k": "{k}"}
    )
    hits: Annotated[str, Field(description="The path of the list of hits in the answer; empty: the answer.")] = ""
    fields: Annotated[
        dict[Name, Name], Field(description="The paths of text, doc_id, start, end, score and chunk_id in a hit.")
    ] = Field(default_factory=dict)
    key_variable: Annotated[
        Name | None, Running, Field(description="The environment variable that holds a bearer token.")
    ] = None
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Seconds that one request may take.")] = 30.0
    max_retries: Annotated[Whole, Running, Field(description="How often a failed request is sent again.")] = 3
    concurrency: Annotated[Count, Running, Field(description="How many requests are under way at once.")] = 4

    def __post_init__(self) -> None:
        unknown = self.fields.keys() - _FIELDS.keys()
        if unknown:
            raise ConfigurationError(f"fields has {', '.join(sorted(unknown))}: name {', '.join(_FIELDS)}")

    @property
    def name(self) -> str:
        """The address."""
        return f"http {self.url}"

    def search_many(self, queries: Sequence[Query], k: int) -> list[list[dict[str, Any]]]:
        """Return the hits of every query; the first that fails for good ends the rest."""
        stopped = threading.Event()
        headers = {}
        if self.key_variable is not None:
            key = os.environ.get(self.key_variable)
            if not key:
                raise ConfigurationError(f"{self.name} needs a key: set {self.key_variable} in the environment")
            headers["Authorization"] = f"Bearer {key}"
        with (
            httpx.Client(headers=headers, timeout=self.timeout) as client,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):

            def answered(query: str) -> list[dict[str, Any]]:
                try:
                    return self._hits(self._asked(client, query, k, stopped))
                except BaseException:
                    stopped.set()
                    raise

            return list(pool.map(answered, [query.text for query in queries]))

    def _asked(self, client: httpx.Client, query: str, k: int, stopped: threading.Event) -> Any:
        body = _filled(self.body, query, k)
        sent: dict[str, Any] = {"json": body} if self.method == "POST" else {"params": body}

        def attempt(left: float) -> Any:
            if stopped.is_set():
                return Failure("another request had failed for good", "ask again")
            try:
                answer = client.request(self.method, self.url, timeout=min(self.timeout, max(left, 0.001)), **sent)
            except httpx.TimeoutException:
                return Failure(f"no answer within {self.timeout:g} s", "start the service or raise timeout", True)
            except httpx.HTTPError as error:
                return Failure(f"it cannot be reached ({type(error).__name__})", "check the address", True)
            if answer.status_code >= 400:
                passing = status_may_pass(answer.status_code)
                reason = f"it answered {answer.status_code}: {preview(answer.text)}"
                after = retry_after_of(answer.headers)
                return Failure(reason, "see its log", passing, after, is_refusal=answer.status_code < 500)
            try:
                return answer.json()
            except ValueError:
                return Failure(f"its answer is not JSON: {preview(answer.text)}", "check the address")

        found = RetryPolicy(self.max_retries).run(attempt, stopped)
        if isinstance(found, Failure):
            kind = RequestRefusedError if found.is_refusal else ServiceError
            raise kind(f"the system {self.name} failed, {found.reason}: {found.advice}")
        return found

    def _hits(self, answer: Any) -> list[dict[str, Any]]:
        listed = _at(answer, self.hits)
        if not isinstance(listed, list):
            where = f"at {self.hits}" if self.hits else "as its answer"
            raise ServiceError(f"the system {self.name} gave {preview(repr(listed))} {where}: expected a list of hits")
        paths = _FIELDS | self.fields
        return [
            {"text": hit} if isinstance(hit, str) else {name: _at(hit, path) for name, path in paths.items()}
            for hit in listed
        ]


def _filled(template: Any, query: str, k: int) -> Any:
    if isinstance(template, Mapping):
        return {key: _filled(value, query, k) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, query, k) for value in template]
    if template == "{k}":
        return k
    return template.replace("{query}", query).replace("{k}", str(k)) if isinstance(template, str) else template


def _at(data: Any, path: str) -> Any:
    """Return what is at a dotted path; None where there is nothing."""
    for step in path.split(".") if path else ():
        if isinstance(data, Mapping):
            data = data.get(step)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data
