"""Send experiments to orq.ai.

Its SDK has no way to create experiments, so they go to the address that the vendor's own runner posts to.
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
from rag_eval.retry import PATIENT, Failure, RetryPolicy, retry_after_of, status_may_pass

KEY, ADDRESS = "ORQ_API_KEY", "ORQ_BASE_URL"
RECEIVE = "/v2/spreadsheets/evaluations/receive"
REFUSED = {400, 413, 415, 422}


class OrqSettings(Settings):
    """The address of orq.ai, and how long a request may take."""

    endpoint: Address = "https://my.orq.ai"
    timeout: float = Field(default=30.0, gt=0, description="Seconds a request may take.")


def post_experiment(
    payload: Mapping[str, object], experiment_id: UUID, settings: OrqSettings, policy: RetryPolicy = PATIENT
) -> str:
    """Send an experiment and return its address, or a note where the answer has none.

    ``ORQ_BASE_URL`` overrides the endpoint of the settings. Raises ``ServiceError`` without a key, and when orq.ai does
    not take the experiment.
    """
    key = os.environ.get(KEY, "").strip()
    if not key:
        raise ServiceError(f"{KEY} is not set: set it to send results to orq.ai")
    if not key.isascii() or not key.isprintable():
        raise ServiceError(f"{KEY} has characters that no key has: check it")
    address = (os.environ.get(ADDRESS) or settings.endpoint).rstrip("/") + RECEIVE
    # By the id the service recognises an experiment that was sent before.
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": str(experiment_id)}
    # In ASCII, which holds half a surrogate pair of a model's too.
    body = json.dumps(payload).encode()
    answer = _post(address, headers, body, settings.timeout, policy)
    try:
        url = answer.json().get("experiment_url")
    except (ValueError, AttributeError):
        # It took the results: sending them again might make a second experiment.
        return "sent, but its answer is not a JSON object: check the address"
    return str(url) if url else "sent"


def _post(address: str, headers: Mapping[str, str], body: bytes, timeout: float, policy: RetryPolicy) -> httpx.Response:
    """Post JSON until orq.ai takes it, and return its answer.

    Raises:
        ServiceError: It did not take it, after some attempts where another could help.
        RequestRefusedError: It works and does not take this body.
    """

    def attempt(seconds_left: float) -> httpx.Response | Failure:
        try:
            answer = httpx.post(
                address,
                headers={**headers, "Content-Type": "application/json"},
                content=body,
                timeout=min(timeout, seconds_left),
            )
        except (httpx.UnsupportedProtocol, httpx.InvalidURL):
            return Failure("its address is not valid", f"check {ADDRESS}, such as https://host")
        except UnicodeError:
            return Failure("its address has unusable characters", f"check {ADDRESS}")
        except httpx.TransportError as error:
            return Failure(type(error).__name__, "check the network and the address", may_pass=True)
        if answer.status_code in (401, 403):
            return Failure(f"it answered {answer.status_code}", f"check {KEY}")
        if answer.status_code in REFUSED:
            raise RequestRefusedError(f"orq.ai does not take these results (it answered {answer.status_code})")
        if not answer.is_success:
            may_pass, after = status_may_pass(answer.status_code), retry_after_of(answer.headers)
            return Failure(f"it answered {answer.status_code}", "try again later", may_pass, after)
        return answer

    answer = policy.run(attempt, threading.Event())
    if isinstance(answer, Failure):
        raise ServiceError(f"orq.ai did not take the results ({answer.reason}): {answer.advice}")
    return answer
