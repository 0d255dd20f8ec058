"""A command that is stopped, or whose server dies, ends soon, says so, leaves nothing running, and can be continued."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from prefect.settings import PREFECT_API_URL

from flows.cli.prefect_home import prefect_home
from flows.cli.processes import watched
from rag_eval.benchmark.workspace import Workspace
from tests.flows.cli.commands import CLEAN, COMMAND, TWO, children, is_running, rag_eval, started, wait_for


def chunks_in(workspace: Path) -> list[Path]:
    return list((workspace / "tables" / "chunks").glob("*.arrow"))


def test_a_stopped_run_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    run = started("run", "two.yaml", "--runner", "processes", cwd=tmp_path)
    wait_for(lambda: chunks_in(tmp_path / ".rag-eval"))
    servers = children(run.pid)
    run.send_signal(signal.SIGTERM)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 143, err
    assert err.splitlines() == [
        "rag-eval: starting on a temporary Prefect server",
        "rag-eval: stopped; what was finished is kept, and the next run continues there",
    ]
    assert out == ""
    assert servers
    wait_for(lambda: not any(map(is_running, servers)))
    assert list(prefect_home(Workspace(root=tmp_path / ".rag-eval")).glob(".part-*")) == []


@pytest.mark.parametrize("runner", ["threads", "processes"])
def test_ctrl_c_is_for_the_command_and_not_for_its_processes(tmp_path: Path, runner: str) -> None:
    (tmp_path / "slow_chunks.py").write_text(
        "import pathlib, time\ndef slow(text):\n    pathlib.Path('begun').touch()\n    time.sleep(300)\n"
    )
    (tmp_path / "slow.yaml").write_text(TWO.partition("chunkers")[0] + "chunkers: slow_chunks:slow\n")
    words = [COMMAND, "run", "slow.yaml", "--runner", runner]
    run = subprocess.Popen(  # as a shell starts it: Ctrl-C goes to all that it starts
        words, cwd=tmp_path, env=CLEAN, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: (tmp_path / "begun").exists())
    workers = children(run.pid)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert err.splitlines() == [
        *(["rag-eval: starting on a temporary Prefect server"] if runner == "processes" else []),
        "rag-eval: stopped; what was finished is kept, and the next run continues there",
    ]
    wait_for(lambda: not any(map(is_running, workers)))


def test_a_server_that_dies_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    run = started("run", "two.yaml", "--runner", "processes", cwd=tmp_path)
    wait_for(lambda: chunks_in(tmp_path / ".rag-eval"))
    (server,) = [one for one in children(run.pid) if "flows.cli.server" in psutil.Process(one).cmdline()]
    os.kill(server, signal.SIGKILL)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert out == ""
    assert err.splitlines() == [
        "rag-eval: starting on a temporary Prefect server",
        "rag-eval: the temporary Prefect server was ended by signal 9: run again to continue, or start a server "
        "yourself and set PREFECT_API_URL",
    ]


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
from flows.cli.processes import leave, watched
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
