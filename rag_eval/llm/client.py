"""Send requests to OpenAI, or to a server with the same protocol.

The key leaves this module only in the header of requests. It is removed from quoted messages of the server. Failures
are values, so that no exception keeps a request with its key.
"""

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.part_settings import check_address
from rag_eval.retry import Failure, retry_after_of, status_may_pass

if TYPE_CHECKING:
    import openai

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_HOST = "api.openai.com"
QUOTED_CHARACTERS = 200

Send = Callable[["openai.OpenAI", float], AbstractContextManager[Any]]
"""Start a streamed response on a client, with a timeout in seconds."""


def missing_key(base_url: str | None, api_key: str | None = None) -> str | None:
    """Return the environment variable of the missing key, or None if there is a key or the server may need none."""
    host = urlsplit(base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL).hostname
    key = api_key or os.environ.get("OPENAI_API_KEY", "")
    return None if key.strip() or host != DEFAULT_HOST else "OPENAI_API_KEY"


class OpenAIClient:
    """A service at ``base_url``, by default ``OPENAI_BASE_URL`` or else OpenAI.

    The key is ``api_key`` or else ``OPENAI_API_KEY``; other servers may need none. It is read at the first request, so
    that cached work needs no key. ``timeout`` limits one request, in seconds. Raises ``ConfigurationError`` on an
    address that is not http(s), or contains more than host, port and path.
    """

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        if not timeout > 0:
            raise ConfigurationError(f"the timeout is {timeout} seconds: use a number above 0")
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL
        try:
            check_address(self._base_url)
        except ValueError as error:
            raise ConfigurationError(f"the server's address cannot be used: {error}") from None
        parts = urlsplit(self._base_url)
        self.host = str(parts.hostname) if parts.port is None else f"{parts.hostname}:{parts.port}"
        # A host may serve several models at several paths; /v1 belongs to the protocol.
        self.server = self.host + parts.path.rstrip("/").removesuffix("/v1")
        self._given_key = None if api_key is None else SecretStr(api_key.strip())
        self._key = SecretStr("")
        self._timeout = timeout
        self._lock = threading.Lock()
        self._sdk: openai.OpenAI | None = None

    def request(self, send: Send, seconds_left: float) -> object | Failure:
        """Return the JSON answer of the service, or the failure."""
        sdk = self.connect()
        key = self._key.get_secret_value()
        timeout = max(0.001, min(self._timeout, seconds_left))
        late = Failure(
            f"{self.host} did not answer within {timeout:.3g} s", "raise timeout, or send less at once", may_pass=True
        )
        deadline = time.monotonic() + timeout
        body = bytearray()
        try:
            with send(sdk, timeout) as response:
                for part in response.iter_bytes():
                    body += part
                    if time.monotonic() > deadline:  # the client's timeout only limits silence
                        return late
        except Exception as error:
            failure = failure_of(error, self.host, key, "check model, dimensions and base_url")
            if failure is None:
                raise
            return late if _is_timeout(error) else failure
        try:
            answer: object = json.loads(body)
        except (ValueError, RecursionError):
            reason = f"{self.host} answered {len(body):,} bytes that are not JSON"
            return Failure(reason, "the answer may have been truncated", may_pass=True)
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            # Some gateways send errors with the status of a success.
            message = quoted(answer["error"].get("message"), key)
            return Failure(f"{self.host} answered an error ({message})", "check model and base_url")
        return answer

    def connect(self) -> "openai.OpenAI":
        """Return the SDK's client. Raises ``ConfigurationError`` if the key is missing or invalid."""
        with self._lock:
            if self._sdk is None:
                key = self._given_key or SecretStr(os.environ.get("OPENAI_API_KEY", "").strip())
                if not key and self.host == DEFAULT_HOST:
                    raise ConfigurationError(f"{self.host} needs a key: set OPENAI_API_KEY")
                if not all("!" <= character <= "~" for character in key.get_secret_value()):
                    raise ConfigurationError(
                        f"the key for {self.host} contains invalid characters, such as a space or a line end: check it"
                    )
                import openai

                self._key = key
                # We retry ourselves: the SDK's waits cannot be set, and it does not retry truncated answers.
                self._sdk = openai.OpenAI(
                    api_key=key.get_secret_value() or "none", base_url=self._base_url, max_retries=0
                )
                weakref.finalize(self, self._sdk.close)  # close connections with this object
            return self._sdk


@dataclass(frozen=True, slots=True)
class CallFailure(Failure):
    """A failed call: ``maybe_billed`` if it may have been processed, ``is_unreached`` if nothing was sent."""

    maybe_billed: bool = False
    is_unreached: bool = False


def failure_of(error: Exception, service: str, key: str, advice: str) -> CallFailure | None:
    """Return the failure that an exception of an OpenAI-like client stands for, or None for other exceptions.

    Args:
        error: The exception.
        service: The name of the service for messages.
        key: The key, which messages must not contain.
        advice: What to do if the service rejects a request for good.
    """
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _refusal(error, status, service, key, advice)
    if isinstance(error, json.JSONDecodeError):
        reason = f"the answer of {service} is not JSON"
        return CallFailure(reason, "it may have been truncated", may_pass=True, maybe_billed=True)
    if not isinstance(error, (TimeoutError, ConnectionError, *_connection_errors())):
        return None
    if _is_timeout(error):
        reason = f"{service} did not answer in time"
        return CallFailure(reason, "raise the client's timeout", may_pass=True, maybe_billed=True)
    cause = error.__cause__ or error
    message = quoted(str(cause) or type(error).__name__, key)
    # By name, because clients may use another HTTP library.
    is_unreached = isinstance(cause, ConnectionRefusedError) or type(cause).__name__ == "ConnectError"
    return CallFailure(
        f"the connection to {service} failed ({message})",
        "check base_url and the network",
        may_pass=True,
        maybe_billed=not is_unreached,
        is_unreached=is_unreached,
    )


def _refusal(error: Exception, status: int, service: str, key: str, advice: str) -> CallFailure:
    if status in (401, 403):
        # Do not quote the service: it may repeat the key in another form.
        return CallFailure(f"{service} refused the key ({status})", "check OPENAI_API_KEY, or the key given")
    body = getattr(error, "body", None)
    reason = f"{service} answered {status} ({quoted(part_of(body, 'message') or body, key)})"
    if part_of(body, "code") == "insufficient_quota":
        return CallFailure(reason, "raise the account's quota")
    if not status_may_pass(status):
        return CallFailure(reason, advice)
    wait = retry_after_of(getattr(getattr(error, "response", None), "headers", {}))
    later = "lower concurrency, or allow more retries" if status == 429 else "try again later"
    return CallFailure(reason, later, may_pass=True, retry_after=wait)


def part_of(whole: object, name: str) -> object:
    """Return the value of a key of a mapping or an attribute of an object, or None."""
    return whole.get(name) if isinstance(whole, Mapping) else getattr(whole, name, None)


def quoted(message: object, key: str) -> str:
    """Quote a message of a service, shortened, after removing the key."""
    text = str(message or "no reason")
    return preview(text.replace(key, "***") if key else text, QUOTED_CHARACTERS)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or "Timeout" in type(error).__name__


def _connection_errors() -> tuple[type[BaseException], ...]:
    """Return the connection errors of the SDK and of the HTTP libraries that it may use: httpx2 or httpx."""
    names = (("openai", "APIConnectionError"), ("httpx2", "HTTPError"), ("httpx", "HTTPError"))
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)
