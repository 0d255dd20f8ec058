"""One holder at a time, among threads and processes, and nobody after it has ended."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rag_eval.errors import ArtifactError
from rag_eval.storage.locks import try_lock, wait_for_lock

HOLD = """
import sys
from pathlib import Path
from rag_eval.storage.locks import wait_for_lock, try_lock
with {lock}(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def holding(lock: str, path: Path) -> "subprocess.Popen[str]":
    """A process that holds a lock, and says so, until it is ended."""
    command = [sys.executable, "-c", HOLD.replace("{lock}", lock), str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_lock_is_held_once_and_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with try_lock(path) as first, try_lock(path) as second:
        assert (first, second) == (True, False)
    with holding("try_lock", path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with try_lock(path) as mine:
            assert not mine
        holder.kill()
    with try_lock(path) as mine:
        assert mine


def test_a_place_that_cannot_hold_a_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ArtifactError, match=r"lock' cannot be locked \(.+\): check the path"),
        try_lock(tmp_path / "file" / "lock"),
    ):
        pass


def test_in_turn_each_has_it_alone_and_nothing_stays_behind(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    inside: list[int] = []
    most: list[int] = []
    ready = threading.Barrier(8)

    def take(number: int) -> None:
        ready.wait()
        for _ in range(20):
            with wait_for_lock(path):
                inside.append(number)
                most.append(len(inside))
                time.sleep(0.0002)
                inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, range(8)))
    assert len(most) == 160
    assert set(most) == {1}
    assert list(path.parent.iterdir()) == []


def test_a_turn_comes_when_its_holder_is_killed_and_who_is_stopped_waits_no_more(tmp_path: Path) -> None:
    path, stopped = tmp_path / "lock", threading.Event()

    def take(stopped: threading.Event | None = None) -> None:
        with wait_for_lock(path, stopped):
            pass

    with holding("wait_for_lock", path) as holder, ThreadPoolExecutor(2) as pool:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "None\n"
        waiting, impatient = pool.submit(take), pool.submit(take, stopped)
        with pytest.raises(TimeoutError):
            impatient.result(0.2)
        stopped.set()
        impatient.result(60)
        assert not waiting.done()
        holder.kill()
        waiting.result(60)
    assert not path.exists()


def test_where_nothing_can_be_locked_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with wait_for_lock(tmp_path / "file" / "lock"), wait_for_lock(tmp_path / "file" / "lock"):
        pass
    with pytest.raises(KeyError), wait_for_lock(tmp_path / "file" / "lock"):
        raise KeyError("what happens inside comes out")
