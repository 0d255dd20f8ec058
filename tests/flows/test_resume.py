"""Killed runs continue, and runs side by side do each task once; on a real Prefect server."""

import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_eval.config.loading import load_config
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import read_run
from tests.cli.commands import wait_for
from tests.flows.benchmarks import folder_of
from tests.flows.interrupted_run import ended, start, stored
from tests.flows.server_runs import asked, run, run_and_read

pytestmark = pytest.mark.usefixtures("prefect_server")

PARTS = """
import os
import time
from pathlib import Path

HERE = Path(__file__).parent


def note(what):
    with open(HERE / "log", "a") as log:
        log.write(f"{what} {os.getpid()}\\n")


def lines(text):
    note("chunk " + text.split("\\n")[0][2:])
    if (HERE / "hold").exists() and len((HERE / "log").read_text().splitlines()) == 1:
        time.sleep(1_000)  # until it is killed
    return [line for line in text.split("\\n") if line]


def letters(texts):
    for text in texts:
        note("embed " + text)
    return [[float(text.lower().count(letter)) + 0.01 for letter in "abcdefghijklmnop"] for text in texts]
"""
BENCHMARK = """
corpus: docs
ground_truth: truth.jsonl
chunkers: [my_parts:lines, {type: recursive-token, chunk_size: 20}]
embedders: my_parts:letters
retrieval: [vector, bm25, hybrid]
rerankers: [none, lexical]
k: [1, 3]
"""
CHUNKER = "chunkers: my_parts:lines"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A benchmark of twelve configurations whose own parts write down every call."""
    folder_of(tmp_path, 4)
    (tmp_path / "my_parts.py").write_text(PARTS)
    (tmp_path / "benchmark.yaml").write_text(BENCHMARK)
    return tmp_path / "benchmark.yaml"


def calls(file: Path) -> list[str]:
    log = file.with_name("log")
    return log.read_text().splitlines() if log.exists() else []


def tables(workspace: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (workspace / "tables").rglob("*.arrow")}


def test_a_run_killed_again_and_again_continues_where_it_was(file: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    for step in ("load-corpus", "chunk", "embed", "search", "score"):
        before = stored(killed)
        assert ended(start(file, killed, step)) == -signal.SIGKILL, f"the run was to be killed after {step}"
        assert before < stored(killed)
    before = stored(killed)
    last = run_and_read(load_config(file), Workspace(root=killed))
    assert len(last.outcome.configurations) == 12
    # Each task whose result was stored is cached, and each of the others is computed once.
    computed = [one for one in last.steps if one["state"]["name"] != "Cached"]
    assert len(computed) == len(stored(killed) - before) < len(last.steps)
    assert "load_corpus" not in last.computed()
    whole = run(load_config(file), Workspace(root=tmp_path / "undisturbed"))
    assert tables(killed) == tables(tmp_path / "undisturbed")
    assert stored(killed) == stored(tmp_path / "undisturbed")
    assert [one.metrics for one in last.outcome.configurations] == [one.metrics for one in whole.configurations]
    assert run_and_read(load_config(file), Workspace(root=killed)).computed() == set()


def test_two_runs_at_once_do_each_task_once(file: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    both = [start(file, shared) for _ in range(2)]
    assert [ended(one) for one in both] == [0, 0]
    done = Counter(call.rpartition(" ")[0] for call in calls(file))
    assert len([call for call in done if call.startswith("chunk ")]) == 4
    assert set(done.values()) == {1}, "what both need was done twice"
    workspace = Workspace(root=shared)
    outcomes = [read_run(workspace, path.name) for path in sorted(workspace.runs.iterdir())]
    assert len(outcomes) == 2
    assert [one.scores for one in outcomes[0].configurations] == [one.scores for one in outcomes[1].configurations]
    assert run_and_read(load_config(file), workspace).computed() == set()


def test_a_run_that_waits_for_a_killed_one_continues(file: Path, tmp_path: Path) -> None:
    file.write_text(BENCHMARK.replace("chunkers: [my_parts:lines, {type: recursive-token, chunk_size: 20}]", CHUNKER))
    shared, since = tmp_path / "shared", datetime.now(UTC)
    file.with_name("hold").touch()
    first = start(file, shared)
    wait_for(lambda: calls(file), 300)  # it has the lock of the chunks, and stays
    second = start(file, shared)
    wait_for(lambda: chunking_since(since) == 2, 300, every=0.2)
    assert len(calls(file)) == 1
    first.kill()
    assert (ended(first), ended(second)) == (-signal.SIGKILL, 0)
    done = Counter(call.rpartition(" ")[0] for call in calls(file))
    assert sorted(count for call, count in done.items() if call.startswith("chunk ")) == [1, 1, 1, 2]
    assert calls(file)[0].endswith(f" {first.pid}")
    assert {call.rpartition(" ")[2] for call in calls(file)[1:]} == {str(second.pid)}
    assert run_and_read(load_config(file), Workspace(root=shared)).computed() == set()
    assert [path.name for path in (shared / "locks").iterdir() if path.is_file()] == []


def chunking_since(moment: datetime) -> int:
    """How many runs of the task that chunks are under way that began since then."""
    what = {"name": {"any_": ["chunk my_parts:lines"]}, "state": {"type": {"any_": ["RUNNING"]}}}
    return len(asked("task_runs", {"task_runs": what | {"start_time": {"after_": moment.isoformat()}}}))
