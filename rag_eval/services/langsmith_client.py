"""Call LangSmith with timeouts and retries, and report failures without the key."""

import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError, preview
from rag_eval.retry import BRIEF, ONCE, PATIENT, Failure, RetryPolicy, retry_after_of, status_may_pass

if TYPE_CHECKING:
    from langsmith import Client

T = TypeVar("T")
DEFAULT_ENDPOINT = "https://api.smith.langchain.com"
CONNECT_SECONDS = 5.0
NOT_THIS = {400, 404, 405, 409, 413, 415, 422}


def has_langsmith_key() -> bool:
    """Return whether ``LANGSMITH_API_KEY`` is set."""
    return bool(os.environ.get("LANGSMITH_API_KEY", "").strip())


def langsmith_client(
    api_key: str | None = None, endpoint: str | None = None, *, timeout_seconds: float = 30.0, **options: Any
) -> "Client":
    """Return a client for a LangSmith server; ``close()`` sends pending data and ends its threads.

    It uploads runs and feedback in the background, and only logs failures or passes them to ``tracing_error_callback``.

    Args:
        api_key: The key. Default: ``LANGSMITH_API_KEY``.
        endpoint: The address. Default: ``LANGSMITH_ENDPOINT``, or the vendor's.
        timeout_seconds: How long a request may take.
        **options: Further arguments of ``langsmith.Client``.

    Raises:
        ConfigurationError: The key or the endpoint is missing or not valid.
    """
    key, url = langsmith_access(api_key, endpoint)
    if timeout_seconds <= 0:
        raise ConfigurationError(f"the timeout for LangSmith is {timeout_seconds} seconds: use more than 0")
    from langsmith import Client

    waits = {"timeout_ms": max(1, round(timeout_seconds * 1000))}
    return Client(api_url=url.rstrip("/"), api_key=key, disable_prompt_cache=True, **(waits | options))


def langsmith_access(api_key: str | None = None, endpoint: str | None = None) -> tuple[str, str]:
    """Return the key and the address, by default from the environment; raises ``ConfigurationError``."""
    key = (api_key or os.environ.get("LANGSMITH_API_KEY") or "").strip()
    if not key:
        raise ConfigurationError("LangSmith needs a key: set LANGSMITH_API_KEY, or give api_key")
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError("the key for LangSmith has invalid characters: check LANGSMITH_API_KEY")
    url = endpoint or os.environ.get("LANGSMITH_ENDPOINT") or DEFAULT_ENDPOINT
    if not url.startswith(("http://", "https://")):
        # A password may precede the host, and a key may follow it.
        host = re.split(r"[/?#]", url.split("://")[-1].rpartition("@")[2])[0]
        raise ConfigurationError(
            f"the LangSmith endpoint at {preview(host)} is not a web address: start it with http:// or https://"
        )
    return key, url


class LangSmithService:
    """LangSmith through one client."""

    def __init__(self, client: "Client", patience: RetryPolicy = ONCE) -> None:
        self.client = client
        self._patience = patience

    @classmethod
    def connect(cls, patience: RetryPolicy = PATIENT, *, timeout_seconds: float = 20.0) -> Self:
        """Connect with the key and the endpoint of the environment; ``close`` the service.

        Its client does nothing in the background and does not retry, so that every call raises its own failure.

        Raises:
            ConfigurationError: The key or the endpoint is missing or not valid.
            ServiceError: LangSmith does not answer.
        """

        def client(info: dict[str, object]) -> "Client":
            from urllib3.util import Retry

            seconds = (min(CONNECT_SECONDS, timeout_seconds), timeout_seconds)
            return langsmith_client(
                timeout_seconds=timeout_seconds,
                timeout_ms=tuple(max(1, round(value * 1000)) for value in seconds),
                retry_config=Retry(0, read=False),  # tells a late answer from a broken connection
                auto_batch_tracing=False,
                info=info,
            )

        # Give up quickly on a host that does not exist.
        brief = min(patience, BRIEF, key=lambda policy: policy.give_up_after)
        with closing(cls(client({}), brief)) as probe:
            info = probe.ask("LangSmith cannot be used", _info)
        return cls(client(info), patience)

    def ask(self, problem: str, call: "Callable[[Client], T]") -> T:
        """Return the answer to a call, after retries.

        Raises:
            ServiceError: LangSmith fails; the message starts with ``problem``.
            RequestRefusedError: LangSmith works and refuses this request.
        """
        from langsmith.utils import LangSmithError
        from requests import RequestException

        def attempt(_seconds_left: float) -> T | Failure:
            try:
                return call(self.client)
            except (LangSmithError, RequestException, ValueError, TypeError) as error:  # invalid answers, too
                return _failure(error)

        answer = self._patience.run(attempt, threading.Event())
        if not isinstance(answer, Failure):
            return answer
        error = (RequestRefusedError if answer.is_refusal else ServiceError)(
            f"{problem} ({answer.reason}): {answer.advice}"
        )
        error.may_pass = answer.may_pass
        raise error

    def close(self) -> None:
        self.client.close()


def _info(client: "Client") -> dict[str, object]:
    from langsmith.utils import LangSmithNotFoundError

    try:
        answer = client.request_with_retries("GET", "/info").json()
    except LangSmithNotFoundError:  # an old server
        return {}
    if not isinstance(answer, dict):
        raise TypeError("no object")
    return answer


def _failure(error: Exception) -> Failure:
    """Return the reason of a failed call, without the SDK's message, which contains a part of the key."""
    import requests
    from langsmith.utils import LangSmithConnectionError

    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    response = next((cause.response for cause in causes if isinstance(cause, requests.HTTPError)), None)
    if response is not None:
        return _refusal(response.status_code, response.headers)
    if any(isinstance(cause, requests.Timeout) for cause in causes):
        return Failure("it did not answer in time", "try again later, or check LANGSMITH_ENDPOINT", may_pass=True)
    if any(isinstance(cause, LangSmithConnectionError | requests.ConnectionError) for cause in causes):
        return Failure("it cannot be reached", "check the network and LANGSMITH_ENDPOINT", may_pass=True)
    return Failure(f"its answer is not valid, {type(error).__name__}", "check LANGSMITH_ENDPOINT")


def _refusal(status: int, headers: Mapping[str, str]) -> Failure:
    if status in (401, 403):
        return Failure(f"it refused the key, {status}", "check LANGSMITH_API_KEY and the workspace it is for")
    reason = f"it answered {status}"
    if status in NOT_THIS:
        return Failure(reason, "check what is sent, and LANGSMITH_ENDPOINT", is_refusal=True)
    if status_may_pass(status):
        return Failure(reason, "try again later", may_pass=True, retry_after=retry_after_of(headers))
    return Failure(reason, "check LANGSMITH_ENDPOINT")
