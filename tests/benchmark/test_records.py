"""What stages made is found again under its key; whatever else a record holds is reported, and never obeyed."""

import json
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from rag_eval.benchmark.records import alone, do_once, find_record, keep_record, record_path
from rag_eval.benchmark.stage import Stage, stage

from rag_eval.pipeline.references import Effort, IndexRef, TableRef, TruthRef, effort_of
from rag_eval.pipeline.step import Context
from rag_eval.pipeline.workspace import Workspace
from rag_eval.tables import TruthTables
from tests.doubles.canary import Canary, called


def effort(number: int) -> Effort:
    return Effort(fresh=number, total=number, unit="texts")


@stage("numbers", version=1)
def count(upto: int, *, context: Context) -> tuple[pa.Table, Effort]:
    return pa.table({"n": list(range(upto))}), effort(upto)


@stage("numbers", version=1, makes=list[TableRef])
def count_in_shards(uptos: list[int], *, context: Context) -> tuple[list[pa.Table], Effort]:
    return [pa.table({"n": list(range(upto))}) for upto in uptos], effort(sum(uptos))


@stage("index", version=1, makes=IndexRef)
def build(*, context: Context) -> tuple[IndexRef, Effort]:
    assert context.workspace is not None
    built = context.workspace.write_index("d" * 64, 1, lambda folder: (folder / "data").write_bytes(b"rows") and None)
    return built, effort(1)


@stage("truth", version=1, makes=TruthRef)
def read_truth(*, context: Context) -> tuple[TruthTables, Effort]:
    return TruthTables(pa.table({"n": [1]}), pa.table({"start": [1]})), effort(1)


@stage("numbers", version=1, makes=list[TableRef], by_shard=True)
def double(shards: list[pa.Table], by: int, *, context: Context) -> tuple[list[pa.Table], Effort]:
    return [pa.table({"n": [by * one for one in shard.column("n").to_pylist()]}) for shard in shards], effort(1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path / "work")


def kept(workspace: Workspace, upto: int = 3) -> tuple[str, Path]:
    """The key and the record of a stage that has run."""
    key = count.key(upto)
    keep_record(workspace, count, key, count(workspace, upto))
    return key, record_path(workspace, key)


@pytest.mark.parametrize(
    ("made_by", "arguments"),
    [(count, (3,)), (count_in_shards, ([3, 0, 5],)), (count_in_shards, ([],)), (build, ()), (read_truth, ())],
    ids=["table", "shards", "no shard", "index", "truth"],
)
def test_what_was_kept_is_found_as_it_was(
    workspace: Workspace, made_by: Stage, arguments: tuple[object, ...], caplog: pytest.LogCaptureFixture
) -> None:
    key = made_by.key(*arguments)
    assert find_record(workspace, made_by, key) is None
    made = made_by(workspace, *arguments)
    keep_record(workspace, made_by, key, made)
    assert find_record(workspace, made_by, key) == made
    assert caplog.text == ""


def test_a_list_of_shards_has_one_key_and_one_effort(workspace: Workspace) -> None:
    keys = {count_in_shards.key(uptos) for uptos in ([3, 5], [5, 3], [3], [])}
    assert len(keys) == 4
    shards = count_in_shards(workspace, [3, 5])
    whole = effort_of(shards)
    assert whole is not None
    assert (whole.fresh, whole.total, whole.unit) == (8, 8, "texts")
    assert whole.seconds > 0
    silent = shards[0].model_copy(update={"effort": None})
    assert effort_of([*shards, silent]) is None
    unpriced = [one.model_copy(update={"effort": one.effort.model_copy(update={"cost": None})}) for one in shards]
    assert effort_of([*shards, *unpriced]).cost is None  # type: ignore[union-attr]  # all have one


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_each_of_several_shards_is_kept_by_itself(workspace: Workspace, shards: int) -> None:
    numbers = [count(workspace, upto) for upto in range(1, shards + 1)]
    done = do_once(workspace, double, (numbers, 2))
    assert [workspace.read_table(one).column("n").to_pylist()[-1] for one in done.result] == [0, 2, 4][:shards]
    for one in numbers:
        assert find_record(workspace, double, double.key([one], 2)) is not None
    edited = [count(workspace, 9), *numbers[1:]]
    assert not do_once(workspace, double, (edited, 2)).was_kept
    assert [do_once(workspace, double, ([one], 2)).was_kept for one in (*numbers, edited[0])] == [True] * (shards + 1)


def test_a_record_older_than_a_refresh_is_not_used(workspace: Workspace) -> None:
    key, _ = kept(workspace)
    now = datetime.now(UTC)
    assert find_record(workspace.model_copy(update={"refresh": True, "begun": now}), count, key) is None
    assert find_record(workspace.model_copy(update={"begun": now}), count, key) is not None
    made = find_record(workspace, count, key).made  # type: ignore[union-attr]  # it is kept
    assert find_record(workspace.model_copy(update={"refresh": True, "begun": made}), count, key) is not None
    kept(workspace)
    assert find_record(workspace.model_copy(update={"refresh": True, "begun": now}), count, key) is not None


def test_a_shard_that_is_gone_has_all_computed_again(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    key = count_in_shards.key([3, 5])
    shards = count_in_shards(workspace, [3, 5])
    keep_record(workspace, count_in_shards, key, shards)
    (workspace.root / shards[1].uri).unlink()
    assert find_record(workspace, count_in_shards, key) is None
    assert f"{shards[1].uri} is gone from the workspace" in caplog.text
    assert "count-in-shards is computed again" in caplog.text


@pytest.mark.parametrize("part", ["queries", "answers"])
def test_a_table_inside_of_what_was_made_that_is_gone_has_it_computed_again(
    workspace: Workspace, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    key = read_truth.key()
    made = read_truth(workspace)
    keep_record(workspace, read_truth, key, made)
    (workspace.root / getattr(made, part).uri).unlink()
    assert find_record(workspace, read_truth, key) is None
    assert f"{getattr(made, part).uri} is gone from the workspace" in caplog.text


def with_result(change: Callable[[dict[str, object], Path], object]) -> Callable[[bytes, Path], bytes]:
    def altered(record: bytes, canary: Path) -> bytes:
        content = json.loads(record)
        content["result"] = change(content["result"], canary)
        return json.dumps(content).encode()

    return altered


ALTERED: dict[str, Callable[[bytes, Path], bytes]] = {
    "empty": lambda record, canary: b"",
    "cut": lambda record, canary: record[: len(record) // 2],
    "garbage": lambda record, canary: b"\xff\0garbage",
    "a number": lambda record, canary: b"42",
    "nested too deep": lambda record, canary: b"[" * 100_000,
    "pickle": lambda record, canary: pickle.dumps(Canary(canary)),
    "pickle named in JSON": lambda record, canary: json.dumps(
        {"metadata": {"serializer": {"type": "pickle"}}, "result": pickle.dumps(Canary(canary)).hex()}
    ).encode(),
    "a class": lambda record, canary: json.dumps(called(canary)).encode(),
    "a class as the result": with_result(lambda result, canary: called(canary)),
    "a class among the fields": with_result(lambda result, canary: result | called(canary)),
    "a class as a field": with_result(lambda result, canary: result | {"uri": called(canary)}),
    "another type": with_result(lambda result, canary: {"evaluation_type": "token-level"}),
    "a list": with_result(lambda result, canary: [result]),
    "another key's": lambda record, canary: record.replace(b'"key":"count-v1-', b'"key":"count-v1-0'),
    "another version": lambda record, canary: record.replace(b'"schema_version":2', b'"schema_version":1'),
    "a number as text": with_result(lambda result, canary: result | {"rows": "3"}),
    "no finite number": lambda record, canary: record.replace(b'"cost":0.0', b'"cost":Infinity'),
    "a place above": with_result(lambda result, canary: result | {"uri": f"../work/{result['uri']}"}),
    "a place above, inside": with_result(lambda result, canary: result | {"uri": f"tables/../../{result['uri']}"}),
    "an absolute place": with_result(lambda result, canary: result | {"uri": f"{canary.parent}/work/{result['uri']}"}),
    "a drive": with_result(lambda result, canary: result | {"uri": "C:/tables/x.arrow"}),
    "a place with backslashes": with_result(lambda result, canary: result | {"uri": "..\\x.arrow"}),
    "no place": with_result(lambda result, canary: result | {"uri": ""}),
    "a place with a null": with_result(lambda result, canary: result | {"uri": "tables/\0"}),
}


@pytest.mark.parametrize("kind", ALTERED)
def test_an_altered_record_is_reported_dropped_and_never_obeyed(
    kind: str, workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, record = kept(workspace)
    canary = tmp_path / "canary"
    altered = ALTERED[kind](record.read_bytes(), canary)
    assert altered != record.read_bytes()
    record.write_bytes(altered)
    assert find_record(workspace, count, key) is None
    assert f"the record {key} was cut or altered: count is computed again" in caplog.text
    assert not canary.exists()
    assert not record.exists()
    keep_record(workspace, count, key, count(workspace, 3))
    assert find_record(workspace, count, key) is not None


def test_what_is_found_counts_as_used(workspace: Workspace) -> None:
    key, record = kept(workspace)
    (table,) = (workspace.root / "tables" / "numbers").iterdir()
    for path in (record, table):
        os.utime(path, (0, 0))
    assert find_record(workspace, count, key) is not None
    assert all(path.stat().st_mtime > time.time() - 60 for path in (record, table))


def test_a_record_of_another_key_under_this_name_is_none(workspace: Workspace) -> None:
    (key, record), (_, other) = kept(workspace, 3), kept(workspace, 4)
    record.write_bytes(other.read_bytes())
    assert find_record(workspace, count, key) is None


def test_links_that_lead_out_of_the_workspace_are_not_followed(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, record = kept(workspace)
    elsewhere = tmp_path / "elsewhere"
    (workspace.root / "records").rename(elsewhere)
    record.parent.mkdir()
    record.symlink_to(elsewhere / record.name)
    assert find_record(workspace, count, key) is None
    assert not record.is_symlink()
    assert (elsewhere / record.name).is_file()

    key, record = kept(workspace)
    (table,) = (workspace.root / "tables" / "numbers").iterdir()
    table.rename(tmp_path / table.name)
    table.symlink_to(tmp_path / table.name)
    assert find_record(workspace, count, key) is None
    assert f"tables/numbers/{table.name} leads out of the workspace" in caplog.text
    assert count(workspace, 3).uri == f"tables/numbers/{table.name}"
    assert not table.is_symlink()  # a file is put in the link's place
    assert (tmp_path / table.name).is_file()


def test_nothing_is_read_or_written_through_a_folder_that_leads_out(
    workspace: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, record = kept(workspace)
    elsewhere = tmp_path / "elsewhere"
    record.parent.rename(elsewhere)
    record.parent.symlink_to(elsewhere)
    before = [(path, path.read_bytes()) for path in elsewhere.iterdir()]
    assert find_record(workspace, count, key) is None
    keep_record(workspace, count, key, count(workspace, 4))
    assert "records leads out of the workspace" in caplog.text
    assert [(path, path.read_bytes()) for path in elsewhere.iterdir()] == before


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_removed(workspace: Workspace, made: Callable[[Path], None]) -> None:
    key, record = kept(workspace)
    record.unlink()
    made(record)
    assert find_record(workspace, count, key) is None
    assert not record.exists()
    key, record = kept(workspace)
    (table,) = (workspace.root / "tables" / "numbers").iterdir()
    table.unlink()
    made(table)
    assert find_record(workspace, count, key) is None


def test_a_record_that_cannot_be_written_is_reported_and_the_work_goes_on(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.root.mkdir()
    (workspace.root / "records").write_text("in the way")
    kept(workspace)
    assert "the record of count was not kept, so that the next run computes it again:" in caplog.text


def test_one_at_a_time_works_on_a_key(workspace: Workspace) -> None:
    inside, most = 0, 0
    ready = threading.Barrier(4)

    def work(key: str) -> None:
        nonlocal inside, most
        ready.wait()
        with alone(workspace, key):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, ["one"] * 4))
    assert most == 1
    with alone(workspace, "one"), alone(workspace, "other"):
        assert len(list((workspace.root / "locks").iterdir())) == 2
    assert list((workspace.root / "locks").iterdir()) == []
