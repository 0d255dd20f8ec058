"""Files of a corpus and of ground truth that are not what they seem: unreadable, endless, elsewhere, too long."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue

from rag_eval.errors import CorpusError, GroundTruthError
from rag_eval.ground_truth.importing.importer import json_list
from rag_eval.ground_truth.sources import FileTruth, Observed
from rag_eval.ground_truth.truth_files import read_token_level
from rag_eval.storage.files import FOLLOW_LINKS, disk_fault
from rag_eval.types.documents import Corpus

ROOT = Path(__file__).parents[2]
NOBODY = 65534
READ = """
import os, sys
import rag_eval.documents.reading
from rag_eval.errors import CorpusError
from rag_eval.types.documents import Corpus
os.chdir(sys.argv[1])  # from here on only what is below need be open to that user
if os.getuid() == 0:
    os.setgid({nobody})
    os.setuid({nobody})
try:
    print(len(Corpus.from_folder(".", sys.argv[2])))
except CorpusError as error:
    print(error)
"""


def read_as_somebody_else(folder: Path, glob: str) -> str:
    """How many documents a user without special rights reads, or the error."""
    folder.chmod(0o755)
    command = [sys.executable, "-c", READ.format(nobody=NOBODY), str(folder), glob]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "setuid"), reason="there are no such rights")
@pytest.mark.parametrize("rights", [0o000, 0o444], ids=["closed", "listed"])
def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, rights: int) -> None:
    for name in ("a.md", "open/b.md", "closed/c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "closed").chmod(rights)
    try:
        told = read_as_somebody_else(tmp_path, "**/*.md")
        assert told.startswith("'closed")
        assert told.endswith("cannot be read (Permission denied): check the file and its permissions")
        # Where the pattern does not look, nothing need be read.
        assert read_as_somebody_else(tmp_path, "*.md") == "1"
        assert read_as_somebody_else(tmp_path, "open/*.md") == "1"
    finally:
        (tmp_path / "closed").chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "truth.jsonl")
    for path in (tmp_path / "truth.jsonl", Path("/dev/zero")):
        for read in (read_token_level, observe, imported):
            with pytest.raises(GroundTruthError, match="is a pipe or a device: give a file"):
                read(path)


def imported(path: Path) -> list[JsonValue]:
    return json_list(path, "data", "squad")


def observe(path: Path) -> Observed:
    return FileTruth(path).observe("token-level")


def test_a_path_that_is_too_long_is_one_short_sentence(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 5_000)
    for read in (Corpus.from_folder, read_token_level, observe, imported):
        with pytest.raises((CorpusError, GroundTruthError), match="is too long for this system") as caught:
            read(long)
        assert len(str(caught.value)) < 200


def test_a_link_out_of_the_corpus_is_refused_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs, secret = tmp_path / "docs", tmp_path / "secret.txt"
    (docs / "sub").mkdir(parents=True)
    (docs / "a.md").write_text("a")
    secret.write_text("a key")
    (docs / "sub" / "inside.md").symlink_to(docs / "a.md")
    assert len(Corpus.from_folder(docs)) == 2
    (docs / "sub" / "b.md").symlink_to(secret)
    with pytest.raises(CorpusError, match=r"b.md' is a link to '.*secret.txt', outside the corpus folder: "):
        Corpus.from_folder(docs)
    monkeypatch.setenv(FOLLOW_LINKS, "1")
    assert len(Corpus.from_folder(docs)) == 3
    monkeypatch.delenv(FOLLOW_LINKS)
    # A folder that is a link leads out as well, and a corpus that is reached by one does not.
    (docs / "sub" / "b.md").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c.md").write_text("c")
    (docs / "linked").symlink_to(tmp_path / "other")
    with pytest.raises(CorpusError, match="outside the corpus folder"):
        Corpus.from_folder(docs, "linked/*.md")
    (tmp_path / "way").symlink_to(docs)
    assert len(Corpus.from_folder(tmp_path / "way")) == 2


def test_a_full_disk_is_known_whatever_says_so() -> None:
    told = "the disk is full: make room, then run again; finished steps are kept"
    assert disk_fault(OSError(errno.ENOSPC, "x")) == told
    assert disk_fault(RuntimeError("(sqlite3.OperationalError) database or disk is full")) == told
    outer = RuntimeError("it failed")
    outer.__cause__ = OSError(errno.EDQUOT, "x")
    assert disk_fault(outer) == told
    assert disk_fault(OSError(errno.EACCES, "x")) is None
