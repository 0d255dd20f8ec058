"""What a workspace holds, and what is removed from it to make room."""

import json
import os
import re
import shutil
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports.report import build_report
from rag_eval.results.housekeeping import Holding, clear, holdings, in_use, prune
from rag_eval.results.runs import choose_baseline, read_run, run_names
from rag_eval.results.unchanged import unchanged_run
from rag_eval.storage.files import SCRATCH_PREFIX, sweep_scratch, touch
from rag_eval.storage.locks import wait_for_lock
from tasks.caching import StoredResult, result_file
from tests.chain import run_benchmark
from tests.doubles.openai_server import OpenAIServer
from tests.results.made_runs import make_run, write_data

OLD = time.time() - 10 * 86_400


def filled(root: Path) -> Workspace:
    workspace = Workspace(root=root)
    for number in range(3):
        ref = workspace.write_table("chunks", pa.table({"n": [number]}))
        os.utime(root / ref.uri, (OLD, OLD))
    index = workspace.write_index("d" * 64, 1, lambda folder: (folder / "data").write_bytes(b"1234") and None)
    os.utime(root / index.uri, (OLD, OLD))
    for name in ("cache/embeddings/m/x.arrow", "cache/loose", "results/key.json", "runs/r/summary.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12")
        os.utime(root / name, (OLD, OLD))
    (root / ".gitignore").write_text("*")
    return workspace


def test_a_workspace_says_what_it_holds(tmp_path: Path) -> None:
    found = holdings(filled(tmp_path))
    assert {holding.kind: holding.files for holding in found} == {
        "cache": 1,
        "cache/embeddings": 1,
        "indexes": 1,
        "other files": 1,
        "results": 1,
        "runs": 1,
        "tables/chunks": 3,
    }
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(holding.files for holding in found) == len(everything)
    assert sum(holding.size for holding in found) == sum(path.stat().st_size for path in everything)


def files(found: list[Holding]) -> dict[str, int]:
    return {one.kind: one.files for one in found}


def test_pruning_removes_what_was_not_used(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    used = next((tmp_path / "tables" / "chunks").iterdir())
    touch(used)
    assert prune(workspace, 30) == []
    expected = {"tables": 2, "indexes": 1, "results": 1, "cache": 1}
    before = holdings(workspace)
    assert files(prune(workspace, 5, dry_run=True)) == expected
    assert holdings(workspace) == before
    assert files(prune(workspace, 5)) == expected
    left = {holding.kind for holding in holdings(workspace)}
    assert left == {"tables/chunks", "cache", "runs", "other files"}  # a run that cannot be read is not judged
    assert used.exists()


def age(root: Path, days: float) -> None:
    """Have everything in a workspace be so many days older."""
    for path in sorted(root.rglob("*")):
        stamp = path.stat().st_mtime - days * 86_400
        os.utime(path, (stamp, stamp))
    for path in root.glob("runs/*/summary.json"):
        data = json.loads(path.read_bytes())
        data["started"] = (datetime.fromisoformat(data["started"]) - timedelta(days=days)).isoformat()
        path.write_text(json.dumps(data))


def test_the_baseline_and_the_newest_run_of_each_benchmark_stay_with_all_they_need(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path / "work")
    config, other = (write_data(tmp_path / name, documents=3, queries=2) for name in ("one", "other"))
    runs = []
    for one, chunk_size in ((config, 10), (config, 20), (config, 30), (other, 40)):
        chunker = RecursiveTokenChunker(chunk_size=chunk_size)
        runs.append(make_run(workspace, one.model_copy(update={"chunkers": [chunker]})))
        age(workspace.root, 10)
    choose_baseline(workspace, runs[0].run)
    kept = [runs[0], runs[2], runs[3]]
    gone = files(prune(workspace, 5))
    assert gone["runs"] >= 2  # a summary and its scores
    assert run_names(workspace) == sorted(run.run for run in kept)
    for run in kept:
        build_report(workspace, read_run(workspace, run.run))
    with pytest.raises(ArtifactError, match="is missing"):
        build_report(workspace, runs[1])


@pytest.mark.parametrize("shards", [1, 8])
def test_what_is_needed_to_show_the_newest_run_again_stays_with_the_results_that_refer_to_nothing_else(
    tmp_path: Path, shards: int
) -> None:
    workspace, config = Workspace(root=tmp_path / "work"), write_data(tmp_path, documents=3, queries=2)
    config = config.model_copy(update={"shards": shards})
    run = run_benchmark(workspace, config)
    assert (len(run.inputs.documents) > 1) == (shards > 1)
    results = {"truth": run.inputs.truth, "scores": run.configurations[0].scores}
    results |= {"other": workspace.write_table("chunks", pa.table({"n": [1]}))}
    for key, result in results.items():
        workspace.write_file(
            result_file(workspace, key), StoredResult(key=key, result=result).model_dump_json().encode()
        )
    age(workspace.root, 10)
    prune(workspace, 5)
    assert unchanged_run(workspace, config, reanchor=False) is not None
    build_report(workspace, read_run(workspace, run.run))
    assert {key: result_file(workspace, key).exists() for key in results} == {
        "truth": True,
        "scores": True,
        "other": False,
    }


def test_nothing_is_removed_from_under_a_run_and_a_killed_one_is_no_hindrance(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    with in_use(workspace), in_use(workspace):
        for remove in (lambda: prune(workspace, 5), lambda: clear(workspace)):
            with pytest.raises(ConfigurationError, match=r"a run uses the workspace .* try again when it ends"):
                remove()
    assert len(holdings(workspace)) == 7
    (tmp_path / "locks" / "runs" / "killed").write_text("")
    assert prune(workspace, 5)
    assert list((tmp_path / "locks" / "runs").iterdir()) == []


def test_a_run_waits_for_a_pruning(tmp_path: Path) -> None:
    workspace, begun = filled(tmp_path), threading.Event()

    def run() -> None:
        with in_use(workspace):
            begun.set()

    with wait_for_lock(tmp_path / "locks" / "prune"):
        waiting = threading.Thread(target=run)
        waiting.start()
        assert not begun.wait(0.2)
    waiting.join()
    assert begun.is_set()


def test_clearing_takes_the_work_alone(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    assert clear(workspace).files == 7
    assert [holding.kind for holding in holdings(workspace)] == ["runs", "other files"]


def test_nothing_outside_is_removed_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    files = [outside / "letter", outside / "inner" / "letter"]
    for file in files:
        file.write_text("dear")
        os.utime(file, (OLD, OLD))
    workspace = Workspace(root=tmp_path / "work")
    (workspace.root / "indexes").mkdir(parents=True)
    (workspace.root / "tables").symlink_to(outside)
    (workspace.root / "indexes" / "folder").symlink_to(outside)
    (workspace.root / "results").mkdir()
    (workspace.root / "results" / "key.json").symlink_to(files[0])
    prune(workspace, -1)
    assert list((workspace.root / "indexes").iterdir()) == list((workspace.root / "results").iterdir()) == []
    clear(workspace)
    assert [file.read_text() for file in files] == ["dear", "dear"]


def test_leftovers_of_killed_writers_are_swept_after_a_day(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    old, new = (tmp_path / "tables" / f"{SCRATCH_PREFIX}{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (OLD, OLD))
    in_use = tmp_path / "indexes" / f"{SCRATCH_PREFIX}server"
    in_use.mkdir()
    (in_use / "prefect.db").write_bytes(b"written to just now")
    os.utime(in_use, (OLD, OLD))
    sweep_scratch(workspace.root)
    assert not old.exists()
    assert new.exists()
    assert in_use.exists()


def test_files_may_come_and_go_meanwhile(tmp_path: Path) -> None:
    """Other runs write and remove while a workspace is looked at, pruned and swept."""
    workspace = filled(tmp_path)
    stop = threading.Event()

    def come_and_go() -> None:
        number = 0
        while not stop.is_set():
            folder = tmp_path / "indexes" / f"{SCRATCH_PREFIX}{number}"
            (folder / "data" / "inner").mkdir(parents=True)
            for name in ("a", "b", "c"):
                (folder / "data" / "inner" / name).write_bytes(b"x")
            os.utime(folder, (OLD, OLD))
            shutil.rmtree(folder, ignore_errors=True)
            number += 1

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(150):
            assert "runs" in {holding.kind for holding in holdings(workspace)}
            prune(workspace, 5)
            sweep_scratch(workspace.root)
    finally:
        stop.set()
        other.join()


def test_answers_stay_while_the_newest_run_has_a_model_write(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The last ferry leaves at 22:40.")
    span = {"doc_id": "a.md", "start": 4, "end": 14, "text": "last ferry"}
    (tmp_path / "truth.jsonl").write_text(json.dumps({"query": "When?", "relevant_spans": [span]}))
    given = {"corpus": tmp_path / "docs", "ground_truth": tmp_path / "truth.jsonl", "chunkers": ["sentence"]}
    workspace = Workspace(root=tmp_path / "work")
    for context, stays in (("written", True), ("headings", False)):
        with OpenAIServer() as server:
            server.reply = lambda body: json.dumps({"text": "So."})
            part = {"type": context} | ({"base_url": server.base_url} if context == "written" else {})
            settings = given | {"retrieval": ["bm25"], "context": [part]}
            run_benchmark(workspace, BenchmarkConfig.model_validate(settings))
        answers = list((workspace.root / "cache" / "answers").rglob("*.arrow"))
        for path in answers:
            os.utime(path, (0, 0))
        prune(workspace, 30)
        assert [path.exists() for path in answers] == [stays]
        for summary in workspace.runs.glob("*/summary.json"):  # it began long ago
            summary.write_text(re.sub(r'"started": "\d{4}', '"started": "2001', summary.read_text()))
