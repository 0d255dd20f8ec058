"""What lies in an outbox: parcels, receipts, and what becomes of a parcel."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid5

from rag_eval.digests import data_sha256
from rag_eval.errors import ArtifactError, ConfigurationError, preview

NAMESPACE = UUID("6b0f2f54-4c1e-5d0a-9a53-0c2d1f6f7c11")
"""Where the ids of all parcels, and of what is made from them, come from."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something to be sent through a channel; ``attempts`` failed so far, the last one for ``reason``.

    Its file has two lines, so that a list of parcels need not read what is in them.
    """

    channel: str
    key: str
    put_at: str
    path: Path
    attempts: int = 0
    reason: str | None = None

    @property
    def id(self) -> UUID:
        """The same for the same channel and key."""
        return parcel_id(self.channel, self.key)

    @property
    def payload(self) -> dict[str, Any]:
        """What is in it, read from its file; raises ``ArtifactError`` when it is gone or cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.readline()
                return json_object(file.readline(), self.path)
        except OSError as error:
            raise ArtifactError(f"the parcel {str(self.path)!r} cannot be read ({error.strerror})") from None

    def uuid(self, *names: str) -> UUID:
        """An id for something that is made from this parcel: the same for the same names."""
        return uuid5(self.id, data_sha256(names))


@dataclass(frozen=True, slots=True)
class Receipt:
    """That a parcel was sent, when, and what the sender noted."""

    channel: str
    key: str
    sent_at: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a parcel: sent, or waiting for a reason, or in the hands of another process, or unreadable."""

    channel: str
    key: str
    state: Literal["sent", "waiting", "busy", "unreadable"]
    receipt: Receipt | None = None
    reason: str | None = None
    attempts: int = 0


Sender = Callable[[Parcel], Mapping[str, Any]]
"""Sends a whole parcel and gives back plain data for the receipt.

What it makes on the other side has ids from ``Parcel.uuid``, so that sending the rest of a half-sent parcel doubles
nothing. Raises ``ServiceError`` when the service cannot be used now, which goes for the other parcels of its channel
too; its kind ``RequestRefusedError``, or any other ``RagEvalError``, when it is this parcel that cannot be sent.
"""


def parcel_id(channel: str, key: str) -> UUID:
    """The id of the parcel with this channel and key."""
    return uuid5(NAMESPACE, data_sha256([channel, key]))


def packed(channel: str, key: str, put_at: str, payload: Mapping[str, Any]) -> bytes:
    """The file of a parcel; raises ``ConfigurationError`` when the payload is no plain data."""
    try:
        lines = [
            json.dumps(part, allow_nan=False)
            for part in ({"channel": channel, "key": key, "put_at": put_at}, dict(payload))
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the parcel {preview(key)} for {channel} is no plain data: {error}") from None
    return ("\n".join(lines) + "\n").encode()


def json_object(data: bytes, path: Path) -> dict[str, Any]:
    """The object that a file holds; raises ``ArtifactError`` when it holds something else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ArtifactError(f"{str(path)!r} is damaged: it holds no JSON object")
    return found


def timestamp() -> str:
    """The time now, to the microsecond, in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
