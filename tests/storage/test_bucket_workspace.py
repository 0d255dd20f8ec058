"""A workspace in a bucket (moto on loopback), used by machines that have nothing else in common."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rag_eval.errors import ArtifactError, RequestRefusedError, ServiceError
from rag_eval.pipeline.workspace import Workspace
from rag_eval.results.runs import run_names
from tests.doubles.loopback import LoopbackServer, Request, refused_url
from tests.doubles.s3_server import KEY, SECRET, S3Double, s3_double

ADDRESS = "s3://bench/team"
TABLE = pa.table({"value": [1, 2, 3]})


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


def fail_halfway(workspace: Workspace, folder: Path) -> None:
    with workspace.growing(folder):
        (folder / "c").write_bytes(b"c")
        (folder / "never made" / "d").write_bytes(b"d")


def test_another_machine_reads_what_one_has_written(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    table, index = here.write_table("numbers", TABLE), here.write_index("digest", 3, fill)
    here.keep(here.runs / "r1" / "summary.json", b"{}")
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    assert there.root != here.root
    assert there.read_table(table).equals(TABLE)
    assert (there.path(index) / "data" / "rows").read_bytes() == b"rows"
    assert run_names(there) == ["r1"]
    assert there.kept(there.runs / "r1" / "summary.json").read_bytes() == b"{}"


def test_what_changes_is_read_as_it_was_written_last(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    here.keep(here.root / "baseline.json", b"one")
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    there.keep(there.newest(there.root / "baseline.json"), b"two")
    assert here.newest(here.root / "baseline.json").read_bytes() == b"two"


@pytest.mark.parametrize("name", ["../../../evil", "a/../../../../evil", "//evil", "a\\..\\evil", "./evil"])
def test_a_key_that_leads_out_of_the_workspace_is_passed_over(s3: S3Double, name: str) -> None:
    here = Workspace.at(ADDRESS)
    s3.write(f"team/tables/documents/{name}", b"planted")
    s3.write("team/tables/documents/good", b"good")
    here.storage.bring_missing("tables/documents")
    with here.growing(here.root / "tables" / "documents"):
        pass
    assert [path.read_bytes() for path in s3.folder.rglob("*") if path.is_file()] == [b"good"]
    assert here.storage.names("tables") == {"tables/documents/good"}


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


def test_what_the_bucket_has_lost_is_sent_again(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    table, index = here.write_table("numbers", TABLE), here.write_index("digest", 3, fill)
    before = s3.keys("team/")
    s3.remove(f"team/{table.uri}", f"team/{index.uri}/data/rows")
    for ref in (table, index):
        here.ensure(here.root / ref.uri)
    assert s3.keys("team/") == before


def test_a_folder_that_grows_is_shared_and_what_is_merged_away_goes(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    folder = here.root / "cache" / "embeddings" / "model"
    with here.growing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("a", "b"):
            (folder / name).write_bytes(name.encode())
    s3.on_machine("two")
    there = Workspace.at(ADDRESS)
    other = there.root / "cache" / "embeddings" / "model"
    with there.growing(other):
        assert sorted(path.name for path in other.iterdir()) == ["a", "b"]
        (other / "ab").write_bytes(b"ab")
        for name in ("a", "b"):
            (other / name).unlink()
    assert [key.rpartition("/")[2] for key in s3.keys("team/cache")] == ["ab"]
    with pytest.raises(FileNotFoundError):
        fail_halfway(here, folder)
    assert {"ab", "c"} <= {key.rpartition("/")[2] for key in s3.keys("team/cache")}  # finished work is kept


def test_vectors_of_others_are_old_to_a_run_that_makes_all_anew(s3: S3Double) -> None:
    here = Workspace.at(ADDRESS)
    folder = here.root / "cache" / "embeddings" / "model"
    with here.growing(folder):
        folder.mkdir(parents=True)
        (folder / "a").write_bytes(b"a")
    s3.on_machine("two")
    begun = datetime(2020, 1, 1, tzinfo=UTC)
    anew = Workspace.at(ADDRESS, refresh=True).model_copy(update={"begun": begun})
    with anew.growing(anew.root / "cache" / "embeddings" / "model"):
        assert (anew.root / "cache" / "embeddings" / "model" / "a").stat().st_mtime_ns < begun.timestamp() * 1e9


def test_what_is_wrong_with_a_bucket_is_one_sentence_without_keys(
    s3: S3Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServiceError, match="bucket of 's3://other-bucket/x' is not there: make it") as missing:
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
        with pytest.raises(RequestRefusedError, match=r"is refused to the keys given: check AWS_ACCESS_KEY_ID"):
            Workspace.at(ADDRESS).write_table("numbers", TABLE)
