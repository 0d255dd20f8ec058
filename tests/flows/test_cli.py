"""The command line as a user meets it: a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rag_eval.sample import BENCHMARK, CORPUS

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "OPENAI_"))}
COMMAND = str(Path(sys.executable).with_name("rag-eval"))
TWO = f"""
corpus: {CORPUS}
ground_truth: {CORPUS.parent / "ground_truth.jsonl"}
chunkers: {{type: recursive-token, chunk_size: [60, 300]}}
"""


def rag_eval(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, *arguments], cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=600, check=False
    )


def test_a_benchmark_is_ranked_and_a_second_run_computes_nothing(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO)
    first = rag_eval("run", "two.yaml", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "14 documents, 70 queries" in first.stdout
    assert first.stdout.index("recursive-token 300/0") < first.stdout.index("recursive-token 60/0")
    assert "Declared unanswerable, outside the averages: 2." in first.stdout
    assert "28 of 28 documents" in first.stdout
    again = rag_eval("run", "two.yaml", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "Nothing computed: all 12 stages reused." in again.stdout
    (run,) = [line for line in again.stdout.splitlines() if line.startswith("Kept in ")]
    assert (Path(run.removeprefix("Kept in ")) / "summary.json").is_file()
    assert not again.stderr.count("Traceback")

    shown = rag_eval("show", cwd=tmp_path)
    assert shown.returncode == 0
    assert "recursive-token 300/0" in shown.stdout
    as_json = rag_eval("show", "--json", Path(run).name, cwd=tmp_path)
    assert json.loads(as_json.stdout)["run"] == Path(run).name
    held = rag_eval("cache", cwd=tmp_path)
    assert "cache/embeddings" in held.stdout
    assert "cleared: " in rag_eval("cache", "--clear", cwd=tmp_path).stdout


def test_a_failing_configuration_is_exit_1_and_a_wrong_span_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("one two three")
    span = '{"doc_id": "a.md", "start": 0, "end": 3, "text": "two"}'
    (tmp_path / "t.jsonl").write_text(f'{{"query": "which?", "relevant_spans": [{span}]}}')
    wrong = rag_eval("run", "--corpus", "docs", "--truth", "t.jsonl", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "'a.md' has 'one' at [0, 3), the span says 'two'" in wrong.stderr
    assert "Traceback" not in wrong.stderr
    assert len([line for line in wrong.stderr.splitlines() if line.strip()]) == 1, wrong.stderr

    (tmp_path / "t.jsonl").write_text(f'{{"query": "which?", "relevant_spans": [{span.replace("two", "one")}]}}')
    (tmp_path / "b.yaml").write_text(
        "corpus: docs\nground_truth: t.jsonl\nchunkers: markdown\nembedders: [local, openai]\n"
    )
    failed = rag_eval("run", "b.yaml", "--json", cwd=tmp_path)
    assert failed.returncode == 1, failed.stderr
    outcome = json.loads(failed.stdout)
    assert [one["name"] for one in outcome["configurations"]] == ["markdown 1000, vector"]
    assert "OPENAI_API_KEY" in str(outcome["failures"])
    assert "1 of 2 configurations failed" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--corpus", "nowhere", "--truth", "t.jsonl"], "nowhere' is not there: check the path"),
        (["run", "--corpus", "."], "--corpus and --truth go together"),
        (["run", "--corpus", ".", "--truth", "t.jsonl"], "no file in"),
        (["run", "--corpus", ".", "--glob", "*.txt", "--truth", "none.jsonl"], "none.jsonl' is not there"),
        (["run", "none.yaml"], "none.yaml"),
        (["validate", "bad.yaml"], "bad.yaml, chunkers.chunk_sise"),
        (["show"], "there is no run yet"),
        (["show", "2020"], "there is no run 2020"),
        (["cache"], "there is no workspace"),
        (["certify", "nope"], "there is no chunker 'nope'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "bad.yaml").write_text(TWO.replace("chunk_size", "chunk_sise"))
    done = rag_eval(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (tmp_path / ".rag-eval").exists()


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    done = rag_eval("--debug", "run", "none.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_what_there_is_can_be_listed(tmp_path: Path) -> None:
    assert "chunk_overlap" in rag_eval("chunkers", cwd=tmp_path).stdout
    assert "openai" in rag_eval("embedders", cwd=tmp_path).stdout
    assert "precision_omega" in rag_eval("metrics", cwd=tmp_path).stdout
    listed = rag_eval("validate", str(BENCHMARK), cwd=tmp_path).stdout
    assert "12 configurations, token-level, k = 1, 3, 5, 10" in listed


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    environment = CLEAN | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run([COMMAND, "run"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the Prefect server at http://127.0.0.1:9/api does not answer" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_killed_command_leaves_no_server_behind(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [COMMAND, "run"], cwd=tmp_path, env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = wait_for(lambda: children(run.pid))
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in server))


def children(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def wait_for(condition: object, seconds: float = 30) -> list[int]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        result = condition()  # type: ignore[operator]  # a function
        if result:
            return list(result) if isinstance(result, list) else []
        time.sleep(0.1)
    pytest.fail("it did not happen in time")
