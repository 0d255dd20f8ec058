"""One request to OpenAI, or to a server that speaks its protocol: its JSON, or why there is none.

The key leaves this module only as the request's header. What a server says is quoted with the key taken out, and a
failure is a value, so that no exception with the request in it stays behind.
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
"""Starts a streamed response on a client, with a time-out in seconds."""


def missing_key(base_url: str | None, api_key: str | None = None) -> str | None:
    """Return the variable that the key for a service is missing in; None where it is there, or may not be needed."""
    host = urlsplit(base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL).hostname
    key = api_key or os.environ.get("OPENAI_API_KEY", "")
    return None if key.strip() or host != DEFAULT_HOST else "OPENAI_API_KEY"


class OpenAIClient:
    """A service at ``base_url``, by default ``OPENAI_BASE_URL`` and else OpenAI's own.

    The key is ``api_key`` or else ``OPENAI_API_KEY``; a server that is not OpenAI's may need none. It is asked for at
    the first request, so that work that is cached needs no key. ``timeout`` bounds one request, in seconds.
    Raises ``ConfigurationError`` on an address that is not http(s) or holds more than host, port and path.
    """

    def __init__(self, base_url: str | None, api_key: str | None, timeout: float) -> None:
        if not timeout > 0:
            raise ConfigurationError(f"the time-out is {timeout} seconds: give a number above 0")
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_BASE_URL
        try:
            check_address(self._base_url)
        except ValueError as error:
            raise ConfigurationError(f"the server's address cannot be used: {error}") from None
        parts = urlsplit(self._base_url)
        self.host = str(parts.hostname) if parts.port is None else f"{parts.hostname}:{parts.port}"
        # One host may serve several models behind several paths; /v1 is the protocol's own.
        self.server = self.host + parts.path.rstrip("/").removesuffix("/v1")
        self._given_key = None if api_key is None else SecretStr(api_key.strip())
        self._key = SecretStr("")
        self._timeout = timeout
        self._lock = threading.Lock()
        self._sdk: openai.OpenAI | None = None

    def request(self, send: Send, seconds_left: float) -> object | Failure:
        """Return the JSON that the service answers, or why there is none."""
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
                    if time.monotonic() > deadline:  # a time-out of its own ends only a silence
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
            return Failure(reason, "the answer may have been cut on its way", may_pass=True)
        if isinstance(answer, dict) and isinstance(answer.get("error"), dict):
            # Gateways are known to send an error with the status of a success.
            told = quoted(answer["error"].get("message"), key)
            return Failure(f"{self.host} answered an error ({told})", "check model and base_url")
        return answer

    def connect(self) -> "openai.OpenAI":
        """The SDK's client, made at the first call; raises ``ConfigurationError`` where a key is needed or unusable."""
        with self._lock:
            if self._sdk is None:
                key = self._given_key or SecretStr(os.environ.get("OPENAI_API_KEY", "").strip())
                if not key and self.host == DEFAULT_HOST:
                    raise ConfigurationError(f"{self.host} needs a key: set OPENAI_API_KEY")
                if not all("!" <= character <= "~" for character in key.get_secret_value()):
                    raise ConfigurationError(
                        f"the key for {self.host} has characters that no key has, such as a space or a line end: "
                        "check it"
                    )
                import openai

                self._key = key
                # Retrying is ours: the SDK's waits cannot be set, and it does not ask again after a cut answer.
                self._sdk = openai.OpenAI(
                    api_key=key.get_secret_value() or "none", base_url=self._base_url, max_retries=0
                )
                weakref.finalize(self, self._sdk.close)  # connections end with the embedder
            return self._sdk


@dataclass(frozen=True, slots=True)
class CallFailure(Failure):
    """A failed call, ``maybe_billed`` if the work may have been done, ``is_unreached`` if nothing was sent at all."""

    maybe_billed: bool = False
    is_unreached: bool = False


def failure_of(error: Exception, service: str, key: str, advice: str) -> CallFailure | None:
    """Return the failure behind an exception of a client in the manner of OpenAI's; None for anything else.

    ``service`` is what the message calls it, ``advice`` what to do when it refuses a request for good.
    """
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _refusal(error, status, service, key, advice)
    if isinstance(error, json.JSONDecodeError):
        reason = f"the answer of {service} is not JSON"
        return CallFailure(reason, "it may have been cut on its way", may_pass=True, maybe_billed=True)
    if not isinstance(error, (TimeoutError, ConnectionError, *_connection_errors())):
        return None
    if _is_timeout(error):
        reason = f"{service} did not answer in time"
        return CallFailure(reason, "raise the client's time-out", may_pass=True, maybe_billed=True)
    cause = error.__cause__ or error
    told = quoted(str(cause) or type(error).__name__, key)
    # By name, because a client may bring an HTTP library of its own.
    is_unreached = isinstance(cause, ConnectionRefusedError) or type(cause).__name__ == "ConnectError"
    return CallFailure(
        f"the connection to {service} failed ({told})",
        "check base_url and the network",
        may_pass=True,
        maybe_billed=not is_unreached,
        is_unreached=is_unreached,
    )


def _refusal(error: Exception, status: int, service: str, key: str, advice: str) -> CallFailure:
    if status in (401, 403):
        # What the service says is left out: it may quote the key in a form that is not recognised.
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
    """Return a key of a mapping or an attribute of an object; None where there is none."""
    return whole.get(name) if isinstance(whole, Mapping) else getattr(whole, name, None)


def quoted(told: object, key: str) -> str:
    """Return what a service said, with the key taken out before it is cut to size."""
    text = str(told or "no reason")
    return preview(text.replace(key, "***") if key else text, QUOTED_CHARACTERS)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or "Timeout" in type(error).__name__


def _connection_errors() -> tuple[type[BaseException], ...]:
    """What the way to a service raises: the SDK's error and those of httpx2, which it brings, or httpx, as before."""
    names = (("openai", "APIConnectionError"), ("httpx2", "HTTPError"), ("httpx", "HTTPError"))
    return tuple(getattr(sys.modules[module], name) for module, name in names if module in sys.modules)
