"""LangSmith clients, built in one place: every setting is explicit, and the key is handed on and never shown."""

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rag_eval.errors import ConfigurationError, preview

if TYPE_CHECKING:
    from langsmith import Client

DEFAULT_ENDPOINT = "https://api.smith.langchain.com"
# Nothing listens on the discard port of this machine: a call that slips through is refused at once.
NOWHERE = "http://127.0.0.1:9"
CONNECT_SECONDS = 5.0


def has_langsmith_key() -> bool:
    """Whether the environment has a key for LangSmith."""
    return bool(os.environ.get("LANGSMITH_API_KEY", "").strip())


def langsmith_client(
    api_key: str | None = None,
    endpoint: str | None = None,
    *,
    timeout_seconds: float = 30.0,
    on_upload_error: Callable[[Exception], None] | None = None,
) -> "Client":
    """A client for a LangSmith server; ``close()`` it to send what is still waiting and to end its threads.

    The key and the endpoint default to ``LANGSMITH_API_KEY`` and ``LANGSMITH_ENDPOINT``, the endpoint further to the
    vendor's own. Runs and feedback are uploaded in the background, where the client only logs what fails:
    ``on_upload_error`` is told. Raises ``ConfigurationError`` without a key or with an endpoint that is no web address.
    """
    key, url = _key(api_key), _address(endpoint)
    _check(timeout_seconds)
    from langsmith import Client

    return Client(
        api_url=url,
        api_key=key,
        timeout_ms=max(1, round(timeout_seconds * 1000)),
        disable_prompt_cache=True,
        tracing_error_callback=on_upload_error,
    )


def direct_client(
    api_key: str | None = None,
    endpoint: str | None = None,
    *,
    timeout_seconds: float = 20.0,
    info: Mapping[str, Any] | None = None,
) -> "Client":
    """A client that does nothing in the background and tries nothing again: what fails, fails where it was asked.

    ``info`` is what the server's ``/info`` says; the client does not ask for it. Otherwise as ``langsmith_client``.
    """
    key, url = _key(api_key), _address(endpoint)
    _check(timeout_seconds)
    from langsmith import Client
    from urllib3.util import Retry

    connect = min(CONNECT_SECONDS, timeout_seconds)
    return Client(
        api_url=url,
        api_key=key,
        timeout_ms=(max(1, round(connect * 1000)), max(1, round(timeout_seconds * 1000))),
        retry_config=Retry(0, read=False),  # so that a late answer is told from a broken connection
        auto_batch_tracing=False,
        info=dict(info or {}),
        disable_prompt_cache=True,
    )


def offline_client() -> "Client":
    """A client for ``evaluate`` or ``aevaluate`` with ``upload_results=False``: no key, no threads, no connection."""
    from langsmith import Client
    from urllib3.util import Retry

    return Client(
        api_url=NOWHERE,
        api_key="offline",
        info={},
        auto_batch_tracing=False,
        tracing_sampling_rate=0.0,  # aevaluate would send the target's runs even so
        retry_config=Retry(0),
        disable_prompt_cache=True,
    )


def _key(given: str | None) -> str:
    key = (given or os.environ.get("LANGSMITH_API_KEY") or "").strip()
    if not key:
        raise ConfigurationError("LangSmith asks for a key and none was given: set LANGSMITH_API_KEY, or give api_key")
    if not all("!" <= character <= "~" for character in key):
        raise ConfigurationError("the key for LangSmith has characters that no key has: check LANGSMITH_API_KEY")
    return key


def _address(given: str | None) -> str:
    url = given or os.environ.get("LANGSMITH_ENDPOINT") or DEFAULT_ENDPOINT
    if not url.startswith(("http://", "https://")):
        # A user and a password may stand before the host, and keys after it.
        host = re.split(r"[/?#]", url.split("://")[-1].rpartition("@")[2])[0]
        raise ConfigurationError(
            f"the LangSmith endpoint at {preview(host)} is no web address: it starts with http:// or https://"
        )
    return url.rstrip("/")


def _check(timeout_seconds: float) -> None:
    if timeout_seconds <= 0:
        raise ConfigurationError(f"the time-out for LangSmith is {timeout_seconds} seconds: use more than 0")
