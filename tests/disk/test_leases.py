"""One holder of a lease at a time among machines, and a successor to one that was killed."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.disk.locks import LEASE_SECONDS, SHARED, LeaseFolder, LeasePlace, is_on_network, is_shared, leased
from rag_eval.disk.storage import Bucket, BucketLocation
from rag_eval.errors import ConfigurationError, ServiceError
from rag_eval.pipeline.workspace import Workspace
from tests.doubles.loopback import refused_url
from tests.doubles.s3_server import S3Double, s3_double

KEYS, MACHINES = 10, 4

# A machine: it does each piece of work that nobody has done, and notes that it began and ended.
WORK = """
import sys, time
from pathlib import Path
from rag_eval.benchmark.records import alone
from rag_eval.pipeline.workspace import Workspace
address, log, keys = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
workspace = Workspace.at(address)
def note(line):
    with log.open("a") as file:
        file.write(line + "\\n")
print("ready", flush=True)
sys.stdin.readline()
for number in range(keys):
    with alone(workspace, f"work-{number}"):
        done = workspace.kept(workspace.root / "records" / f"{number}.json")
        if not done.exists():
            note(f"begin {number}")
            time.sleep(0.02)
            note(f"end {number}")
            workspace.keep(done, b"{}")
"""

HOLD = """
import sys
from rag_eval.benchmark.records import alone
from rag_eval.pipeline.workspace import Workspace
with alone(Workspace.at(sys.argv[1]), "work"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Double]:
    with s3_double(tmp_path_factory.mktemp("machines")) as double:
        yield double


@pytest.fixture(params=["folder", "bucket"])
def address(
    request: pytest.FixtureRequest, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Where machines meet; each has a copy of the bucket, or no locks in the folder."""
    monkeypatch.setenv(LEASE_SECONDS, "1")
    s3.folder = tmp_path
    s3.on_machine("one")
    if request.param == "bucket":
        yield f"s3://bench/{tmp_path.name}"
    else:
        monkeypatch.setenv(SHARED, "1")
        yield str(tmp_path / "shared")


def machine(script: str, *arguments: str, cache: Path) -> "subprocess.Popen[str]":
    """A process with a copy of its own that says when it is ready, and waits for a line."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=pipe, stdout=pipe, text=True, env=environment
    )
    assert started.stdout is not None
    assert started.stdout.readline()
    return started


def place_of(address: str) -> LeasePlace:
    return Bucket(BucketLocation.parse(address)) if "://" in address else LeaseFolder(Path(address))


def test_a_lease_is_written_only_by_who_has_seen_its_last_state(address: str) -> None:
    place = place_of(address)
    assert place.read("leases/a") is None
    first = place.create("leases/a", b"one")
    assert first is not None
    assert place.create("leases/a", b"two") is None
    assert place.read("leases/a") == (first, b"one")
    second = place.replace("leases/a", b"two", first)
    assert second not in (None, first)
    assert place.replace("leases/a", b"three", first) is None
    place.release("leases/a", first)
    assert place.read("leases/a") == (second, b"two")
    assert second is not None
    place.release("leases/a", second)
    assert place.replace("leases/a", b"three", second) is None
    assert place.replace("leases/never", b"three", second) is None
    with leased(place, "leases/a"):
        found = place.read("leases/a")
        assert found is not None
        assert json.loads(found[1])["holder"]


def test_machines_do_each_piece_of_work_once(address: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    many = [machine(WORK, address, str(log), str(KEYS), cache=tmp_path / f"{n}") for n in range(MACHINES)]
    for one in many:
        one.communicate("go\n", timeout=100)
    assert [one.returncode for one in many] == [0] * MACHINES
    lines = log.read_text().splitlines()
    assert sorted(lines) == sorted(f"{what} {number}" for number in range(KEYS) for what in ("begin", "end"))
    # Nobody began what another had under way.
    assert all(lines[lines.index(f"begin {n}") :].count(f"end {n}") == 1 for n in range(KEYS))
    if "://" not in address:
        assert not [path for path in Path(address, "leases").rglob("*") if path.is_file()]


def test_a_killed_holder_is_succeeded_after_its_term_and_a_living_one_never(address: str, tmp_path: Path) -> None:
    holder = machine(HOLD, address, cache=tmp_path / "holder")
    place, waits = place_of(address), []
    with leased(place, "leases/locks/work", lambda: waits.append(1), stopped_after(2.5)):
        pass  # two and a half terms were not enough
    found = place.read("leases/locks/work")
    assert found is not None
    held = json.loads(found[1])
    assert held["count"] > 1, "it was renewed"
    holder.kill()
    holder.communicate()
    killed = time.monotonic()
    with leased(place, "leases/locks/work", lambda: waits.append(2)) as others:
        assert others
        assert time.monotonic() - killed > 0.6, "the rest of a term"
        found = place.read("leases/locks/work")
        assert found is not None
        assert json.loads(found[1])["holder"] != held["holder"]
    assert waits == [1, 2]


def stopped_after(seconds: float) -> threading.Event:
    stopped = threading.Event()
    timer = threading.Timer(seconds, stopped.set)
    timer.daemon = True
    timer.start()
    return stopped


def test_who_lost_a_lease_does_not_give_back_that_of_another(address: str, caplog: pytest.LogCaptureFixture) -> None:
    place = place_of(address)
    with leased(place, "leases/b"):
        found = place.read("leases/b")
        assert found is not None
        other = place.replace("leases/b", b'{"holder": "other", "seconds": 1}', found[0])
        time.sleep(0.6)  # a renewal notices
    after = place.read("leases/b")
    assert after is not None
    assert after[0] == other
    assert "others may do it too" in caplog.text


@pytest.mark.parametrize("content", [b"", b"no lease", b'{"holder": "x", "seconds": 1e9}', b"[" * 100_000])
def test_what_is_no_lease_counts_as_held_and_is_not_waited_for_longer_than_a_term(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEASE_SECONDS, "1")
    monkeypatch.setattr("rag_eval.disk.locks.DEFAULT_TERM", 0.2)
    place, waits = LeaseFolder(tmp_path), []
    (tmp_path / "lease").write_bytes(content)
    with leased(place, "lease", lambda: waits.append(1)):
        assert waits


def test_a_claim_that_a_killed_process_left_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseFolder, "CLAIM_SECONDS", 0.2)
    place = LeaseFolder(tmp_path)
    mark = place.create("lease", b'{"holder": null, "seconds": 1}')
    (tmp_path / f"lease.{mark}").write_bytes(b"left")
    with leased(place, "lease"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_terms_and_buckets_that_cannot_be_used_are_named(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.on_machine("one")
    with pytest.raises(ServiceError, match="bucket of 's3://other-bucket/x' is not there"):
        Bucket(BucketLocation.parse("s3://other-bucket/x")).create("a", b"")
    monkeypatch.setenv("AWS_ENDPOINT_URL", refused_url())
    with pytest.raises(ServiceError, match="cannot be reached"):
        Bucket(BucketLocation.parse("s3://bench/x")).create("a", b"")
    monkeypatch.setenv(LEASE_SECONDS, "soon")
    with (
        pytest.raises(ConfigurationError, match="RAG_EVAL_LEASE_SECONDS is 'soon': give a number"),
        leased(LeaseFolder(Path()), "a"),
    ):
        pass


def test_a_folder_of_this_machine_needs_no_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_shared(tmp_path)
    with Workspace.at(tmp_path).storage.alone(tmp_path / "locks" / "a") as others:
        assert not others
        assert not (tmp_path / "leases").exists()
    monkeypatch.setenv(SHARED, "1")
    assert is_shared(tmp_path)


def test_a_network_drive_is_recognised_whatever_it_is_called() -> None:
    mounts = "".join(
        f"36 35 98:0 / {point} rw,relatime shared:1 - {kind} source rw\n"
        for point, kind in {
            "/": "ext4",
            r"/mnt/Büro\040\134x": "nfs4",
            r"/mnt/Büro\040\134x/here": "xfs",
            "/mnt/日本": "fuse.sshfs",
            "/mnt/\udcff\x85": "cifs",
        }.items()
    )
    for place, is_network in {
        "/mnt": False,
        "/mnt/Büro \\x/a": True,
        "/mnt/Büro \\xy": False,
        "/mnt/Büro \\x/here/a": False,
        "/mnt/日本": True,
        "/mnt/\udcff\x85/a": True,
    }.items():
        assert is_on_network(place, mounts) is is_network, place
