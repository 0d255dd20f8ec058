import logging
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rag_eval import Document, DocumentId, MarkdownChunker, PositionAwareChunk
from rag_eval.chunking.placement import as_position_aware
from rag_eval.errors import SpanMismatchError
from rag_eval.pipeline.document_caches import CUTS, cut_documents, cut_once
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.rows import KEY, KeyedRows, write_table
from rag_eval.types.ids import text_sha256
from tests.doubles.canary import Canary

DOCS = [
    Document(DocumentId(f"{n}.md"), f"# Title {n}\n\nText of number {n}. 👩🏽‍🚀\n\n## More\n\nAnd more.")
    for n in range(5)
]
CHUNKER = MarkdownChunker(max_chunk_size=30)


def cut(folder: Path, documents: list[Document], chunker: Any = CHUNKER, **options: Any) -> tuple[Any, ...]:
    """Return the chunks, and how many documents were cut and pieces skipped."""
    chunks, effort = cut_once(KeyedRows(folder, CUTS, **options), chunker, documents)
    assert effort.total == len(documents)
    assert effort.tokens == 0
    return chunks, effort.fresh, effort.skipped


def plain(documents: list[Document]) -> list[PositionAwareChunk]:
    return [chunk for document in documents for chunk in CHUNKER.chunk_with_positions(document)]


def test_only_documents_that_changed_are_cut_and_the_chunks_are_the_same(tmp_path: Path) -> None:
    assert cut(tmp_path, DOCS) == (plain(DOCS), 5, 0)
    assert cut(tmp_path, DOCS) == (plain(DOCS), 0, 0)
    edited = [*DOCS[:2], Document(DOCS[2].id, "Something else."), *DOCS[3:]]
    assert cut(tmp_path, edited) == (plain(edited), 1, 0)
    assert cut(tmp_path, edited, made_since=datetime.now(UTC)) == (plain(edited), 5, 0)


def test_a_document_moved_or_doubled_is_not_cut_again_and_one_without_chunks_is_remembered(tmp_path: Path) -> None:
    twice = [DOCS[0], Document(DocumentId("copy.md"), DOCS[0].content), Document(DocumentId("empty.md"), " \n ")]
    chunks, fresh, _ = cut(tmp_path, twice)
    assert fresh == 2
    assert chunks == plain(twice)
    assert {chunk.doc_id for chunk in chunks} == {"0.md", "copy.md"}
    assert cut(tmp_path, twice)[1] == 0


def test_a_file_that_cannot_be_read_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / f"{'0' * 64}.arrow").mkdir()
    with caplog.at_level(logging.WARNING):
        assert cut(tmp_path, DOCS) == (plain(DOCS), 5, 0)
    assert "cannot be read (Is a directory): its rows are computed again" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"starts": [-1]},
        {"starts": [5], "ends": [5]},
        {"ends": [10_000]},
        {"starts": [0, 1]},
        {"starts": [None]},
        {"metadata": ["{"]},
        {"metadata": ["[1]"]},
        {"metadata": ["[" * 100_000]},
        {"metadata": [None]},
    ],
    ids=["negative", "empty", "beyond the end", "too many", "no number", "no JSON", "no object", "too deep", "no text"],
)
def test_cuts_that_do_not_fit_their_document_are_reported_and_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, list[object]]
) -> None:
    planted = {"starts": [0], "ends": [3], "metadata": ["{}"], "skipped": 0, "tokens": 0} | change
    digests = [text_sha256(document.content) for document in DOCS]
    KeyedRows(tmp_path, CUTS).put({digests[0]: planted})
    assert cut(tmp_path, DOCS[:2]) == (plain(DOCS[:2]), 2, 0)
    assert caplog.messages == ["the cached cuts of 0.md are damaged: it is cut again"]
    assert cut(tmp_path, DOCS[:2]) == (plain(DOCS[:2]), 0, 0)
    assert cut(tmp_path, [DOCS[0], DOCS[0]]) == (plain([DOCS[0], DOCS[0]]), 0, 0)


def test_a_file_of_other_rows_is_dropped_and_runs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    canary = tmp_path / "canary"
    called = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Canary(canary)),
    }
    folder = tmp_path / "cuts"
    for field in (pa.field("document_sha256", KEY, metadata=called), pa.field("other", pa.int64())):
        write_table(folder, pa.schema([field]), [pa.table([pa.array([], field.type)], schema=pa.schema([field]))])
    assert cut(folder, DOCS) == (plain(DOCS), 5, 0)
    assert caplog.text.count("is damaged (its columns are wrong): it is removed") == 2
    assert not canary.exists()


def test_pieces_without_a_place_are_counted_also_when_the_cuts_are_kept(tmp_path: Path) -> None:
    def with_an_invention(text: str) -> list[str]:
        return [*text.split("\n\n"), "said by nobody"]

    used = as_position_aware(with_an_invention)
    chunks, new, skipped = cut(tmp_path, DOCS[:2], used)
    assert (new, skipped) == (2, 2)
    assert cut(tmp_path, DOCS[:2], used) == (chunks, 0, 2)


class Shifted:
    """Gives the first three characters as if they began at the second."""

    name = "shifted"

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        return [replace(doc.chunk_at(0, 3), start=1, end=4)]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_chunk_that_is_not_where_it_says_is_refused(tmp_path: Path, in_memory: bool) -> None:
    workspace = None if in_memory else Workspace(root=tmp_path)
    with pytest.raises(SpanMismatchError, match=r"at \[1, 4\), the span says '# T'"):
        cut_documents(workspace, Shifted(), "shifted", DOCS)
