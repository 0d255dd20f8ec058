"""What is to be sent to a service, kept on disk until the service has it.

A parcel is put once and sent once. It waits in a file of its own; once it is sent a receipt takes its place. A process
that is killed leaves the one or the other, and never a part. No key of a service has a place in it.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid5

from rag_eval.disk.files import data_sha256, write_atomically
from rag_eval.disk.locks import try_lock
from rag_eval.errors import ArtifactError, ConfigurationError, RagEvalError, RequestRefusedError, ServiceError, preview

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


class Outbox:
    """The parcels of one folder: ``parcels``, ``receipts``, ``failures`` (of the last attempt), ``unreadable``.

    Several processes may use it at once. Every method raises ``ArtifactError`` when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, channel: str, key: str, payload: Mapping[str, Any], *, again: bool = False) -> Parcel:
        """Keep a parcel until it is sent, and give it back.

        One that waits under this channel and key is not put again, nor one that was sent, unless ``again``. Where
        content may change under one name, the key holds its digest. Raises ``ConfigurationError`` when the payload is
        no plain data.
        """
        path = self._place("parcels", parcel_id(channel, key))
        parcel = Parcel(channel, key, timestamp(), path)
        if self.receipt(channel, key) is not None:
            if not again:
                return parcel
            self._place("receipts", parcel.id).unlink(missing_ok=True)
        with suppress(ArtifactError):
            return self._read(path) or self._put(parcel, payload)
        return self._put(parcel, payload)

    def waiting(self, channel: str | None = None) -> list[Parcel]:
        """The parcels that were not sent yet, oldest first; those that cannot be read are left to ``deliver``."""
        found = []
        for path in self._parcels():
            with suppress(ArtifactError):
                parcel = self._read(path)
                if parcel and channel in (None, parcel.channel) and not self._place("receipts", parcel.id).exists():
                    found.append(parcel)
        return sorted(found, key=lambda parcel: (parcel.put_at, parcel.key))

    def receipt(self, channel: str, key: str) -> Receipt | None:
        """The receipt of a parcel, None while it was not sent; raises ``ArtifactError`` when it cannot be read."""
        path = self._place("receipts", parcel_id(channel, key))
        kept = _read(path)
        if kept is None:
            return None
        try:
            return Receipt(**kept)
        except TypeError:
            raise ArtifactError(f"{str(path)!r} is no receipt: remove it to have the parcel sent again") from None

    def deliver(self, senders: Mapping[str, Sender]) -> list[Delivery]:
        """Send what waits, and say what became of each parcel.

        One process at a time sends a parcel; one that another is sending is left to it. A parcel whose channel has no
        sender waits on, and so do all of a channel after a ``ServiceError`` that is no ``RequestRefusedError``.
        One that cannot be read is set aside. What a sender raises beside ``RagEvalError`` is raised, and its parcel
        waits.
        """
        deliveries = self._tidied()
        unusable: dict[str, str] = {}
        for parcel in self.waiting():
            sender = senders.get(parcel.channel)
            if sender is None:
                deliveries.append(_waits(parcel, parcel.reason or "nothing here sends to this channel"))
            elif parcel.channel in unusable:
                deliveries.append(self._failed(parcel, unusable[parcel.channel], parcel.attempts))
            else:
                deliveries.append(self._deliver(parcel, sender, unusable))
        return deliveries

    def withdraw(self, channel: str, key: str) -> bool:
        """Take back a parcel that waits; False when there is none, or another process is sending it."""
        parcel = parcel_id(channel, key)
        with try_lock(self._place("locks", parcel, "")) as mine:
            path = self._place("parcels", parcel)
            if not mine or not path.exists():
                return False
            path.unlink()
            self._place("failures", parcel).unlink(missing_ok=True)
            return True

    def _put(self, parcel: Parcel, payload: Mapping[str, Any]) -> Parcel:
        write_atomically(parcel.path, packed(parcel.channel, parcel.key, parcel.put_at, payload))
        return parcel

    def _deliver(self, parcel: Parcel, sender: Sender, unusable: dict[str, str]) -> Delivery:
        lock = self._place("locks", parcel.id, "")
        with try_lock(lock) as mine:
            if not mine:
                return Delivery(parcel.channel, parcel.key, "busy", reason="another process is sending it")
            # Another process may have sent or withdrawn it between our look and our lock.
            receipt = self.receipt(parcel.channel, parcel.key)
            if receipt is None and not parcel.path.exists():
                return _waits(parcel, "it was taken back meanwhile")
            if receipt is None:
                try:
                    parcel.payload  # noqa: B018  # one that cannot be read is not for a sender
                except ArtifactError:
                    return self._set_aside(parcel.path)
                try:
                    details = dict(sender(parcel))
                except RagEvalError as error:
                    if isinstance(error, ServiceError) and not isinstance(error, RequestRefusedError):
                        unusable[parcel.channel] = str(error)
                    return self._failed(parcel, str(error), parcel.attempts + 1)
                receipt = Receipt(parcel.channel, parcel.key, timestamp(), details)
                # First the receipt, then the rest: a kill in between leaves both, and the receipt counts.
                write_atomically(self._place("receipts", parcel.id), json.dumps(asdict(receipt)).encode())
            parcel.path.unlink(missing_ok=True)
            self._place("failures", parcel.id).unlink(missing_ok=True)
            with suppress(PermissionError):  # Windows does not remove an open file
                lock.unlink(missing_ok=True)  # whoever waits for it meets the receipt
            return Delivery(parcel.channel, parcel.key, "sent", receipt, attempts=parcel.attempts + 1)

    def _failed(self, parcel: Parcel, reason: str, attempts: int) -> Delivery:
        note = {"attempts": attempts, "reason": reason, "at": timestamp()}
        write_atomically(self._place("failures", parcel.id), json.dumps(note).encode())
        return Delivery(parcel.channel, parcel.key, "waiting", reason=reason, attempts=attempts)

    def _tidied(self) -> list[Delivery]:
        """Remove parcels that have a receipt, which a kill may leave, and set those aside that are none."""
        found = []
        for path in self._parcels():
            try:
                parcel = self._read(path)
            except ArtifactError:
                found.append(self._set_aside(path))
                continue
            if parcel and self._place("receipts", parcel.id).exists():
                path.unlink(missing_ok=True)
        return found

    def _set_aside(self, path: Path) -> Delivery:
        aside = self.folder / "unreadable" / path.name
        try:
            aside.parent.mkdir(exist_ok=True)
            path.replace(aside)
        except OSError as error:
            raise ArtifactError(f"{str(path)!r} cannot be set aside ({error.strerror}): check the place") from None
        reason = f"it cannot be read and was set aside as {str(aside)!r}: publish again what it was"
        return Delivery("unknown", path.stem, "unreadable", reason=reason)

    def _read(self, path: Path) -> Parcel | None:
        """The parcel of a file, None when the file is gone; raises ``ArtifactError`` when it is no parcel."""
        kept = _read(path, first_line=True)
        if kept is None:
            return None
        try:
            parcel = Parcel(**kept, path=path)
            whole = path.stem == str(parcel.id)
        except TypeError:
            whole = False
        if not whole:
            raise ArtifactError(f"{str(path)!r} is no parcel: publish again what it was")
        with suppress(ArtifactError):
            failure = _read(self._place("failures", parcel.id)) or {}
            return Parcel(**kept, path=path, attempts=failure.get("attempts", 0), reason=failure.get("reason"))
        return parcel

    def _parcels(self) -> list[Path]:
        return sorted((self.folder / "parcels").glob("[!.]*.json"))

    def _place(self, kind: str, parcel: UUID, suffix: str = ".json") -> Path:
        return self.folder / kind / f"{parcel}{suffix}"


def outbox_of(workspace: Path) -> Outbox:
    """The outbox of a workspace: a folder of this machine, because what it sends is sent once, by one machine."""
    return Outbox(workspace / "outbox")


def _waits(parcel: Parcel, reason: str) -> Delivery:
    return Delivery(parcel.channel, parcel.key, "waiting", reason=reason, attempts=parcel.attempts)


def _read(path: Path, *, first_line: bool = False) -> dict[str, Any] | None:
    """The object in a file, None when there is none; raises ``ArtifactError`` when it holds something else."""
    try:
        with path.open("rb") as file:
            return json_object(file.readline() if first_line else file.read(), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error.strerror}): check its rights") from None
