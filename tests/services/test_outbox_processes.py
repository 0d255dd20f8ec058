"""Several processes at one outbox, and processes that are killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rag_eval.services.langsmith_outbox import put_truth
from rag_eval.services.outbox import Outbox
from tests.cli.commands import rag_eval, started
from tests.doubles.langsmith_server import KEY, LangSmithServer
from tests.doubles.langsmith_truth import token_level

SETTINGS = {"LANGSMITH_API_KEY": KEY}

# Appends the key of what it sends to a file, as a service would; sleeps in the middle when told to.
SENDER = """
import pathlib, sys, time
from rag_eval.services.outbox import Outbox

folder, log, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])

def send(message):
    with log.open("a") as file:
        file.write(f"begin {message.key}\\n")
    time.sleep(seconds)
    with log.open("a") as file:
        file.write(f"end {message.key}\\n")
    return {}

for delivery in Outbox(folder).deliver({"a": send}):
    print(delivery.key, delivery.state)
"""


def start(outbox: Outbox, log: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SENDER, str(outbox.folder), str(log), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lines(log: Path, beginning: str) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith(beginning)] if log.exists() else []


def wait_for(log: Path, beginning: str) -> None:
    deadline = time.monotonic() + 60
    while not lines(log, beginning):
        assert time.monotonic() < deadline, "the sender never began"
        time.sleep(0.01)


def test_a_lock_dies_with_its_holder_and_the_message_is_sent(tmp_path: Path) -> None:
    outbox, log = Outbox(tmp_path / "outbox"), tmp_path / "log"
    outbox.put("a", "k", {})
    killed = start(outbox, log, 600)
    wait_for(log, "begin")
    (busy,) = outbox.deliver({"a": lambda message: {}})
    assert busy.state == "busy"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert start(outbox, log, 0).communicate()[0] == "k sent\n"
    assert lines(log, "end") == ["end k"]


@pytest.mark.usefixtures("settings")
def test_a_command_that_is_stopped_while_it_sends_loses_nothing(server: LangSmithServer, tmp_path: Path) -> None:
    put_truth(Outbox(tmp_path / ".rag-eval" / "outbox"), "mine", token_level())
    server.hang_after(1, done=False)
    stopped = started("publish", cwd=tmp_path, **SETTINGS, LANGSMITH_ENDPOINT=server.url)
    assert server.hanging.wait(60)
    stopped.send_signal(signal.SIGINT)
    assert stopped.communicate(timeout=60)[1].splitlines()[-1] == "rag-eval: stopped; what was not sent still waits"
    assert stopped.returncode == 130
    server.heal()
    assert rag_eval("publish", cwd=tmp_path, **SETTINGS, LANGSMITH_ENDPOINT=server.url).returncode == 0
    assert len(server.api.examples) == len(token_level())


def test_processes_share_the_work_and_double_none(tmp_path: Path) -> None:
    outbox, log = Outbox(tmp_path / "outbox"), tmp_path / "log"
    keys = [f"k{number:02}" for number in range(12)]
    for key in keys:
        outbox.put("a", key, {})
    children = [start(outbox, log, 0.01) for _ in range(2)]
    told = "".join(child.communicate()[0] for child in children)
    assert sorted(lines(log, "end")) == [f"end {key}" for key in keys]
    assert {line.split()[0] for line in told.splitlines() if line.endswith("sent")} == set(keys)
    assert outbox.waiting() == []
