from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rag_eval.errors import ArtifactError, DamagedError
from rag_eval.pipeline.references import TableRef
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.rows import write_table

TABLE = pa.table({"text": ["é", "👩🏽‍🚀"], "n": [1, 2]})


def test_a_table_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    ref = workspace.write_table("numbers", TABLE)
    assert workspace.read_table(ref).equals(TABLE)
    assert ref.rows == 2
    assert workspace.damage(ref) is None


def test_equal_tables_share_one_file(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    pieces = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]).replace_schema_metadata({"made": "elsewhere"})
    assert workspace.write_table("numbers", TABLE) == workspace.write_table("numbers", pieces)
    assert len(list(tmp_path.rglob("*.arrow"))) == 1


def test_nothing_half_written_stays_behind(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("…")
        raise OSError(28, "disk full")

    with pytest.raises(ArtifactError, match=r"indexes' cannot be written \(No space left on device\): make room"):
        Workspace(root=tmp_path).write_index("digest", 1, build)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_table_that_is_gone_or_altered_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    ref = workspace.write_table("numbers", TABLE)
    path = tmp_path / ref.uri
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=r"was altered \(sha256"):
        workspace.read_table(ref)
    path.write_bytes(content[:100])
    with pytest.raises(ArtifactError, match="was altered"):
        workspace.read_table(ref)
    path.unlink()
    with pytest.raises(ArtifactError, match="is missing from the workspace"):
        workspace.read_table(ref)


def test_a_planted_table_that_leads_beyond_its_bytes_is_refused_and_dropped(tmp_path: Path) -> None:
    buffers = [None, pa.py_buffer(np.array([0, 900, 2], np.int32)), pa.py_buffer(b"no")]
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 2, buffers)})
    path = write_table(tmp_path / "tables" / "texts", table.schema, [table])
    workspace, ref = Workspace(root=tmp_path), TableRef(uri=f"tables/texts/{path.name}", digest=path.stem, rows=2)
    with pytest.raises(DamagedError, match=r"is not a valid table \(it is not an Arrow table\): run again"):
        workspace.read_table(ref)
    assert not path.exists()


def test_an_index_is_known_by_what_made_it_and_checked_by_its_bytes(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    first = workspace.write_index("d" * 64, 3, lambda folder: _write(folder / "data", "first"))
    second = workspace.write_index("d" * 64, 3, lambda folder: _write(folder / "data", "second"))
    assert first.digest == second.digest
    assert first.uri != second.uri
    (tmp_path / first.uri / "data").write_text("altered")
    assert "was altered" in (workspace.damage(first) or "")
    assert workspace.damage(second) is None


def test_a_damaged_index_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    first = workspace.write_index("d" * 64, 3, lambda folder: _write(folder / "data", "content"))
    (tmp_path / first.uri / "data").write_text("altered")
    (tmp_path / first.uri / "more").write_text("altered")
    again = workspace.write_index("d" * 64, 3, lambda folder: _write(folder / "data", "content"))
    assert again == first
    assert workspace.damage(again) is None
    assert workspace.path(again) == tmp_path / first.uri
    assert [path.name for path in (tmp_path / "indexes").iterdir()] == [Path(first.uri).name]


def test_an_index_that_loses_a_file_or_is_gone_is_damaged(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path)
    ref = workspace.write_index("d" * 64, 3, lambda folder: _write(folder / "data", "content"))
    (tmp_path / ref.uri / "data").unlink()
    assert "was altered" in (workspace.damage(ref) or "")
    (tmp_path / ref.uri).rmdir()
    with pytest.raises(ArtifactError, match=r"indexes/.* is missing from the workspace .*: run again"):
        workspace.path(ref)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
