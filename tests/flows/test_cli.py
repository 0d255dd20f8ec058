"""The command line as a user meets it: a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}


def rag_eval(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("rag-eval")), *arguments]
    return subprocess.run(command, cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=600, check=False)


def test_the_sample_is_ranked_and_a_second_run_computes_nothing(tmp_path: Path) -> None:
    first = rag_eval("run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "14 documents, 70 queries" in first.stdout
    assert "span_recall" in first.stdout
    assert first.stdout.index("recursive-token 300/0") < first.stdout.index("recursive-token 60/0")
    assert "2 unanswerable queries stand apart" in first.stdout
    assert "12 stages computed, 0 reused" in first.stdout
    again = rag_eval("run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "Nothing computed: all 12 stages reused." in again.stdout
    (run,) = [line for line in again.stdout.splitlines() if line.startswith("Kept in ")]
    assert (Path(run.removeprefix("Kept in ")) / "summary.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--corpus", "nowhere", "--truth", "t.jsonl"], "nowhere' is not there: check the path"),
        (["--corpus", "."], "--corpus and --truth go together"),
        (["--corpus", ".", "--truth", "t.jsonl"], "no file in"),
        (["--corpus", ".", "--glob", "*.txt", "--truth", "none.jsonl"], "none.jsonl' is not there: check the path"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_2(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "a.txt").write_text("text")
    done = rag_eval("run", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (tmp_path / ".rag-eval").exists()
