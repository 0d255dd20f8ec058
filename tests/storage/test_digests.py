import os
from pathlib import Path

import pytest

from rag_eval.storage.files import contents_sha256, data_sha256, file_sha256, files_sha256, kept_sha256, touch
from rag_eval.types.ids import text_sha256


def test_a_kept_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for number, content in enumerate(("one", "two", "longer")):
        path.write_text(content)
        os.utime(path, ns=(number, number))
        assert kept_sha256(path) == file_sha256(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        kept_sha256(path)


def test_a_kept_file_is_not_read_again_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    known, stamp = kept_sha256(path), path.stat().st_mtime_ns
    path.write_text("two")
    os.utime(path, ns=(stamp, stamp))
    assert kept_sha256(path) == known
    touch(path)
    assert path.stat().st_mtime_ns > stamp
    assert kept_sha256(path) == known
    os.utime(path)
    assert kept_sha256(path) == file_sha256(path) != known


def test_what_was_changed_before_it_is_touched_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    kept_sha256(path)
    path.write_text("longer")
    touch(path)
    assert kept_sha256(path) == file_sha256(path)


def test_texts_have_the_digest_of_their_files(tmp_path: Path) -> None:
    texts = {"a.md": "one", "b/c.md": "zwei\r\n"}
    (tmp_path / "b").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    paths = [tmp_path / name for name in texts]
    of_texts = contents_sha256((name, text_sha256(text)) for name, text in texts.items())
    assert files_sha256(tmp_path, paths) == files_sha256(tmp_path, paths, kept_sha256) == of_texts
    assert data_sha256({"b": 1, "a": [2]}) == data_sha256({"a": [2], "b": 1})
