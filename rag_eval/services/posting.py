"""Posting what waits by plain HTTP: experiments to orq.ai, traces to a service that speaks OpenTelemetry's protocol.

orq.ai's SDK has no way to create experiments, so they go to the address that the vendor's own runner posts to.
"""

import json
import os
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import httpx
from pydantic import Field, ValidationError

from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.parts.part_settings import Address, Settings
from rag_eval.retry import PATIENT, Failure, RetryPolicy, retry_after_of, status_may_pass
from rag_eval.services.outbox import Message

S = TypeVar("S", bound=Settings)

REFUSED = {400, 413, 415, 422}


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


ORQ_CHANNEL = "orq"
ORQ_KEY, ORQ_ADDRESS = "ORQ_API_KEY", "ORQ_BASE_URL"
RECEIVE = "/v2/spreadsheets/evaluations/receive"

PROJECT_FILES = {"rag-eval.toml": ("experiment",), "pyproject.toml": ("tool", "rag-eval", "experiment")}
"""The files that may hold the settings of experiments, and the keys that lead to them."""


class OrqSettings(Settings):
    """Where orq.ai is, and how long a request may take."""

    endpoint: Address = "https://my.orq.ai"
    timeout: float = Field(default=30.0, gt=0, description="Seconds a request may take.")


def load_settings(model: type[S], *inner: str) -> S:
    """The settings in the nearest of ``PROJECT_FILES``, folders upwards, or in a table inside them; else the defaults.

    Raises ``ConfigurationError`` with the file and the key when one cannot be used.
    """
    here = Path.cwd()
    for path, keys in ((place / name, keys) for place in (here, *here.parents) for name, keys in PROJECT_FILES.items()):
        try:
            table: Any = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from None
        for key in keys:
            table = table.get(key) if isinstance(table, dict) else None
        if table is None:
            continue
        for key in inner:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        try:
            return model.model_validate(table)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join((*keys, *inner, *map(str, first["loc"])))
            known = ", ".join(model.model_fields)
            hint = f"the keys are {known}" if first["type"] == "extra_forbidden" else first["msg"].lower()
            raise ConfigurationError(f"{str(path)!r}, {where}: {hint}") from None
    return model()


def orq_sender(
    endpoint: str, timeout: float = 30.0, policy: RetryPolicy = PATIENT
) -> Callable[[Message], Mapping[str, object]]:
    """What sends a message to orq.ai and gives back the experiment's address; ``ORQ_BASE_URL`` overrides ``endpoint``.

    The sender raises ``ServiceError`` without a key, and when orq.ai does not take the message after some attempts; of
    its kinds ``RequestRefusedError`` when it is this message that it does not take.
    """

    def send(message: Message) -> Mapping[str, object]:
        key = os.environ.get(ORQ_KEY, "").strip()
        if not key:
            raise ServiceError(f"{ORQ_KEY} is not set: set it to send results to orq.ai")
        if not key.isascii() or not key.isprintable():
            raise ServiceError(f"{ORQ_KEY} has characters that no key has: check it")
        address = (os.environ.get(ORQ_ADDRESS) or endpoint).rstrip("/") + RECEIVE
        # The message's id lets the service know a second attempt whose first answer was lost.
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Idempotency-Key": str(message.id),
        }
        # In ASCII, which holds half a surrogate pair of a model's too.
        body = json.dumps(message.payload).encode()
        return _told(post(Receiver("orq.ai", ORQ_ADDRESS, ORQ_KEY), address, headers, body, timeout, policy))

    return send


def _told(answer: httpx.Response) -> Mapping[str, object]:
    # It took the results: whatever it says about them, sending them again would make a second experiment.
    try:
        told = answer.json()
    except ValueError:
        return {"url": None, "rows": None, "note": "its answer is not JSON: check the address"}
    if not isinstance(told, dict):
        return {"url": None, "rows": None, "note": "its answer is not an object: check the address"}
    return {"url": told.get("experiment_url"), "rows": told.get("rows_created")}


TRACES_CHANNEL = "opentelemetry"
ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADERS, TRACES_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
"""The variables of OpenTelemetry that say where traces go and with which headers; those of traces alone come first."""


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
