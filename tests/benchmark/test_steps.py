import os
from pathlib import Path

import pytest

from rag_eval.disk.files import contents_sha256, files_sha256
from rag_eval.errors import CorpusError, GroundTruthError
from rag_eval.ground_truth.sources import FileTruth
from rag_eval.pipeline.document_steps import CorpusSource
from rag_eval.pipeline.references import hits_to_fetch
from rag_eval.pipeline.search_steps import MOST_HITS, SearchDepth
from rag_eval.types.documents import Corpus
from rag_eval.types.ids import text_sha256
from tests.made_tables import plain_chunks


def test_the_digest_of_a_folder_is_that_of_what_is_read_from_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in {"b.md": "\ufefftext\r\n👩🏽‍🚀\0", "a é.md": "", "sub/c.md": "x"}.items():
        (tmp_path / name).write_bytes(text.encode())
    contents = [(document.id, text_sha256(document.content)) for document in Corpus.from_folder(tmp_path)]
    digest = CorpusSource.of(tmp_path, "**/*.md").digest
    assert contents_sha256(contents) == digest
    assert contents_sha256([*contents, ("d.md", text_sha256(""))]) != digest
    (tmp_path / "b.md").write_text("other")
    assert CorpusSource.of(tmp_path, "**/*.md").digest != digest


def test_the_names_count_too(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    before = files_sha256(tmp_path, [tmp_path / "a.md"])
    (tmp_path / "a.md").rename(tmp_path / "b.md")
    assert files_sha256(tmp_path, [tmp_path / "b.md"]) != before


def test_a_truth_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroundTruthError, match=r"truth\.jsonl' is not there"):
        FileTruth(tmp_path / "truth.jsonl").observe("token-level")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    (tmp_path / "a.md").chmod(0)
    with pytest.raises(CorpusError, match=r"a\.md' cannot be read \(Permission denied\)"):
        CorpusSource.of(tmp_path, "*.md")
    with pytest.raises(GroundTruthError, match=r"a\.md' cannot be read \(Permission denied\)"):
        FileTruth(tmp_path / "a.md").observe("token-level")


@pytest.mark.parametrize(
    ("length", "hits"), [(600, 160), (100, MOST_HITS), (6_000, 50)], ids=["enough", "no more than that", "no fewer"]
)
def test_as_many_hits_are_fetched_as_fill_the_largest_budget(length: int, hits: int) -> None:
    chunks = plain_chunks([(f"chunk_{n}", "a.md", n, "x" * length) for n in range(3)])
    assert hits_to_fetch(SearchDepth(candidates=50, tokens=16_000), [chunks]) == hits
    halves = [chunks.slice(0, 1), chunks.slice(1)]
    assert hits_to_fetch(SearchDepth(candidates=50, tokens=16_000), halves) == hits
    assert hits_to_fetch(7, [chunks]) == 7
