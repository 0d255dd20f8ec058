"""What changes in a folder of documents is told once it has come to rest, by content."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from flows.deployments import MOST_NAMES, change_payload, corpus_resource
from rag_eval.documents.watch import CorpusChange, CorpusWatch
from rag_eval.errors import ConfigurationError, CorpusFolderError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    for name in ("a.md", "b.md", "deep/ü 漢.md"):
        (docs / name).write_text(name)
    return docs


def test_documents_are_compared_by_content(folder: Path) -> None:
    watch = CorpusWatch(folder, "**/*.md")
    (folder / "a.md").write_text("other")
    (folder / "b.md").unlink()
    (folder / "c.md").write_text("new")
    (folder / "notes.txt").write_text("no document")
    (folder / "deep" / "ü 漢.md").touch()
    touched = {path.resolve() for path in folder.rglob("*")} | {folder.resolve() / "b.md"}
    change = watch.compare(touched)
    assert change == CorpusChange(added=("c.md",), changed=("a.md",), removed=("b.md",))
    assert str(change) == "1 added, 1 changed, 1 removed"
    # Told again until it is accepted, with what came after it.
    (folder / "b.md").write_text("back, and other")
    assert watch.compare(touched) == CorpusChange(added=("c.md",), changed=("a.md", "b.md"), removed=())
    watch.accept()
    assert not watch.compare(touched)


def test_changes_are_reported_once_they_have_settled(folder: Path) -> None:
    watch, stop, seen = CorpusWatch(folder, "**/*.md"), threading.Event(), []

    def edit() -> None:
        for number in range(8):
            (folder / "a.md").write_text(f"version {number}")
            time.sleep(0.1)
        (folder / "c.md").write_text("new")

    editor = threading.Thread(target=edit)
    editor.start()
    for change in watch.changes(stop):
        seen.append(change)
        watch.accept()
        stop.set()
    editor.join()
    assert seen == [CorpusChange(added=("c.md",), changed=("a.md",), removed=())]


def test_an_empty_folder_is_watched_and_a_removed_one_is_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert not CorpusWatch(tmp_path / "empty", "**/*.md").compare(set())
    watch = CorpusWatch(folder, "**/*.md")
    shutil.rmtree(folder)
    with pytest.raises(CorpusFolderError, match="does not exist"):
        watch.compare({folder})
    with pytest.raises(CorpusFolderError):
        CorpusWatch(folder, "**/*.md")
    with pytest.raises(ConfigurationError):
        CorpusWatch(tmp_path / "empty", "../*.md")


def test_the_event_names_the_corpus_and_a_limited_number_of_documents(folder: Path) -> None:
    change = CorpusChange(added=tuple(f"{number}.md" for number in range(MOST_NAMES + 1)), changed=(), removed=("x",))
    payload = change_payload(folder, change)
    assert payload["corpus"] == str(folder.resolve())
    assert payload["summary"] == f"docs: {MOST_NAMES + 1} added, 1 removed"
    assert len(payload["added"]) == MOST_NAMES
    assert payload["counts"] == {"added": MOST_NAMES + 1, "changed": 0, "removed": 1}
    assert corpus_resource(folder) == corpus_resource(folder / ".." / "docs")
    assert corpus_resource(folder)["prefect.resource.id"] != corpus_resource(folder.parent)["prefect.resource.id"]
