import os
import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa

from rag_eval.benchmark.housekeeping import clear, holdings, mark_used, prune
from rag_eval.benchmark.workspace import Workspace
from rag_eval.disk.files import SCRATCH_PREFIX, sweep_scratch

OLD = time.time() - 10 * 86_400


def filled(root: Path) -> Workspace:
    workspace = Workspace(root=root)
    for number in range(3):
        ref = workspace.write_table("chunks", pa.table({"n": [number]}))
        os.utime(root / ref.uri, (OLD, OLD))
    index = workspace.write_index("d" * 64, 1, lambda folder: (folder / "data").write_bytes(b"1234") and None)
    os.utime(root / index.uri, (OLD, OLD))
    kept = ("cache/embeddings/m/x.arrow", "cache/loose", "records/key.json", "runs/r/summary.json")
    first_version = ("results/key", "prefect/db")
    for name in (*kept, *first_version):
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
        "prefect": 1,
        "records": 1,
        "results": 1,
        "runs": 1,
        "tables/chunks": 3,
    }
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(holding.files for holding in found) == len(everything)
    assert sum(holding.size for holding in found) == sum(path.stat().st_size for path in everything)


def test_pruning_removes_what_was_not_used_and_keeps_vectors_and_runs(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    used = next((tmp_path / "tables" / "chunks").iterdir())
    mark_used(used)
    assert prune(workspace, 30).files == 0
    assert prune(workspace, 5).files == 6
    left = {holding.kind for holding in holdings(workspace)}
    assert left == {"tables/chunks", "cache", "cache/embeddings", "runs", "other files"}
    assert used.exists()


def test_clearing_takes_the_work_alone(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    assert clear(workspace).files == 9
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
    (workspace.root / "records").mkdir()
    (workspace.root / "records" / "key.json").symlink_to(files[0])
    prune(workspace, -1)
    assert list((workspace.root / "indexes").iterdir()) == list((workspace.root / "records").iterdir()) == []
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
