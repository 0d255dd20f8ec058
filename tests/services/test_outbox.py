"""The outbox: put once, sent once, and nothing lost."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.errors import ArtifactError, ConfigurationError, GroundTruthError, RequestRefusedError, ServiceError
from rag_eval.services.outbox import Message, Outbox
from rag_eval.storage.locks import try_lock

UGLY = "q?\0\u2028 <|endoftext|> 👩🏽‍🚀 \x1b[31m [red]é\r\n"


class Service:
    """Keeps what it is sent; raises what it was told to raise for a key."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.asked: list[str] = []
        self.raises: dict[str, Exception] = {}

    def send(self, message: Message) -> Mapping[str, Any]:
        self.asked.append(message.key)
        if message.key in self.raises:
            raise self.raises[message.key]
        self.got.append((message.key, message.payload))
        return {"url": f"https://service/{message.id}"}


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox")


def message_files(outbox: Outbox) -> list[Path]:
    return sorted((outbox.folder / "parcels").glob("*"))


def test_a_message_waits_and_a_receipt_takes_its_place(outbox: Outbox, service: Service) -> None:
    message = outbox.put("a", UGLY, {"text": UGLY, "n": 1.5})
    assert (message.payload, outbox.receipt("a", UGLY)) == ({"text": UGLY, "n": 1.5}, None)
    assert outbox.waiting() == outbox.waiting("a") == [message]
    assert outbox.waiting("b") == []
    (delivery,) = outbox.deliver({"a": service.send})
    receipt = outbox.receipt("a", UGLY)
    assert (delivery.state, delivery.key, delivery.receipt) == ("sent", UGLY, receipt)
    assert receipt is not None
    assert receipt.details == {"url": f"https://service/{message.id}"}
    assert service.got == [(UGLY, {"text": UGLY, "n": 1.5})]
    assert outbox.waiting() == message_files(outbox) == list((outbox.folder / "locks").iterdir()) == []
    assert outbox.deliver({"a": service.send}) == []


def test_what_waits_or_was_sent_is_not_put_again(outbox: Outbox, service: Service) -> None:
    first = outbox.put("a", "k", {"n": 1})
    assert outbox.put("a", "k", {"n": 2}) == first
    assert first.payload == {"n": 1}
    outbox.put("b", "k", {"n": 3})
    outbox.deliver({"a": service.send})
    outbox.put("a", "k", {"n": 4})
    assert [message.channel for message in outbox.waiting()] == ["b"]
    outbox.deliver({"a": service.send, "b": service.send})
    assert service.got == [("k", {"n": 1}), ("k", {"n": 3})]
    for number in (5, 6):
        outbox.put("a", "k", {"n": number}, again=True)
    outbox.deliver({"a": service.send})
    assert service.got[2:] == [("k", {"n": 5})]


def test_ids_follow_from_channel_and_key(outbox: Outbox) -> None:
    one, other = outbox.put("a", "bc", {}), outbox.put("ab", "c", {})
    assert one.id == Outbox(outbox.folder).put("a", "bc", {}).id != other.id
    assert one.uuid("run", "q") == one.uuid("run", "q")
    assert len({one.uuid("run", "q"), one.uuid("runq"), one.uuid("run", "q", ""), other.uuid("run", "q")}) == 4
    assert one.uuid("\ud800")


def test_a_failure_waits_with_its_reason(outbox: Outbox, service: Service) -> None:
    outbox.put("a", "k", {})
    service.raises["k"] = GroundTruthError("no such dataset")
    for _ in range(2):
        (delivery,) = outbox.deliver({"a": service.send})
        assert (delivery.state, delivery.reason) == ("waiting", "no such dataset")
    (waiting,) = outbox.waiting()
    assert waiting.reason == "no such dataset"
    service.raises.clear()
    (delivery,) = outbox.deliver({"a": service.send})
    assert delivery.state == "sent"
    assert list((outbox.folder / "failures").iterdir()) == []


@pytest.mark.parametrize("error", [GroundTruthError("this one"), RequestRefusedError("this one")])
def test_a_message_that_cannot_be_sent_does_not_hold_up_the_next(
    outbox: Outbox, service: Service, error: Exception
) -> None:
    for key in ("first", "second"):
        outbox.put("a", key, {})
    service.raises["first"] = error
    assert [one.state for one in outbox.deliver({"a": service.send})] == ["waiting", "sent"]


def test_a_service_that_is_down_is_asked_once(outbox: Outbox, service: Service) -> None:
    for channel, key in (("a", "first"), ("a", "second"), ("b", "third")):
        outbox.put(channel, key, {})
    service.raises["first"] = ServiceError("down")
    deliveries = outbox.deliver({"a": service.send, "b": service.send})
    assert [(one.key, one.state, one.reason) for one in deliveries] == [
        ("first", "waiting", "down"),
        ("second", "waiting", "down"),
        ("third", "sent", None),
    ]
    assert service.asked == ["first", "third"]
    assert [(message.key, message.reason) for message in outbox.waiting()] == [("first", "down"), ("second", "down")]


def test_a_channel_without_a_sender_waits(outbox: Outbox) -> None:
    outbox.put("a", "k", {})
    (delivery,) = outbox.deliver({})
    assert (delivery.state, delivery.reason) == ("waiting", "nothing here sends to this channel")


def test_what_is_no_error_of_ours_is_raised_and_the_message_waits(outbox: Outbox, service: Service) -> None:
    outbox.put("a", "k", {})
    service.raises["k"] = PermissionError("a fault of the sender")
    with pytest.raises(PermissionError):
        outbox.deliver({"a": service.send})
    service.raises.clear()
    assert [one.state for one in outbox.deliver({"a": service.send})] == ["sent"]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"no JSON\n",
        b"[]\n{}\n",
        b'{"channel": "a"}\n{}\n',
        b'{"k": 1}\n{}\n',
        b'{"channel": "a", "key": "broken", "put_at": 1}\n{}\n',
        b'{"channel": "a", "key": "broken", "put_at": "now", "path": "/etc/passwd"}\n{}\n',
        b'{"channel": "a", "key": {"__class__": "os.system"}, "put_at": "now"}\n{}\n',
    ],
)
def test_an_unreadable_message_is_set_aside_and_said(outbox: Outbox, service: Service, damage: bytes) -> None:
    broken = outbox.put("a", "broken", {})
    outbox.put("a", "whole", {})
    broken.path.write_bytes(damage)
    assert [message.key for message in outbox.waiting()] == ["whole"]
    unreadable, sent = outbox.deliver({"a": service.send})
    assert (unreadable.state, unreadable.key, sent.state) == ("unreadable", str(broken.id), "sent")
    aside = outbox.folder / "unreadable" / broken.path.name
    assert str(aside) in str(unreadable.reason)
    assert aside.read_bytes() == damage
    assert outbox.deliver({"a": service.send}) == []
    # It can be put again.
    outbox.put("a", "broken", {"n": 1})
    outbox.deliver({"a": service.send})
    assert service.got == [("whole", {}), ("broken", {"n": 1})]


def test_a_cut_payload_and_a_message_under_another_name_are_set_aside(outbox: Outbox, service: Service) -> None:
    cut, moved = outbox.put("a", "cut", {"n": [1, 2]}), outbox.put("a", "moved", {})
    cut.path.write_bytes(cut.path.read_bytes()[:-5])
    moved.path.rename(moved.path.with_name("00000000-0000-5000-8000-000000000000.json"))
    assert [one.state for one in outbox.deliver({"a": service.send})] == ["unreadable", "unreadable"]
    assert service.asked == []


def test_a_kill_between_receipt_and_removal_sends_nothing_twice(outbox: Outbox, service: Service) -> None:
    message = outbox.put("a", "k", {})
    kept = message.path.read_bytes()
    outbox.deliver({"a": service.send})
    message.path.write_bytes(kept)
    assert outbox.waiting() == []
    assert outbox.deliver({"a": service.send}) == []
    assert (len(service.got), message_files(outbox)) == (1, [])


def test_what_another_sends_is_left_to_it(outbox: Outbox, service: Service) -> None:
    message = outbox.put("a", "k", {})
    with try_lock(outbox.folder / "locks" / str(message.id)) as mine:
        assert mine
        (delivery,) = outbox.deliver({"a": service.send})
        assert (delivery.state, delivery.reason) == ("busy", "another process is sending it")
        assert not outbox.withdraw("a", "k")
    assert [one.state for one in outbox.deliver({"a": service.send})] == ["sent"]


def test_a_message_can_be_taken_back_while_it_waits(outbox: Outbox, service: Service) -> None:
    outbox.put("a", "k", {})
    service.raises["k"] = GroundTruthError("no such dataset")
    outbox.deliver({"a": service.send})
    assert outbox.withdraw("a", "k")
    assert not outbox.withdraw("a", "k")
    service.raises.clear()
    assert outbox.put("a", "k", {"n": 2}).reason is None
    outbox.deliver({"a": service.send})
    assert not outbox.withdraw("a", "k")
    assert service.got == [("k", {"n": 2})]


@pytest.mark.parametrize("payload", [{"n": float("nan")}, {"n": {1, 2}}, {(1, 2): 3}])
def test_only_plain_data_is_put(outbox: Outbox, payload: Any) -> None:
    with pytest.raises(ConfigurationError, match="'k' for a is no plain data"):
        outbox.put("a", "k", payload)
    assert outbox.waiting() == []


def test_a_receipt_that_is_none_and_a_folder_that_is_none_are_named(outbox: Outbox, service: Service) -> None:
    outbox.put("a", "k", {})
    outbox.deliver({"a": service.send})
    (path,) = (outbox.folder / "receipts").iterdir()
    receipt = json.loads(path.read_text())
    for planted in ({"other": 1}, receipt | {"other": 1}, receipt | {"details": []}, receipt | {"sent_at": 1}):
        path.write_text(json.dumps(planted))
        with pytest.raises(ArtifactError, match=r"is no receipt: remove it to have the message sent again"):
            outbox.receipt("a", "k")
    blocked = Outbox(path / "below-a-file")
    with pytest.raises(ArtifactError):
        blocked.put("a", "k", {})


Step = tuple[str, str]
STEPS = st.lists(st.tuples(st.sampled_from(["put", "ok", "down", "refused", "again"]), st.sampled_from("xyz")))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(STEPS)
def test_whatever_happens_each_message_is_sent_once_or_waits(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("outbox")
    service, put = Service(), set()
    for action, key in steps:
        outbox = Outbox(folder)  # nothing lives in memory
        if action in ("put", "again"):
            outbox.put("a", key, {"key": key})
            put.add(key)
            continue
        down = {"down": ServiceError("down"), "refused": RequestRefusedError("no")}
        service.raises = {key: down[action]} if action in down else {}
        outbox.deliver({"a": service.send})
    sent = [key for key, _ in service.got]
    waiting = [message.key for message in Outbox(folder).waiting()]
    assert sorted([*sent, *waiting]) == sorted(put)
