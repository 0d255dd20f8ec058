"""A command that is stopped, or whose server dies, ends soon, says so, leaves nothing running, and can be continued."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL

from rag_eval.cli.processes import descendants, watched
from tests.cli.commands import CLEAN, COMMAND, TWO, is_running, rag_eval, wait_for

STOPPED = "rag-eval: stopped; finished steps are cached, and the next run continues from there"
SLOW = """
import pathlib, time

def slow(query, chunks):
    pathlib.Path("begun").touch()
    time.sleep(0 if pathlib.Path("again").exists() else 300)
    return chunks
"""


def write_slow(folder: Path) -> None:
    (folder / "slow_parts.py").write_text(SLOW)
    (folder / "b.yaml").write_text(TWO + "retrieval: bm25\nrerankers: slow_parts:slow\n")


def configurations(done: "subprocess.CompletedProcess[str]") -> list[Any]:
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["configurations"])


def digests(configurations: list[Any]) -> list[tuple[str, str]]:
    return [(one["hits"]["digest"], one["scores"]["digest"]) for one in configurations]


@pytest.fixture(scope="module")
def api(prefect_server: None) -> str:
    return str(PREFECT_API_URL.value())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, api: str) -> list[Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    write_slow(folder)
    (folder / "again").touch()
    return configurations(rag_eval("run", "b.yaml", "--json", cwd=folder, PREFECT_API_URL=api))


def is_continued(folder: Path, undisturbed: list[Any], api: str) -> bool:
    """Whether the next run takes what was finished from the cache, and finds what a run in one go finds."""
    (folder / "again").touch()
    done = configurations(rag_eval("run", "b.yaml", "--json", cwd=folder, PREFECT_API_URL=api))
    works = [{step: one["steps"][step]["state"] for step in ("chunk", "retrieve")} for one in done]
    return {"chunk": "cached", "retrieve": "computed"} in works and digests(done) == digests(undisturbed)


@contextmanager
def ended(run: "subprocess.Popen[Any]") -> Iterator[None]:
    """Have a run end with the block, whatever happens in it."""
    try:
        yield
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()


@pytest.mark.parametrize(
    ("runner", "number", "code", "told"),
    [
        ("threads", signal.SIGINT, 130, [STOPPED]),
        ("threads", signal.SIGKILL, -9, []),
        ("dask", signal.SIGTERM, 143, [STOPPED]),
    ],
)
def test_a_stopped_run_leaves_nothing_behind_and_is_continued(
    undisturbed: list[Any], api: str, tmp_path: Path, runner: str, number: int, code: int, told: list[str]
) -> None:
    write_slow(tmp_path)
    words = [COMMAND, "run", "b.yaml", "--runner", runner]
    run = subprocess.Popen(  # as a shell starts it: Ctrl-C goes to all that it starts
        words, cwd=tmp_path, env=CLEAN, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with ended(run):
        wait_for((tmp_path / "begun").exists)
        started_by_it = descendants(run.pid)  # the server of the run, and the workers of Dask
        assert started_by_it
        (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
        _, err = run.communicate(timeout=120)
    assert run.returncode == code, err
    assert err.splitlines() == ["rag-eval: starting a temporary Prefect server", *told]
    wait_for(lambda: not any(is_running(one.pid) for one in started_by_it))
    assert is_continued(tmp_path, undisturbed, api)


def on_a_terminal(folder: Path, *words: str, **settings: str) -> "tuple[subprocess.Popen[bytes], list[str]]":
    """The command on a terminal of its own, and what it writes there, which grows."""
    own, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    environment = CLEAN | {"TERM": "xterm", **settings}
    command = [COMMAND, *words]
    run = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written: list[str] = []

    def read() -> None:
        with suppress(OSError):  # at its end
            while part := os.read(own, 10_000):
                written.append(part.decode(errors="replace"))
        os.close(own)

    threading.Thread(target=read, daemon=True).start()
    return run, written


def plain(written: list[str]) -> str:
    """What was written, without colours and moves of the cursor."""
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", "".join(written))


def test_a_run_stopped_on_a_lasting_server_is_cancelled_there_and_continued(
    undisturbed: list[Any], api: str, tmp_path: Path
) -> None:
    write_slow(tmp_path)
    run, written = on_a_terminal(tmp_path, "run", "b.yaml", PREFECT_API_URL=api)
    # The table, from what the server tells of the task runs.
    row = re.compile(r"recursive-token 60/0[^\n]*✓[^\n]*…")
    with ended(run):
        wait_for(lambda: row.search(plain(written)))
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=120) == 130, "".join(written)
    wait_for(lambda: STOPPED in " ".join(plain(written).split()))
    (run_id,) = re.findall(r"its page in Prefect: \S*/([0-9a-f-]{36})", "".join(written))
    # By its heartbeats the server would know of its death if it were killed.
    beats = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "resource": {"id": [f"prefect.flow-run.{run_id}"]}}
    wait_for(lambda: httpx.post(f"{api}/events/filter", json={"filter": beats}, timeout=30).json()["total"])
    state = httpx.get(f"{api}/flow_runs/{run_id}", timeout=30).json()["state"]
    assert (state["type"], state["message"]) == ("CANCELLED", "stopped from the command line")
    assert is_continued(tmp_path, undisturbed, api)


def test_what_watched_work_gives_or_raises_comes_through() -> None:
    assert watched(lambda: 3, lambda: None) == 3
    with pytest.raises(ZeroDivisionError):
        watched(lambda: 1 / 0, lambda: None)


def test_trouble_is_raised_without_waiting_for_the_work() -> None:
    never = threading.Event()
    with pytest.raises(LookupError, match="the server is gone"):
        watched(never.wait, lambda: LookupError("the server is gone"))
    never.set()


LEFT = """
import subprocess, threading
from rag_eval.cli.processes import leave, watched
started = []
def work():
    started.append(subprocess.Popen(["sleep", "600"]))
    threading.Event().wait()
try:
    watched(work, lambda: LookupError() if started else None)
except LookupError:
    print(started[0].pid, flush=True)
    leave(7)
"""


def test_what_was_left_behind_ends_with_all_that_it_started() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    wait_for(lambda: not is_running(int(done.stdout)))
