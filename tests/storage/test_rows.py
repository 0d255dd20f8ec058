"""Rows by key: found again by all who look, never half, newest first, and whatever is planted is only data."""

import hashlib
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rag_eval.errors import ArtifactError, ConfigurationError
from rag_eval.storage.rows import KEY, MANY_FILES, KeyedRows, identity_folder, write_table

SCHEMA = pa.schema([pa.field("key", KEY, nullable=False), pa.field("value", pa.int64(), nullable=False)])


def key(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def values(rows: KeyedRows, count: int) -> list[int | None]:
    found = rows.get([key(n) for n in range(count)])
    return [found[key(n)]["value"] if key(n) in found else None for n in range(count)]


def test_rows_are_found_by_their_keys_and_by_nothing_else(tmp_path: Path) -> None:
    rows = KeyedRows(tmp_path / "rows", SCHEMA)
    assert rows.get([key(1)]) == {}
    assert rows.get([]) == {}
    rows.put({})
    assert not rows.folder.exists()
    rows.put({key(n): {"value": n} for n in range(5)})
    rows.put({key(7): {"value": 7}})
    for reader in (rows, KeyedRows(rows.folder, SCHEMA)):
        assert values(reader, 9) == [0, 1, 2, 3, 4, None, None, 7, None]


def test_rows_from_before_a_moment_are_passed_over_and_the_newest_of_a_key_counts(tmp_path: Path) -> None:
    rows = KeyedRows(tmp_path, SCHEMA)
    rows.put({key(n): {"value": n} for n in range(3)})
    anew = KeyedRows(tmp_path, SCHEMA, made_since=datetime.now(UTC))
    assert values(anew, 3) == [None] * 3
    anew.put({key(1): {"value": 10}})
    assert values(anew, 3) == [None, 10, None]
    assert values(rows, 3) == [0, 10, 2]


def test_a_merge_passes_over_no_file_whose_older_rows_would_win(tmp_path: Path) -> None:
    rows = KeyedRows(tmp_path, SCHEMA)
    rows.put({key("first"): {"value": 0}})
    rows.put({key(n): {"value": 1} for n in range(5 * MANY_FILES)})
    anew = KeyedRows(tmp_path, SCHEMA, made_since=datetime.now(UTC))
    anew.put({key(0): {"value": 2}})
    for number in range(MANY_FILES):
        rows.put({key(("more", number)): {"value": 3}})
        assert values(rows, 2) == [2, 1]
    assert len(rows.files()) < MANY_FILES


def test_many_files_become_few_and_the_newest_of_equal_keys_wins(tmp_path: Path) -> None:
    rows = KeyedRows(tmp_path, SCHEMA)
    for number in range(3 * MANY_FILES):
        rows.put({key(number): {"value": number}, key("same"): {"value": number}})
        if number < MANY_FILES:
            assert len(rows.files()) == number + 1
    assert len(rows.files()) <= MANY_FILES
    assert values(rows, 3 * MANY_FILES) == list(range(3 * MANY_FILES))
    assert len(list(tmp_path.iterdir())) == len(rows.files())


@pytest.mark.parametrize(("large", "files"), [(2 * MANY_FILES, 1), (2 * MANY_FILES + 1, 2)])
def test_a_file_is_merged_with_smaller_ones_that_have_half_its_rows(tmp_path: Path, large: int, files: int) -> None:
    rows = KeyedRows(tmp_path, SCHEMA)
    rows.put({key(("large", n)): {"value": n} for n in range(large)})
    for number in range(MANY_FILES):
        rows.put({key(number): {"value": number}})
    assert len(rows.files()) == files
    assert values(rows, MANY_FILES) == list(range(MANY_FILES))


def test_a_file_that_another_thread_has_merged_already_was_written(tmp_path: Path) -> None:
    """Between a file's coming to its place and a look at it another thread may have put its rows elsewhere."""
    table, done = pa.table({"n": pa.array([1])}), threading.Event()

    def merge() -> None:
        while not done.is_set():
            for path in tmp_path.glob("*.arrow"):
                path.unlink(missing_ok=True)

    merging = threading.Thread(target=merge)
    merging.start()
    try:
        for _ in range(400):
            assert write_table(tmp_path, table.schema, [table]).suffix == ".arrow"
    finally:
        done.set()
        merging.join()


def test_what_is_new_is_not_merged_with_what_is_too_old(tmp_path: Path) -> None:
    rows = KeyedRows(tmp_path, SCHEMA)
    for number in range(MANY_FILES - 1):
        rows.put({key(number): {"value": number}})
    anew = KeyedRows(tmp_path, SCHEMA, made_since=datetime.now(UTC))
    for number in range(MANY_FILES):
        anew.put({key(number): {"value": -1}})
    assert values(anew, MANY_FILES) == [-1] * MANY_FILES


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"key": pa.array([bytes(32)], KEY), "value": ["text"]}),
        pa.table({"key": ["short"], "value": [1]}),
        pa.table({"value": [1]}),
        pa.Table.from_batches([], SCHEMA),
    ],
    ids=["other type", "other key", "no key", "no batch"],
)
def test_a_planted_file_with_other_columns_is_dropped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, table: pa.Table
) -> None:
    rows = KeyedRows(tmp_path, SCHEMA)
    path = write_table(tmp_path, table.schema, [table])
    with caplog.at_level(logging.WARNING):
        assert rows.get([bytes(32).hex()]) == {}
    assert f"{path} is damaged (its columns are wrong): it is removed" in caplog.text
    assert not path.exists()


def planted(kind: pa.DataType, offsets: list[int], values: pa.Buffer | pa.Array) -> pa.Array:
    """A column of this type as nobody writes one, from the buffers that it has in a file."""
    buffers = [None, pa.array(offsets, pa.int32()).buffers()[1]]
    if isinstance(values, pa.Array):
        return pa.Array.from_buffers(kind, len(offsets) - 1, buffers, children=[values])
    return pa.Array.from_buffers(kind, len(offsets) - 1, [*buffers, values])


@pytest.mark.parametrize(
    "column",
    [
        planted(pa.list_(pa.int64()), [0, 900, 1], pa.array([7], pa.int64())),
        planted(pa.string(), [0, 900, 2], pa.py_buffer(b"no")),
        planted(pa.string(), [0, 1, 2], pa.py_buffer(b"\xff\xfe")),
    ],
    ids=["a list beyond its values", "a text beyond its bytes", "no text"],
)
def test_a_planted_file_whose_values_are_none_is_dropped_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: pa.Array
) -> None:
    table = pa.table({"key": pa.array([bytes(32), bytes([1] * 32)], KEY), "value": column})
    path = write_table(tmp_path, table.schema, [table])
    with caplog.at_level(logging.WARNING):
        assert KeyedRows(tmp_path, table.schema).get([bytes(32).hex()]) == {}
    assert f"{path} is damaged" in caplog.text
    assert not path.exists()


def test_a_planted_file_that_is_no_table_is_dropped_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = b"cos\nsystem\n(S'touch planted'\ntR."
    path = tmp_path / f"{hashlib.sha256(data).hexdigest()}.arrow"
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert KeyedRows(tmp_path, SCHEMA).get([key(1)]) == {}
    assert "is not an Arrow table" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_named_by_the_whole_identity(tmp_path: Path) -> None:
    identities = ["model/256", "model-256", "MODEL/256", "model/256 ", "../model", "模型", "x" * 500, "x" * 501]
    folders = {identity_folder(tmp_path, identity, identity) for identity in identities}
    assert len(folders) == len(identities)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert max(len(folder.name) for folder in folders) <= 80


def test_places_that_cannot_hold_rows_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not a folder"):
        KeyedRows(tmp_path / "file", SCHEMA)
    with pytest.raises(ArtifactError, match="cannot be created"):
        KeyedRows(tmp_path / "file" / "rows", SCHEMA).put({key(1): {"value": 1}})
