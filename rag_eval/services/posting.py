"""Posting messages to services that take plain HTTP, and traces to one that speaks OpenTelemetry's protocol."""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import httpx

from rag_eval.errors import RequestRefusedError, ServiceError
from rag_eval.retry import PATIENT, Failure, RetryPolicy, retry_after_of, status_may_pass
from rag_eval.services.outbox import Message

REFUSED = {400, 413, 415, 422}

TRACES_CHANNEL = "opentelemetry"
ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADERS, TRACES_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
"""The variables of OpenTelemetry that say where traces go and with which headers; those of traces alone come first."""


@dataclass(frozen=True)
class Receiver:
    """How a service is called in sentences, and which variables hold its address and its key."""

    name: str
    address: str
    key: str


def post(
    to: Receiver, address: str, headers: Mapping[str, str], body: bytes, timeout: float, policy: RetryPolicy
) -> httpx.Response:
    """Post a body until it is taken, and return the answer.

    Raises ``ServiceError`` when the service does not take it after some attempts, and its kind ``RequestRefusedError``
    when it is this body that it does not take.
    """

    def once(left: float) -> httpx.Response | Failure:
        try:
            answer = httpx.post(address, headers=dict(headers), content=body, timeout=min(timeout, left))
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            return Failure("its address is none", f"check {to.address}, it starts with http:// or https://")
        except UnicodeError:
            return Failure("its address or its key has characters that none has", f"check {to.address} and {to.key}")
        except httpx.TransportError as error:
            return Failure(type(error).__name__, "check the network and the address", may_pass=True)
        if answer.status_code in (401, 403):
            return Failure(f"it answered {answer.status_code}", f"check {to.key}")
        if answer.status_code in REFUSED:
            raise RequestRefusedError(f"{to.name} does not take these results (it answered {answer.status_code})")
        if not answer.is_success:
            may_pass, after = status_may_pass(answer.status_code), retry_after_of(answer.headers)
            return Failure(f"it answered {answer.status_code}", "try again later", may_pass, after)
        return answer

    answer = policy.run(once, threading.Event())
    if isinstance(answer, Failure):
        raise ServiceError(f"{to.name} did not take the results ({answer.reason}): {answer.advice}")
    return answer


def traces_address() -> str | None:
    """Return where traces go, by the variables of OpenTelemetry; None where none is set."""
    own, general = (os.environ.get(name, "").strip() for name in (TRACES_ENDPOINT, ENDPOINT))
    return own or (f"{general.rstrip('/')}/v1/traces" if general else None)


def send_trace(message: Message, policy: RetryPolicy = PATIENT) -> Mapping[str, object]:
    """Send a trace as JSON to where the environment says; raises as ``post`` does, and where it does not say."""
    address = traces_address()
    if address is None:
        raise ServiceError(f"{ENDPOINT} is not set: set it to send traces")
    payload = message.payload
    written = os.environ.get(TRACES_HEADERS) or os.environ.get(HEADERS) or ""
    pairs = (pair.partition("=") for pair in written.split(",") if "=" in pair)
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    body = json.dumps(payload["trace"]).encode()
    to = Receiver("the OpenTelemetry endpoint", ENDPOINT, HEADERS)
    post(to, address, {**headers, "Content-Type": "application/json"}, body, 30.0, policy)
    return {"run": payload["run"]}
