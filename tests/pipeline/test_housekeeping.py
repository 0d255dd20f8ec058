import os
import time
from pathlib import Path

import pyarrow as pa

from rag_eval.files import SCRATCH_PREFIX
from rag_eval.pipeline.housekeeping import clear, holdings, mark_used, prune, sweep
from rag_eval.pipeline.workspace import Workspace

OLD = time.time() - 10 * 86_400


def filled(root: Path) -> Workspace:
    workspace = Workspace(root=root)
    for number in range(3):
        ref = workspace.write_table("chunks", pa.table({"n": [number]}))
        os.utime(root / ref.uri, (OLD, OLD))
    index = workspace.write_index("d" * 64, 1, lambda folder: (folder / "data").write_bytes(b"1234") and None)
    os.utime(root / index.uri, (OLD, OLD))
    for name in ("cache/embeddings/m/x.arrow", "results/key", "runs/r/summary.json"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"12")
        os.utime(root / name, (OLD, OLD))
    return workspace


def test_a_workspace_says_what_it_holds(tmp_path: Path) -> None:
    found = {holding.kind: holding.files for holding in holdings(filled(tmp_path))}
    assert found == {"tables/chunks": 3, "indexes": 1, "results": 1, "cache/embeddings": 1, "runs": 1}


def test_pruning_removes_what_was_not_used_and_keeps_vectors_and_runs(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    used = next((tmp_path / "tables" / "chunks").iterdir())
    mark_used(used)
    assert prune(workspace, 30).files == 0
    assert prune(workspace, 5).files == 4
    assert {holding.kind for holding in holdings(workspace)} == {"tables/chunks", "cache/embeddings", "runs"}
    assert used.exists()


def test_clearing_keeps_the_runs_alone(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    assert clear(workspace).files == 6
    assert [holding.kind for holding in holdings(workspace)] == ["runs"]


def test_leftovers_of_killed_writers_are_swept_after_a_day(tmp_path: Path) -> None:
    workspace = filled(tmp_path)
    old, new = (tmp_path / "tables" / f"{SCRATCH_PREFIX}{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (OLD, OLD))
    sweep(workspace)
    assert not old.exists()
    assert new.exists()
