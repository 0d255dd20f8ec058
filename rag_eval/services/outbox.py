"""What is to be sent to a service, kept on disk until the service has it.

A message is put once and sent once. It waits in a file of its own; once it is sent a receipt takes its place. A process
that is killed leaves the one or the other, and never a part. No key of a service has a place in it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar
from uuid import UUID, uuid5

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rag_eval.errors import ArtifactError, ConfigurationError, RagEvalError, RequestRefusedError, ServiceError, preview
from rag_eval.storage.files import data_sha256, write_atomically
from rag_eval.storage.locks import try_lock

T = TypeVar("T")
WAITING = "parcels"  # the folder of a first version's outbox, in which something may still wait
NAMESPACE = UUID("6b0f2f54-4c1e-5d0a-9a53-0c2d1f6f7c11")
"""Where the ids of all messages, and of what is made from them, come from."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something to be sent through a channel; the last attempt failed for ``reason``.

    Its file has two lines, so that a list of messages need not read what is in them.
    """

    channel: str
    key: str
    put_at: str
    path: Path
    reason: str | None = None

    @property
    def id(self) -> UUID:
        """The same for the same channel and key."""
        return message_id(self.channel, self.key)

    @property
    def payload(self) -> dict[str, Any]:
        """What is in it, read from its file; raises ``ArtifactError`` when it is gone or cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.readline()
                found = json.loads(file.readline())
        except OSError as error:
            raise ArtifactError(f"the message {str(self.path)!r} cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ArtifactError(f"{str(self.path)!r} is damaged: it holds no JSON object")
        return found

    def uuid(self, *names: str) -> UUID:
        """Return an id for something that is made from this message: the same for the same names."""
        return uuid5(self.id, data_sha256(names))


@dataclass(frozen=True, slots=True)
class Receipt:
    """That a message was sent, when, and what the sender noted."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    channel: str
    key: str
    sent_at: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a message: sent, or waiting for a reason, or in the hands of another process, or unreadable."""

    channel: str
    key: str
    state: Literal["sent", "waiting", "busy", "unreadable"]
    receipt: Receipt | None = None
    reason: str | None = None


Sender = Callable[[Message], Mapping[str, Any]]
"""Sends a whole message and gives back plain data for the receipt.

What it makes on the other side has ids from ``Message.uuid``, so that sending the rest of a half-sent message never
creates duplicates. Raises ``ServiceError`` when the service cannot be used now, which goes for the other messages of
its channel too; its kind ``RequestRefusedError``, or any other ``RagEvalError``, when it is this message that cannot
be sent.
"""


def message_id(channel: str, key: str) -> UUID:
    """Return the id of the message with this channel and key."""
    return uuid5(NAMESPACE, data_sha256([channel, key]))


class Outbox:
    """The messages of one folder: ``parcels``, ``receipts``, ``failures`` (of the last attempt), ``unreadable``.

    Several processes may use it at once. Every method raises ``ArtifactError`` when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, channel: str, key: str, payload: Mapping[str, Any], *, again: bool = False) -> Message:
        """Keep a message until it is sent, and give it back.

        One that waits under this channel and key is not put again, nor one that was sent, unless ``again``. Where
        content may change under one name, the key holds its digest. Raises ``ConfigurationError`` when the payload is
        no plain data.
        """
        message = Message(channel, key, _now(), self._place(WAITING, message_id(channel, key)))
        if self.receipt(channel, key) is not None:
            if not again:
                return message
            self._place("receipts", message.id).unlink(missing_ok=True)
        with suppress(ArtifactError):
            if (waiting := self._read(message.path)) is not None:
                return waiting
        header = {"channel": channel, "key": key, "put_at": message.put_at}
        try:
            lines = [json.dumps(part, allow_nan=False) + "\n" for part in (header, dict(payload))]
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(f"the message {preview(key)} for {channel} is no plain data: {error}") from None
        write_atomically(message.path, "".join(lines).encode())
        return message

    def waiting(self, channel: str | None = None) -> list[Message]:
        """The messages that were not sent yet, oldest first; those that cannot be read are left to ``deliver``."""
        found = [
            message
            for _, message in self._messages()
            if message and channel in (None, message.channel) and not self._place("receipts", message.id).exists()
        ]
        return sorted(found, key=lambda message: (message.put_at, message.key))

    def receipt(self, channel: str, key: str) -> Receipt | None:
        """The receipt of a message, None while it was not sent; raises ``ArtifactError`` when it cannot be read."""
        place = self._place("receipts", message_id(channel, key))
        return _first_line(place, _RECEIPT, "is no receipt: remove it to have the message sent again")

    def deliver(self, senders: Mapping[str, Sender]) -> list[Delivery]:
        """Send what waits, and say what became of each message.

        One process at a time sends a message; one that another is sending is left to it. A message whose channel has no
        sender waits on, and so do all of a channel after a ``ServiceError`` that is no ``RequestRefusedError``.
        One that cannot be read is set aside. What a sender raises beside ``RagEvalError`` is raised, and its message
        waits.
        """
        deliveries = []
        for path, message in self._messages():
            if message is None:
                deliveries.append(self._set_aside(path))
            elif self._place("receipts", message.id).exists():  # a kill may leave both, and the receipt counts
                path.unlink(missing_ok=True)
        unusable: dict[str, str] = {}
        for message in self.waiting():
            sender = senders.get(message.channel)
            if sender is None:
                deliveries.append(_waits(message, message.reason or "nothing here sends to this channel"))
            elif message.channel in unusable:
                deliveries.append(self._failed(message, unusable[message.channel]))
            else:
                deliveries.append(self._deliver(message, sender, unusable))
        return deliveries

    def withdraw(self, channel: str, key: str) -> bool:
        """Take back a message that waits; False when there is none, or another process is sending it."""
        message = message_id(channel, key)
        with try_lock(self._place("locks", message, "")) as mine:
            path = self._place(WAITING, message)
            if not mine or not path.exists():
                return False
            path.unlink()
            self._place("failures", message).unlink(missing_ok=True)
            return True

    def _deliver(self, message: Message, sender: Sender, unusable: dict[str, str]) -> Delivery:
        lock = self._place("locks", message.id, "")
        with try_lock(lock) as mine:
            if not mine:
                return Delivery(message.channel, message.key, "busy", reason="another process is sending it")
            # Another process may have sent or withdrawn it between our look and our lock.
            receipt = self.receipt(message.channel, message.key)
            if receipt is None and not message.path.exists():
                return _waits(message, "it was taken back meanwhile")
            if receipt is None:
                try:
                    message.payload  # noqa: B018  # one that cannot be read is not for a sender
                except ArtifactError:
                    return self._set_aside(message.path)
                try:
                    details = dict(sender(message))
                except RagEvalError as error:
                    if isinstance(error, ServiceError) and not isinstance(error, RequestRefusedError):
                        unusable[message.channel] = str(error)
                    return self._failed(message, str(error))
                receipt = Receipt(message.channel, message.key, _now(), details)
                # First the receipt, then the rest: a kill in between leaves both, and the receipt counts.
                write_atomically(self._place("receipts", message.id), json.dumps(asdict(receipt)).encode())
            message.path.unlink(missing_ok=True)
            self._place("failures", message.id).unlink(missing_ok=True)
            with suppress(PermissionError):  # Windows does not remove an open file
                lock.unlink(missing_ok=True)  # whoever waits for it meets the receipt
            return Delivery(message.channel, message.key, "sent", receipt)

    def _failed(self, message: Message, reason: str) -> Delivery:
        write_atomically(self._place("failures", message.id), reason.encode("utf-8", "replace"))
        return _waits(message, reason)

    def _set_aside(self, path: Path) -> Delivery:
        aside = self.folder / "unreadable" / path.name
        try:
            aside.parent.mkdir(exist_ok=True)
            path.replace(aside)
        except OSError as error:
            raise ArtifactError(f"{str(path)!r} cannot be set aside ({error.strerror}): check the place") from None
        reason = f"it cannot be read and was set aside as {str(aside)!r}: publish again what it was"
        return Delivery("unknown", path.stem, "unreadable", reason=reason)

    def _messages(self) -> Iterator[tuple[Path, Message | None]]:
        """The files of messages, each with what it holds; None for one that is no message."""
        for path in sorted((self.folder / WAITING).glob("[!.]*.json")):
            try:
                message = self._read(path)
            except ArtifactError:
                yield path, None
            else:
                if message is not None:  # sent or withdrawn meanwhile
                    yield path, message

    def _read(self, path: Path) -> Message | None:
        """Return the message of a file, None when the file is gone; raises ``ArtifactError`` when it is no message."""
        fault = "is no message: publish again what it was"
        kept = _first_line(path, _HEADER, fault)
        if kept is None:
            return None
        message = Message(kept.get("channel", ""), kept.get("key", ""), kept.get("put_at", ""), path)
        if path.stem != str(message.id):
            raise ArtifactError(f"{str(path)!r} {fault}")
        with suppress(OSError, UnicodeDecodeError):  # a note on it can be lost
            return replace(message, reason=self._place("failures", message.id).read_text(encoding="utf-8"))
        return message

    def _place(self, kind: str, message: UUID, suffix: str = ".json") -> Path:
        return self.folder / kind / f"{message}{suffix}"


def outbox_of(workspace: Path) -> Outbox:
    """The outbox of a workspace: a folder of this machine, because what it sends is sent once, by one machine."""
    return Outbox(workspace / "outbox")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _waits(message: Message, reason: str) -> Delivery:
    return Delivery(message.channel, message.key, "waiting", reason=reason)


_HEADER = TypeAdapter(dict[Literal["channel", "key", "put_at"], str], config=ConfigDict(strict=True))
_RECEIPT = TypeAdapter(Receipt)


def _first_line(path: Path, kind: TypeAdapter[T], fault: str) -> T | None:
    """Return what the first line of a file holds, None when there is none; raises ``ArtifactError`` otherwise."""
    try:
        with path.open("rb") as file:
            return kind.validate_json(file.readline())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ArtifactError(f"{str(path)!r} cannot be read ({error.strerror}): check its rights") from None
    except ValidationError:
        raise ArtifactError(f"{str(path)!r} {fault}") from None
