"""The result of a task is found again under its key; whatever else its file holds is refused, and never obeyed."""

import json
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prefect.results import ResultRecord, ResultRecordMetadata

from rag_eval.errors import ArtifactError
from rag_eval.pipeline.references import ChunksRef, Effort, HitsRef, QueriesRef, Result, ScoresRef, TableRef, TruthRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.files import user_folder
from tasks.caching import LockFiles, ReferenceSerializer, WorkspaceResults, result_file
from tests.doubles.canary import Canary, called

KEY, OTHER_KEY = "count-v1-0123456789abcdef", "count-v1-fedcba9876543210"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "work")


def store(workspace: Workspace, key: str, result: Result) -> Path:
    """Store a result as Prefect does, and return its file."""
    metadata = ResultRecordMetadata(serializer=ReferenceSerializer(), storage_key=key)
    content = ResultRecord(result=result, metadata=metadata).serialize()
    WorkspaceResults(address=workspace.address).write_path(key, content)
    return result_file(workspace, key)


def find(workspace: Workspace, key: str) -> Result | None:
    """Return what Prefect reads for a key; None where it runs the task."""
    try:
        content = WorkspaceResults(address=workspace.address).read_path(key)
    except ArtifactError:
        return None
    found: Result = ResultRecord.deserialize(content).result
    return found


def table(workspace: Workspace, upto: int = 3, **effort: Any) -> TableRef:
    ref = workspace.write_table("numbers", pa.table({"n": list(range(upto))}))
    return ref.model_copy(update={"made": datetime.now(UTC), "effort": Effort.of(upto, "texts", **effort)})


def stored(workspace: Workspace) -> tuple[Path, Path]:
    """Store a table; return the files of the result and of the table."""
    ref = table(workspace)
    return store(workspace, KEY, ref), workspace.root / ref.uri


RESULTS: dict[str, Callable[[Workspace, TableRef], Result]] = {
    "table": lambda workspace, one: one,
    "index": lambda workspace, one: workspace.write_index(
        "d" * 64, 1, lambda folder: (folder / "data").write_bytes(b"rows") and None
    ),
    "chunks": lambda workspace, one: ChunksRef(table=one, characters=9, shortest=1, longest=5),
    "truth": lambda workspace, one: TruthRef(
        evaluation_type="token-level", queries=one, answers=table(workspace, 5), source="d"
    ),
    "queries": lambda workspace, one: QueriesRef(searches=one, allowed=table(workspace, 5)),
    "hits": lambda workspace, one: HitsRef(stages={"vector": one}, passages=table(workspace, 5), unplaced=1),
    "scores": lambda workspace, one: ScoresRef(table=one, means={"span_recall@5": 0.5}, queries=3),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_what_was_stored_is_found_as_it_was_unless_a_file_of_it_is_gone(
    workspace: Workspace, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = RESULTS[kind](workspace, table(workspace))
    assert find(workspace, KEY) is None
    file = store(workspace, KEY, result)
    assert find(workspace, KEY) == result
    assert caplog.text == ""
    for one in result.files:
        path = workspace.root / one.uri
        path.rename(workspace.root / "away")
        assert find(workspace, KEY) is None
        assert f"{one.uri} is missing from the workspace" in caplog.text
        assert not file.exists()
        (workspace.root / "away").rename(path)
        store(workspace, KEY, result)
    assert find(workspace, KEY) == result


def test_an_unfinished_result_is_not_stored(workspace: Workspace) -> None:
    assert not store(workspace, KEY, table(workspace, unfinished=1)).exists()
    assert store(workspace, KEY, table(workspace, skipped=1)).exists()


def with_result(change: Callable[[dict[str, object], Path], object]) -> Callable[[bytes, Path], bytes]:
    def altered(record: bytes, canary: Path) -> bytes:
        content = json.loads(record)
        content["result"] = change(content["result"], canary)
        return json.dumps(content).encode()

    return altered


def at(uri: str) -> Callable[[bytes, Path], bytes]:
    """Put another place into the reference; ``{uri}`` is its own and ``{root}`` the folder around the workspace."""
    return with_result(lambda result, canary: result | {"uri": uri.format(uri=result["uri"], root=canary.parent)})


ALTERED: dict[str, Callable[[bytes, Path], bytes]] = {
    "empty": lambda record, canary: b"",
    "truncated": lambda record, canary: record[: len(record) // 2],
    "garbage": lambda record, canary: b"\xff\0garbage",
    "a number": lambda record, canary: b"42",
    "nested too deep": lambda record, canary: b"[" * 100_000,
    "pickle": lambda record, canary: pickle.dumps(Canary(canary)),
    "a record of Prefect that names pickle": lambda record, canary: json.dumps(
        {
            "metadata": {"serializer": {"type": "pickle"}, "storage_key": KEY},
            "result": pickle.dumps(Canary(canary)).hex(),
        }
    ).encode(),
    "a serializer among the fields": lambda record, canary: json.dumps(
        json.loads(record) | {"metadata": {"serializer": {"type": "pickle"}}}
    ).encode(),
    "a class": lambda record, canary: json.dumps(called(canary)).encode(),
    "a class as the result": with_result(lambda result, canary: called(canary)),
    "a class among the fields": with_result(lambda result, canary: result | called(canary)),
    "a class as a field": with_result(lambda result, canary: result | {"uri": called(canary)}),
    "another type": with_result(lambda result, canary: result | {"kind": "truth"}),
    "an unknown type": with_result(lambda result, canary: result | {"kind": "builtins.object"}),
    "a list": with_result(lambda result, canary: [result]),
    "another key": lambda record, canary: record.replace(KEY.encode(), OTHER_KEY.encode()),
    "another version": lambda record, canary: record.replace(b'"schema_version":1', b'"schema_version":2'),
    "a number as text": with_result(lambda result, canary: result | {"rows": "3"}),
    "no finite number": lambda record, canary: record.replace(b'"cost":0.0', b'"cost":Infinity'),
    "a place above": at("../work/{uri}"),
    "a place above, inside": at("tables/../../{uri}"),
    "an absolute place": at("{root}/work/{uri}"),
    "a drive": at("C:/tables/x.arrow"),
    "a place with backslashes": at("..\\x.arrow"),
    "no place": at(""),
    "a place with a null": at("tables/\0"),
}


@pytest.mark.parametrize("kind", ALTERED)
def test_an_altered_result_is_reported_dropped_and_never_obeyed(
    kind: str, workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, _ = stored(workspace)
    canary = tmp_path / "canary"
    altered = ALTERED[kind](file.read_bytes(), canary)
    assert altered != file.read_bytes()
    file.write_bytes(altered)
    assert find(workspace, KEY) is None
    assert f"the stored result {KEY} is damaged: the task runs again" in caplog.text
    assert not canary.exists()
    assert not file.exists()
    stored(workspace)
    assert find(workspace, KEY) is not None


@pytest.mark.parametrize("blob", [b"", b"42", pickle.dumps("x"), b'{"__class__": "subprocess.getoutput"}'])
def test_the_serializer_reads_references_and_nothing_else(blob: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ReferenceSerializer().loads(blob)


def test_an_altered_table_has_its_result_computed_again(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    _, path = stored(workspace)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert find(workspace, KEY) is None
    assert "was altered (sha256" in caplog.text
    stored(workspace)
    assert find(workspace, KEY) is not None


def test_what_is_found_counts_as_used(workspace: Workspace) -> None:
    files = stored(workspace)
    for path in files:
        os.utime(path, (0, 0))
    assert find(workspace, KEY) is not None
    assert all(path.stat().st_mtime > time.time() - 60 for path in files)


def test_links_that_lead_out_of_the_workspace_are_not_followed(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for place in (0, 1):  # the file of the result, then that of the table
        link = stored(workspace)[place]
        link.rename(tmp_path / link.name)
        link.symlink_to(tmp_path / link.name)
        assert find(workspace, KEY) is None
        assert stored(workspace)[place] == link
        assert not link.is_symlink()  # a file is put in the link's place
        assert find(workspace, KEY) is not None
        assert (tmp_path / link.name).is_file()
    assert f"tables/numbers/{link.name} is a link out of the workspace" in caplog.text


def test_nothing_is_read_or_written_through_a_folder_that_leads_out(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, _ = stored(workspace)
    elsewhere = tmp_path / "elsewhere"
    file.parent.rename(elsewhere)
    file.parent.symlink_to(elsewhere)
    before = [(path, path.read_bytes()) for path in elsewhere.iterdir()]
    assert find(workspace, KEY) is None
    store(workspace, KEY, table(workspace, 4))
    assert "results is a link out of the workspace" in caplog.text
    assert [(path, path.read_bytes()) for path in elsewhere.iterdir()] == before


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_read(workspace: Workspace, made: Callable[[Path], None]) -> None:
    for place in (0, 1):
        files = stored(workspace)
        files[place].unlink()
        made(files[place])
        assert find(workspace, KEY) is None
        assert not files[0].exists()


def test_a_result_that_cannot_be_written_is_reported_and_the_run_continues(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.root.mkdir()
    (workspace.root / "results").write_text("in the way")
    stored(workspace)
    assert f"the result {KEY} is not cached: " in caplog.text


def test_one_holder_at_a_time_works_on_a_key() -> None:
    locks, folder = LockFiles(), user_folder("state") / "locks"
    inside, most, ready = 0, 0, threading.Barrier(4)

    def work(holder: str) -> None:
        nonlocal inside, most
        ready.wait()
        for _ in range(2):  # who holds it may ask again
            assert locks.acquire_lock(KEY, holder)
        inside += 1
        most = max(most, inside)
        assert locks.is_locked(KEY)
        assert locks.is_lock_holder(KEY, holder)
        assert not locks.is_lock_holder(KEY, "stranger")
        time.sleep(0.02)
        inside -= 1
        for _ in range(2):
            locks.release_lock(KEY, holder)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "abcd"))
    assert most == 1
    assert not locks.is_locked(KEY)
    locks.acquire_lock(KEY, "a")
    locks.acquire_lock(OTHER_KEY, "b")  # which waits for nobody
    assert {KEY, OTHER_KEY} <= {path.name for path in folder.iterdir()}
    locks.release_lock(KEY, "a")
    locks.release_lock(OTHER_KEY, "b")
    assert not {KEY, OTHER_KEY} & {path.name for path in folder.iterdir()}
