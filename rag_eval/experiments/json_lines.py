"""Write any value as JSON, and remove API keys from texts."""

import os
import re
from collections.abc import Mapping

from pydantic_core import PydanticSerializationError, to_json

DEPTH = 4
"""Down to this depth, a value that JSON cannot hold is replaced alone; below it, together with its container."""
SHORTEST_SECRET = 8
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
# A key given in code: after "Bearer", or with a vendor's prefix.
_KEY = re.compile(r"(?<=Bearer )[\w.~+/-]{8,}=*|\b(?:sk|pk|rk|ghp|lsv2|hf|xox[abp])[-_][\w-]{12,}", re.IGNORECASE)


def redacted(text: str) -> str:
    """Replace secrets of the environment, texts that look like API keys, and characters that UTF-8 cannot encode."""
    secrets = [(value, name) for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    for value, name in sorted(secrets, key=lambda pair: -len(pair[0])):  # one secret may be the prefix of another
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, f"<{name}>")
    return valid_text(_KEY.sub("<key>", text))


def valid_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def encode(value: object, depth: int = DEPTH) -> bytes:
    """Return any value as one line of JSON.

    NaN becomes null. An object becomes its fields, or else its ``repr`` without addresses, so that equal values give
    the same text in every process. Values that JSON cannot hold, such as a list that contains itself, become their
    ``repr``.
    """
    try:
        return to_json(value, inf_nan_mode="null", bytes_mode="base64", fallback=_plain)
    except PydanticSerializationError:
        if depth and isinstance(value, Mapping):
            parts = (encode(str(key)) + b":" + encode(part, depth - 1) for key, part in value.items())
            return b"{" + b",".join(parts) + b"}"
        if depth and isinstance(value, list | tuple):
            return b"[" + b",".join(encode(part, depth - 1) for part in value) + b"]"
        return to_json(valid_text(value if isinstance(value, str) else _described(value)))


def json_text(value: object) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def _plain(value: object) -> object:
    return value.tolist() if hasattr(value, "tolist") else _described(value)  # a numpy array


def _described(value: object) -> str:
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception:  # noqa: BLE001  # the user's own __repr__
        return f"<{type(value).__name__}>"
