"""A command that is stopped, or whose server dies, ends soon, says so, leaves nothing running, and can be continued."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL

from rag_eval.cli.processes import watched
from tests.cli.commands import CLEAN, COMMAND, TWO, children, is_running, rag_eval, started, wait_for


def chunks_in(workspace: Path) -> list[Path]:
    return list((workspace / "tables" / "chunks").glob("*.arrow"))


STOPPED = "rag-eval: stopped; what was finished is kept, and the next run continues there\n"
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
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    write_slow(folder)
    (folder / "again").touch()
    return configurations(rag_eval("run", "b.yaml", "--json", cwd=folder))


@pytest.mark.parametrize(
    ("runner", "number", "code", "told"),
    [
        ("threads", signal.SIGINT, 130, STOPPED),
        ("processes", signal.SIGINT, 130, STOPPED),
        ("processes", signal.SIGKILL, -9, ""),
        ("dask", signal.SIGTERM, 143, STOPPED),
    ],
)
def test_a_stopped_run_leaves_nothing_behind_and_is_continued(
    undisturbed: list[Any], tmp_path: Path, runner: str, number: int, code: int, told: str
) -> None:
    write_slow(tmp_path)
    words = ["run", "b.yaml", "--json", "--runner", runner]
    run = subprocess.Popen(  # as a shell starts it: Ctrl-C goes to all that it starts
        [COMMAND, *words], cwd=tmp_path, env=CLEAN, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for((tmp_path / "begun").exists)
    workers = children(run.pid)
    assert bool(workers) == (runner != "threads")
    (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
    _, err = run.communicate(timeout=60)
    assert run.returncode == code, err
    assert told in ("", err)  # of a killed one Python itself says something
    wait_for(lambda: not any(map(is_running, workers)))
    (tmp_path / "again").touch()
    done = configurations(rag_eval(*words, cwd=tmp_path))
    work = [{stage: one["stages"][stage]["work"] for stage in ("chunk", "rerank")} for one in done]
    assert {"chunk": "reused", "rerank": "computed"} in work
    assert digests(done) == digests(undisturbed)


@pytest.mark.usefixtures("prefect_server")
def test_a_run_stopped_on_a_lasting_server_is_cancelled_there_and_continued(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    api = str(PREFECT_API_URL.value())
    run = started("run", "two.yaml", cwd=tmp_path, PREFECT_API_URL=api)
    wait_for(lambda: chunks_in(tmp_path / ".rag-eval"))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert f"rag-eval: starting on the Prefect server at {api}" in err
    (page,) = [line for line in err.splitlines() if "its page in Prefect" in line]
    run_id = page.rpartition("/")[2]
    # By its heartbeats the server would know of its death if it were killed.
    beats = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "resource": {"id": [f"prefect.flow-run.{run_id}"]}}
    wait_for(lambda: httpx.post(f"{api}/events/filter", json={"filter": beats}, timeout=30).json()["total"])
    state = httpx.get(f"{api}/flow_runs/{run_id}", timeout=30).json()["state"]
    assert (state["type"], state["message"]) == ("CANCELLED", "stopped from the command line")
    done = rag_eval("run", "two.yaml", "--json", cwd=tmp_path, PREFECT_API_URL=api)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert len(outcome["configurations"]) == 2
    assert outcome["stages"]["load-corpus"]["work"] == "reused"


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
