"""Finished samples survive a kill, and a rerun continues."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_eval.errors import ArtifactError, ExperimentError
from rag_eval.experiments.evaluators import Threshold
from rag_eval.experiments.fingerprint import fingerprint
from rag_eval.experiments.item_log import FOLDER, open_log
from rag_eval.experiments.naming import named_evaluators, named_tasks
from rag_eval.experiments.outputs.json_file import JsonOutput
from rag_eval.experiments.running import evaluatorq
from rag_eval.experiments.types import ItemResult, Score

SCRIPT = """
import sys, time
from pathlib import Path
from rag_eval.experiments.running import evaluatorq
from rag_eval.experiments.outputs.json_file import JsonOutput

def work(row):
    with open("calls.txt", "a") as calls:
        calls.write(f"{row['input']}\\n")
    time.sleep(0.02)
    return row["input"] * 2

def even(result, expected):
    return result % 2 == 0

evaluatorq("killed", data=[{"input": n} for n in range(60)], tasks=[work], evaluators=[even],
           outputs=[JsonOutput("evaluations")], concurrency=2)
"""


def start(folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "script.py").write_text(SCRIPT)
    root = str(Path(__file__).parents[2])
    return subprocess.Popen([sys.executable, "script.py"], cwd=folder, env=os.environ | {"PYTHONPATH": root})


def calls(folder: Path) -> list[str]:
    path = folder / "calls.txt"
    return path.read_text().split() if path.exists() else []


def test_a_killed_experiment_continues_and_repeats_only_what_was_under_way(tmp_path: Path) -> None:
    killed = 0
    for stop_after in (10, 30, 50):
        process = start(tmp_path)
        while len(calls(tmp_path)) < stop_after and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed += 1
        assert not list(tmp_path.glob("evaluations/*.json"))
    assert start(tmp_path).wait(60) == 0
    (path,) = tmp_path.glob("evaluations/*.json")
    written = json.loads(path.read_text())
    assert [item["input"] for item in written["results"]] == list(range(60))
    assert [item["taskResults"] for item in written["results"]] == [[n * 2] for n in range(60)]
    assert written["summary"]["averageScores"] == {"even": 1.0}
    assert written["summary"]["resumedSamples"] >= 44
    # At each kill at most the two calls under way are lost.
    assert 60 <= len(calls(tmp_path)) <= 60 + 2 * killed
    assert list((tmp_path / "evaluations" / FOLDER).iterdir()) == []


def test_ctrl_c_stops_at_once_and_keeps_what_is_done(tmp_path: Path) -> None:
    process = start(tmp_path)
    while len(calls(tmp_path)) < 10 and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    seen = len(calls(tmp_path))
    assert seen < 60
    assert start(tmp_path).wait(60) == 0
    assert len(calls(tmp_path)) <= 60 + 2


def item(index: int, value: str = "x") -> ItemResult:
    return ItemResult(index, value, None, [value], {"s": Score(0.5, "why", False)}, [], 0.25)


def test_a_line_that_was_cut_is_done_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, "cut", "f" * 64)
    for index in (1, 0, 2):
        log.add(item(index), {"input": index})
    log.close()
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    again = open_log(tmp_path, "cut", "f" * 64)
    assert again.run == log.run
    assert again.finished(0, {"input": 0}) == item(0)
    assert again.finished(1, {"input": 1}) == item(1)
    assert again.finished(2, {"input": 2}) is None
    again.add(item(2, "anew"), {"input": 2})
    assert [one.input for one in again] == ["x", "x", "anew"]
    again.close()


def test_a_row_that_changed_is_done_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, "changed", "f" * 64)
    log.add(item(0), {"input": "before"})
    log.close()
    again = open_log(tmp_path, "changed", "f" * 64)
    assert again.finished(0, {"input": "after"}) is None
    again.close()


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    script = SCRIPT.replace("range(60)", "range(15)")
    root = str(Path(__file__).parents[2])
    (tmp_path / "script.py").write_text(script)
    both = [
        subprocess.Popen([sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": root})
        for _ in range(2)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    written = [json.loads(path.read_text()) for path in tmp_path.glob("evaluations/*.json")]
    assert len(written) == 2
    assert all([item["input"] for item in one["results"]] == list(range(15)) for one in written)


def test_other_code_does_not_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        yield {"input": 1}
        raise OSError

    def one(row: dict[str, int]) -> int:
        seen.append(row["input"])
        return row["input"] + 1

    def two(row: dict[str, int]) -> int:
        seen.append(-row["input"])
        return row["input"] + 2

    two.__name__ = "one"
    with pytest.raises(ExperimentError):
        evaluatorq("code", data=rows, tasks=[one], outputs=[], concurrency=1)
    result = evaluatorq("code", data=[{"input": 1}], tasks=[two], outputs=[JsonOutput("out")])
    assert result.results[0].task_results == [3]
    assert result.resumed == 0
    result = evaluatorq("code", data=[{"input": 1}], tasks=[one], outputs=[JsonOutput("out")])
    assert result.results[0].task_results == [2]
    assert result.resumed == 1
    assert seen == [1, -1]


def test_other_code_within_a_composition_is_other_code() -> None:
    def one(result: int, expected: int) -> float:
        return 1.0

    def other(result: int, expected: int) -> float:
        return 0.5

    other.__name__ = "one"
    tasks = named_tasks([str])
    prints = [fingerprint("x", tasks, named_evaluators([Threshold(part, 0.5)])) for part in (one, other, one)]
    assert prints[0] == prints[2] != prints[1]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        evaluatorq("x", data=[{"input": 1}], tasks=[str], output_dir=tmp_path / "file", outputs=[])
