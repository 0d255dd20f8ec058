"""A workspace in a bucket (moto on loopback), used by machines that have nothing else in common."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rag_eval.errors import ArtifactError, RequestRefusedError, ServiceError
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import run_names
from rag_eval.storage.rows import KEY as DIGEST
from rag_eval.storage.rows import MANY_FILES, KeyedRows
from tests.doubles.loopback import LoopbackServer, Request, refused_url
from tests.doubles.s3_server import KEY, SECRET, S3Double, s3_double

ADDRESS = "s3://bench/team"
TABLE = pa.table({"value": [1, 2, 3]})
ROWS = pa.schema([pa.field("key", DIGEST, nullable=False), pa.field("value", pa.int64())])


class Forbidding(LoopbackServer):
    """Refuses everything."""

    def answer(self, request: Request) -> tuple[int, Any]:
        return 403, {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Double]:
    with s3_double(tmp_path_factory.mktemp("machines")) as double:
        yield double


@pytest.fixture
def s3(service: S3Double, tmp_path: Path) -> S3Double:
    service.folder = tmp_path
    service.on_machine("one")
    service.remove(*service.keys(""))
    return service


def fill(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "rows").write_bytes(b"rows")
    (folder / "version").write_bytes(b"1")


def test_another_machine_reads_what_one_has_written(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    table, index = here.write_table("numbers", TABLE), here.write_index("digest", 3, fill)
    here.write_file(here.runs / "r1" / "summary.json", b"{}")
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    assert there.root != here.root
    assert there.read_table(table).equals(TABLE)
    assert (there.path(index) / "data" / "rows").read_bytes() == b"rows"
    assert run_names(there) == ["r1"]
    assert there.fetch(there.runs / "r1" / "summary.json").read_bytes() == b"{}"


def test_what_changes_is_read_as_it_was_written_last(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    here.write_file(here.root / "baseline.json", b"one")
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    there.write_file(there.fetch_newest(there.root / "baseline.json"), b"two")
    assert here.fetch_newest(here.root / "baseline.json").read_bytes() == b"two"


def test_a_key_that_leads_out_of_the_workspace_is_passed_over(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    s3.write("team/tables/documents/a\\..\\evil", b"planted")
    s3.write("team/tables/documents/good", b"good")
    here.fetch_missing(here.root / "tables" / "documents")
    assert [path.read_bytes() for path in s3.folder.rglob("*") if path.is_file()] == [b"good"]
    assert here.storage.names("tables") == {"tables/documents/good"}


@pytest.mark.parametrize("name", ["../../../evil", "a/../../../../evil", "//evil", "./evil"])
def test_a_key_that_is_no_path_is_refused(s3: S3Double, name: str) -> None:
    here = Workspace.at(ADDRESS)
    s3.write(f"team/tables/documents/{name}", b"planted")
    with pytest.raises(RequestRefusedError, match="an object whose key is not a path: remove it"):
        here.fetch_missing(here.root / "tables" / "documents")
    assert [path for path in s3.folder.rglob("*") if path.is_file()] == []


def test_a_damaged_copy_is_fetched_again_and_a_damaged_object_is_said(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    table, index = here.write_table("numbers", TABLE), here.write_index("digest", 3, fill)
    (here.root / table.uri).write_bytes(b"no table")
    (here.root / index.uri / "data" / "rows").unlink()
    (here.root / index.uri / "more").write_bytes(b"more")
    assert here.read_table(table).equals(TABLE)
    assert here.damage(index) is None
    s3.write(f"team/{table.uri}", b"no table")
    s3.remove(f"team/{index.uri}/version")
    assert (here.damage(table), here.damage(index)) == (None, None)  # the copy is whole
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    assert "was altered" in str(there.damage(table))
    assert "was altered" in str(there.damage(index))
    with pytest.raises(ArtifactError, match=f"'{ADDRESS}' was altered .* run again"):
        there.read_table(table)
    # Made again, it is whole for everybody.
    there.write_table("numbers", TABLE)
    there.write_index("digest", 3, fill)
    s3.on_machine("three")
    assert (Workspace.at(ADDRESS).damage(table), Workspace.at(ADDRESS).damage(index)) == (None, None)


def test_two_machines_that_write_the_same_table_leave_one_object(s3: S3Double) -> None:
    def write(machine: str) -> tuple[TableRef, bytes]:
        s3.on_machine(machine)
        ref = Workspace.at(ADDRESS).write_table("numbers", TABLE)
        return ref, s3.read(f"team/{ref.uri}")

    assert write("one") == write("two")
    assert len(s3.keys("team/")) == 1


def test_what_the_bucket_has_lost_is_said_where_nobody_has_a_copy(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    table, index = here.write_table("numbers", TABLE), here.write_index("digest", 3, fill)
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    assert (there.problem(table), there.problem(index)) == (None, None)
    assert not there.root.exists()  # nothing was fetched
    s3.remove(f"team/{table.uri}", f"team/{index.uri}/data/rows")
    assert (here.problem(table), here.problem(index)) == (None, None)
    for ref in (table, index):
        assert "is missing from the workspace" in str(there.problem(ref))


def rows_of(workspace: Workspace) -> KeyedRows:
    folder = workspace.root / "cache" / "rows"
    workspace.fetch_missing(folder)
    return KeyedRows(folder, ROWS, workspace.storage)


def test_rows_are_shared_as_soon_as_they_are_written_and_merged_files_go(s3: S3Double) -> None:
    keys = [f"{number:064x}" for number in range(MANY_FILES + 1)]
    here = rows_of(Workspace.at(ADDRESS))
    here.put({keys[0]: {"value": 0}})
    made = here.files()[0].stamp.made_ns
    s3.on_machine("two")
    there = rows_of(Workspace.at(ADDRESS))
    assert there.get(keys) == {keys[0]: {"value": 0}}
    assert there.files()[0].stamp.made_ns == made  # to a run that computes all again it is as old as it is
    for number, key in enumerate(keys[1:], 1):
        there.put({key: {"value": number}})
    assert len(s3.keys("team/cache")) == 1
    s3.on_machine("three")
    assert rows_of(Workspace.at(ADDRESS)).get(keys) == {key: {"value": number} for number, key in enumerate(keys)}


def test_damaged_rows_are_removed_from_the_bucket_and_can_be_added_again(s3: S3Double) -> None:
    key = "0" * 64
    rows_of(Workspace.at(ADDRESS)).put({key: {"value": 1}})
    (name,) = s3.keys("team/cache")
    s3.write(name, s3.read(name)[:50])
    s3.on_machine("two")
    there = rows_of(Workspace.at(ADDRESS))
    assert there.get([key]) == {}
    there.put({key: {"value": 1}})
    s3.on_machine("three")
    assert rows_of(Workspace.at(ADDRESS)).get([key]) == {key: {"value": 1}}


def test_rows_that_cannot_be_uploaded_are_here_all_the_same(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(Workspace.at(ADDRESS))
    key = "0" * 64
    s3.client.create_bucket(Bucket="short-lived")
    lost = Workspace.at("s3://short-lived")
    rows = rows_of(lost)
    s3.client.delete_bucket(Bucket="short-lived")
    with pytest.raises(ServiceError, match="does not exist"):
        rows.put({key: {"value": 1}})
    assert rows.get([key]) == {key: {"value": 1}}


def test_what_is_wrong_with_a_bucket_is_one_sentence_without_keys(
    s3: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServiceError, match="bucket of 's3://other-bucket/x' does not exist: create it") as missing:
        Workspace.at("s3://other-bucket/x").write_table("numbers", TABLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL", refused_url())
    with pytest.raises(ServiceError, match="cannot be reached: check the network and AWS_ENDPOINT_URL") as away:
        Workspace.at(ADDRESS).write_table("numbers", TABLE)
    for error in (missing.value, away.value):
        assert KEY not in str(error)
        assert SECRET not in str(error)


def test_rights_that_are_missing_are_said(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    with Forbidding() as forbidding:
        monkeypatch.setenv("AWS_ENDPOINT_URL", forbidding.url)
        with pytest.raises(RequestRefusedError, match="refuses the keys: check AWS_ACCESS_KEY_ID"):
            Workspace.at(ADDRESS).write_table("numbers", TABLE)
