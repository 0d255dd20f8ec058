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

from rag_eval.errors import ArtifactError, ExperimentError, OutputError
from rag_eval.experiments.file_outputs import JsonOutput
from rag_eval.experiments.item_log import FOLDER, LEFT_DAYS, open_log
from rag_eval.experiments.results import ExperimentResult, ItemResult, Score
from rag_eval.experiments.running import evaluatorq

SCRIPT = """
import sys, time
from pathlib import Path
from rag_eval.experiments.running import evaluatorq
from rag_eval.experiments.file_outputs import JsonOutput

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


def start(folder: Path, script: str = SCRIPT) -> "subprocess.Popen[bytes]":
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a background may ignore
    (folder / "script.py").write_text(heard + script)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "script.py"], cwd=folder, env=environment, stderr=subprocess.DEVNULL)


def calls(folder: Path) -> list[str]:
    path = folder / "calls.txt"
    return path.read_text().split() if path.exists() else []


def test_a_killed_experiment_continues_and_repeats_only_what_was_under_way(tmp_path: Path) -> None:
    killed = 0
    for stop_after in (10, 40):
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
    assert written["summary"]["resumedSamples"] >= 36
    # At each kill at most the two calls under way are lost.
    assert 60 <= len(calls(tmp_path)) <= 60 + 2 * killed
    assert list((tmp_path / "evaluations" / FOLDER).iterdir()) == []


NOTEBOOK = """
import asyncio
exec(open("task.py").read())

async def cell():
    run()

"""


@pytest.mark.parametrize("way", ["asyncio.run(cell())", "asyncio.new_event_loop().run_until_complete(cell())"])
def test_ctrl_c_reaches_an_experiment_within_a_loop(tmp_path: Path, way: str) -> None:
    begun, called = SCRIPT.split("evaluatorq(", 1)
    (tmp_path / "task.py").write_text(f"{begun}def run():\n    evaluatorq({called}")
    process = start(tmp_path, NOTEBOOK + way)
    while len(calls(tmp_path)) < 10 and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    assert len(calls(tmp_path)) < 60


def item(index: int, value: str = "x") -> ItemResult:
    return ItemResult(index, value, None, [value], {"s": Score(0.5, "why", False)}, [], 0.25)


def test_a_log_is_continued(tmp_path: Path) -> None:
    log = open_log(tmp_path, "cut", "f" * 64)
    for index in (1, 0, 2):
        log.add(item(index), {"input": index})
    log.close()
    again = open_log(tmp_path, "cut", "f" * 64)
    assert again.run == log.run
    assert [again.finished(index, {"input": index}) for index in range(4)] == [item(0), item(1), item(2), None]
    again.cut(1)
    again.add(item(1, "again"), {"input": 1})
    assert [sample.input for sample in again] == ["x", "again"]
    assert (again[-1].input, [sample.index for sample in again[:1]]) == ("again", [0])
    with pytest.raises(IndexError):
        again[2]
    again.close()


def test_a_damaged_log_is_not_continued(tmp_path: Path) -> None:
    log = open_log(tmp_path, "damaged", "f" * 64)
    for index in range(200):
        log.add(item(index), {"input": index})
    log.close()
    (path,) = (tmp_path / FOLDER).iterdir()
    whole = path.read_bytes()
    for damaged in (b"garbage" * 1_000, whole[: len(whole) // 2], whole[:4_096] + b"\x7f" * 4_096 + whole[8_192:]):
        path.write_bytes(damaged)
        other = open_log(tmp_path, "damaged", "f" * 64)
        assert (len(other), other.run == log.run) == (0, False)
        other.interrupted()


def test_a_row_that_changed_is_done_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, "changed", "f" * 64)
    log.add(item(0), {"input": "before"})
    log.close()
    again = open_log(tmp_path, "changed", "f" * 64)
    assert again.finished(0, {"input": "after"}) is None
    again.close()


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    both = [start(tmp_path, SCRIPT.replace("range(60)", "range(15)")) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    written = [json.loads(path.read_text()) for path in tmp_path.glob("evaluations/*.json")]
    assert len(written) == 2
    assert all([item["input"] for item in one["results"]] == list(range(15)) for one in written)


def test_a_result_that_is_still_looked_at_does_not_hold_its_name(tmp_path: Path) -> None:
    done = open_log(tmp_path, "same", "f" * 64)
    done.add(item(0), {"input": 0})
    done.done()
    assert list((tmp_path / FOLDER).iterdir()) == []
    again = open_log(tmp_path, "same", "f" * 64)
    assert (list(done), list(again)) == ([item(0)], [])
    again.interrupted()
    done.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_old_logs_are_removed(tmp_path: Path) -> None:
    for name in ("old", "recent"):
        log = open_log(tmp_path, name, "f" * 64)
        log.add(item(0), {"input": 0})
        log.interrupted()
    (path,) = (tmp_path / FOLDER).glob("old-*")
    os.utime(path, (0, time.time() - LEFT_DAYS * 86_400 - 60))
    open_log(tmp_path, "next", "f" * 64).interrupted()
    assert [path.name.split("-")[0] for path in (tmp_path / FOLDER).iterdir()] == ["recent"]


def test_an_experiment_that_never_began_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExperimentError, match="is missing"):
        evaluatorq("none", data="gone.csv", tasks=[str], outputs=[])
    assert list((tmp_path / "evaluations" / FOLDER).iterdir()) == []


def test_results_that_could_not_be_put_out_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[str] = []

    class Broken:
        def handle(self, results: ExperimentResult) -> None:
            raise KeyError("a fault of an output")

    def work(row: dict[str, str]) -> str:
        seen.append(row["input"])
        return row["input"]

    data = [{"input": "a"}]
    outputs = [Broken(), JsonOutput("evaluations")]
    with pytest.raises(
        OutputError, match="the output Broken failed: KeyError: 'a fault of an output'"
    ) as raised:  # whose traceback holds on to the run, as a notebook does
        evaluatorq("kept", data=data, tasks=[work], outputs=outputs)
    assert evaluatorq("kept", data=data, tasks=[work], outputs=[JsonOutput("evaluations")]).resumed == 1
    assert seen == ["a"]
    assert isinstance(raised.value.__cause__, KeyError)
    assert len(list(Path("evaluations").glob("*.json"))) == 1  # the other output had its turn the first time


def test_a_row_with_an_object_in_it_is_known_again(tmp_path: Path) -> None:
    log = open_log(tmp_path, "object", "f" * 64)
    log.add(item(0), {"input": "x", "client": object()})
    assert log.finished(0, {"input": "x", "client": object()}) is None  # of this very run, which finished nothing yet
    log.close()
    again = open_log(tmp_path, "object", "f" * 64)
    assert again.finished(0, {"input": "x", "client": object()}) == item(0)
    again.close()


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


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        evaluatorq("x", data=[{"input": 1}], tasks=[str], output_dir=tmp_path / "file", outputs=[])
