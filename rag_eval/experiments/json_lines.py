"""Values as lines of JSON, whatever a task returns, and texts without keys."""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

DEEPEST = 200
"""How many lists and objects within each other are written."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONG_NUMBER = re.compile(rb"\d{19}")
SHORTEST_SECRET = 8
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# A key that was given in code: after "Bearer", or with the beginning that a vendor gives its keys.
_KEY = re.compile(r"(?<=Bearer )[\w.~+/-]{8,}=*|\b(?:sk|pk|rk|ghp|lsv2|hf|xox[abp])[-_][\w-]{12,}", re.IGNORECASE)


def recordable(text: str) -> str:
    """Remove the keys that the environment holds, whatever looks like a key, and what UTF-8 cannot hold."""
    secrets = [(value, name) for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    for value, name in sorted(secrets, key=lambda pair: -len(pair[0])):  # one key may be the beginning of another
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, f"<{name}>")
    return _KEY.sub("<key>", text).encode("utf-8", "replace").decode()


def encode(value: object) -> bytes:
    """Return any value as one line of JSON: NaN becomes null, objects their fields, the rest its ``repr``.

    A value within itself becomes an ellipsis. An address in a ``repr`` is left out, so that the same value is the same
    text in every process.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Lone surrogates, integers beyond 64 bits and deep values, which the fast encoder does not take.
        return json.dumps(_strict(value), ensure_ascii=True).encode()


def decode(line: bytes) -> Any:
    """Return the value of a line of JSON; raises ``ValueError`` on anything else."""
    # Of an integer beyond 64 bits the fast decoder would make a float; escaped surrogates it does not take.
    if not _LONG_NUMBER.search(line):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(line)
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("lists or objects stand too deep in each other") from None


def scalar(value: object) -> object:
    """Return a scalar of numpy's as Python's own, anything else unchanged."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value


def _plain(value: object) -> object:
    try:
        if hasattr(value, "model_dump") and not isinstance(value, type):
            return value.model_dump(mode="json")
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, set | frozenset):
            return sorted(value, key=repr)
        found: object = scalar(value)
        return found if found is not value else _ADDRESS.sub("", repr(value))
    except Exception:  # noqa: BLE001  # code of the user's, for a value that is only to be shown
        return f"<{type(value).__name__}>"


def _strict(value: object, around: frozenset[int] = frozenset()) -> object:
    """Return the value in the types of the standard encoder, without NaN; ``around`` are the ids of what it is in."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if id(value) in around or len(around) == DEEPEST:
        return "…"
    around |= {id(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _strict(part, around) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(part, around) for part in value]
    return _strict(_plain(value), around)
