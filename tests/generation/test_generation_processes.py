"""Processes: one that is killed again and again pays nothing twice, and two at once share their answers."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from rag_eval import read_token_level
from rag_eval.llm.chat import ANSWERS
from rag_eval.storage.rows import KeyedRows
from tests.doubles.openai_server import OpenAIServer
from tests.generation.interrupted_generation import generator_of

ROOT = Path(__file__).parents[2]


def start(server: OpenAIServer, workspace: Path, name: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.generation.interrupted_generation", server.base_url, str(workspace), name]
    return subprocess.Popen(command, cwd=ROOT)


def asked(server: OpenAIServer) -> Counter[str]:
    return Counter(str(request.body["messages"]) for request in server.requests)


def answers(workspace: Path) -> int:
    return sum(len(file) for file in KeyedRows(workspace / "cache" / "answers", ANSWERS).files())


def test_a_killed_generation_goes_on_in_two_processes_and_nothing_is_paid_twice(
    server: OpenAIServer, tmp_path: Path
) -> None:
    whole = generator_of(server.base_url, tmp_path / "calm").generate(2, upload_to_langsmith=False)
    needed = len(server.requests)
    server.requests.clear()
    server.seconds = 0.2
    killed = tmp_path / "killed"
    first = start(server, killed, "never")
    while answers(killed) < 5:
        assert first.poll() is None
        time.sleep(0.005)
    first.kill()
    first.wait()
    assert not (killed / "never.jsonl").exists()
    time.sleep(0.5)  # the service goes on with what was under way
    kept, sent = answers(killed), len(server.requests)
    assert 5 <= kept < needed
    assert sent <= kept + 2, "two requests at once were under way"
    server.seconds = 0.05
    both = [start(server, killed, name) for name in ("one", "two")]
    assert [process.wait(120) for process in both] == [0, 0]
    assert len(server.requests) - sent == needed - kept, "what was answered before was asked again"
    assert len(asked(server)) == needed
    assert read_token_level(killed / "one.jsonl") == read_token_level(killed / "two.jsonl") == whole
