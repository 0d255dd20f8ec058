"""Send experiments to orq.ai.

Its SDK has no way to create experiments, so they go to the address that the vendor's own runner posts to.
"""

import json
import os
from collections.abc import Mapping
from uuid import UUID

from pydantic import Field

from rag_eval.errors import ServiceError
from rag_eval.parts.part_settings import Address, Settings
from rag_eval.retry import PATIENT, RetryPolicy
from rag_eval.services.http_upload import Receiver

KEY, ADDRESS = "ORQ_API_KEY", "ORQ_BASE_URL"
RECEIVE = "/v2/spreadsheets/evaluations/receive"
ORQ = Receiver("orq.ai", ADDRESS, KEY)


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
    answer = ORQ.post(address, headers, body, timeout=settings.timeout, policy=policy)
    try:
        url = answer.json().get("experiment_url")
    except (ValueError, AttributeError):
        # It took the results: sending them again might make a second experiment.
        return "sent, but its answer is not a JSON object: check the address"
    return str(url) if url else "sent"
