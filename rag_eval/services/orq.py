"""Send experiments to orq.ai.

Its SDK cannot create experiments, so they go to the address that the vendor's own runner posts to.
"""

import json
import os
import threading
from collections.abc import Mapping
from uuid import UUID

import httpx
from pydantic import Field

from rag_eval.errors import RequestRefusedError, ServiceError
from rag_eval.parts.part_settings import Address, Settings
from rag_eval.retry import BRIEF, Failure, RetryPolicy, retry_after_of, status_may_pass

KEY, ADDRESS = "ORQ_API_KEY", "ORQ_BASE_URL"
RECEIVE = "/v2/spreadsheets/evaluations/receive"
REFUSED = {400, 413, 415, 422}
CONNECT_SECONDS = 4.0
"""Short enough for all attempts of the default retries, even if the host does not answer."""


class OrqSettings(Settings):
    """The address of orq.ai, and how long a request may take."""

    endpoint: Address = "https://my.orq.ai"
    timeout: float = Field(default=30.0, gt=0, description="Timeout of a request in seconds.")


def post_experiment(
    payload: Mapping[str, object], experiment_id: UUID, settings: OrqSettings, retries: RetryPolicy = BRIEF
) -> str:
    """Send an experiment and return its address; ``ORQ_BASE_URL`` overrides the endpoint.

    Raises:
        ServiceError: There is no key, or orq.ai fails.
        RequestRefusedError: orq.ai works and refuses these results.
    """
    key = os.environ.get(KEY, "").strip()
    if not key:
        raise ServiceError(f"{KEY} is not set: set it to send results to orq.ai")
    if not key.isascii() or not key.isprintable():
        raise ServiceError(f"{KEY} has characters that are not valid in a key: check it")
    address = (os.environ.get(ADDRESS) or settings.endpoint).rstrip("/") + RECEIVE
    # orq.ai recognises an experiment that was sent before by the idempotency key.
    headers = {
        "Authorization": f"Bearer {key}",
        "Idempotency-Key": str(experiment_id),
        "Content-Type": "application/json",
    }
    body = json.dumps(payload).encode()

    def attempt(seconds_left: float) -> httpx.Response | Failure:
        seconds = min(settings.timeout, seconds_left)
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
        try:
            return _checked(httpx.post(address, headers=headers, content=body, timeout=timeout))
        except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError):
            return Failure("its address is not valid", f"check {ADDRESS}, such as https://host")
        except httpx.TransportError as error:
            return Failure(type(error).__name__, "check the network and the address", may_pass=True)

    answer = retries.run(attempt, threading.Event())
    if isinstance(answer, Failure):
        raise ServiceError(f"orq.ai did not take the results ({answer.reason}): {answer.advice}")
    try:
        url = answer.json().get("experiment_url")
    except (ValueError, AttributeError):
        # orq.ai has accepted the results: sending them again might create a second experiment.
        return "sent, but the answer is not a JSON object: check the address"
    return str(url) if url else "sent"


def _checked(answer: httpx.Response) -> httpx.Response | Failure:
    status = answer.status_code
    if answer.is_success:
        return answer
    if status in (401, 403):
        return Failure(f"it answered {status}", f"check {KEY}")
    if status in REFUSED:
        raise RequestRefusedError(f"orq.ai refuses these results (it answered {status})")
    return Failure(f"it answered {status}", "try again later", status_may_pass(status), retry_after_of(answer.headers))
