"""Sending the results of an experiment to orq.ai, and the project's settings for it.

Its SDK has no way to create experiments, so they go to the address that the vendor's own runner posts to.
"""

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import Field, ValidationError

from rag_eval.errors import ConfigurationError, ServiceError
from rag_eval.parts.settings import Address, Settings
from rag_eval.retry import PATIENT, RetryPolicy
from rag_eval.services.outbox import Message
from rag_eval.services.posting import Receiver, post

ORQ_CHANNEL = "orq"
KEY = "ORQ_API_KEY"
ADDRESS = "ORQ_BASE_URL"
RECEIVE = "/v2/spreadsheets/evaluations/receive"

PROJECT_FILES = {"rag-eval.toml": ("experiment",), "pyproject.toml": ("tool", "rag-eval", "experiment")}
"""The files that may hold the settings of experiments, and the keys that lead to them."""

S = TypeVar("S", bound=Settings)


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
        key = os.environ.get(KEY, "").strip()
        if not key:
            raise ServiceError(f"{KEY} is not set: set it to send results to orq.ai")
        if not key.isascii() or not key.isprintable():
            raise ServiceError(f"{KEY} has characters that no key has: check it")
        address = (os.environ.get(ADDRESS) or endpoint).rstrip("/") + RECEIVE
        # The message's id lets the service know a second attempt whose first answer was lost.
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Idempotency-Key": str(message.id),
        }
        # In ASCII, which holds half a surrogate pair of a model's too.
        body = json.dumps(message.payload).encode()
        return _read(post(Receiver("orq.ai", ADDRESS, KEY), address, headers, body, timeout, policy))

    return send


def _read(answer: httpx.Response) -> Mapping[str, object]:
    # It took the results: whatever it says about them, sending them again would make a second experiment.
    try:
        told = answer.json()
    except ValueError:
        return {"url": None, "rows": None, "note": "its answer is not JSON: check the address"}
    if not isinstance(told, dict):
        return {"url": None, "rows": None, "note": "its answer is not an object: check the address"}
    return {"url": told.get("experiment_url"), "rows": told.get("rows_created")}
