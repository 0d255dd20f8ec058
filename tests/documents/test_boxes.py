"""Where the text of a document is on its pages: packed, kept with a run, and drawn."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_eval.documents.boxes import Box, WordBox, boxes_at, pack
from rag_eval.documents.reading import page_picture
from rag_eval.errors import UnreadableDocumentError
from rag_eval.pipeline.document_caches import stored_boxes
from rag_eval.pipeline.document_steps import CorpusSource, StoredDocuments, load_corpus
from rag_eval.pipeline.workspace import Workspace
from rag_eval.storage.files import file_sha256
from rag_eval.types.documents import Corpus, Document
from rag_eval.types.ids import DocumentId
from tests.documents.made_files import pdf

PAGES = [["First page of two."], ["Guests pay", "on board."]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 2), st.booleans()), max_size=30))
def test_boxes_equal_those_of_a_naive_twin(words: list[tuple[int, int, int, bool]]) -> None:
    runs, place, page, left = [], 0, 1, 0.0
    for gap, length, turned, is_rtl in words:
        page, left, place = page + (turned == 2), 0.0 if turned else left, place + gap
        edges = (left, left + 0.02 * length)
        begin, end = edges[::-1] if is_rtl else edges
        runs.append(WordBox(place, place + length, page, begin, 0.1 * turned, end, 0.1 * turned + 0.05))
        place, left = place + length, left + 0.02 * length
    packed = pack(runs)
    for start, end in ((0, place), (place // 3, place - place // 3), (1, 4), (place, place + 9), (4, 4)):
        boxes: list[Box] = []
        for run in runs:
            step = (run.right - run.left) / (run.end - run.start)
            at = [
                run.left + step * (character - run.start)
                for character in range(run.start, run.end)
                if start <= character < end
            ]
            if at:
                edges = min(*at, *(edge + step for edge in at)), max(*at, *(edge + step for edge in at))
                line = (run.page, run.top, run.bottom)
                if boxes and (boxes[-1].page, boxes[-1].top, boxes[-1].bottom) == line:
                    edges = min(edges[0], boxes[-1].left), max(edges[1], boxes.pop().right)
                boxes.append(Box(run.page, edges[0], run.top, edges[1], run.bottom))
        found = boxes_at(packed, start, end)
        assert [box.page for box in found] == [box.page for box in boxes]
        assert np.allclose([box[1:] for box in found], [box[1:] for box in boxes], atol=1e-4)


@pytest.mark.parametrize(
    "runs",
    [
        [(5, 9, 1, 0, 0, 1, 1), (3, 4, 1, 0, 0, 1, 1)],
        [(0, 1, 0, 0, 0, 1, 1)],
        [(0, 1, 1, float("nan"), 0, 1, 1)],
        [(0, 2**40, 1, 0, 0, 1, 1)],
    ],
)
def test_invalid_boxes_are_refused(runs: list[tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="boxes"):
        pack([WordBox(*run) for run in runs])  # type: ignore[arg-type]


def test_a_damaged_map_has_no_boxes() -> None:
    packed = pack([WordBox(n, n + 1, 1, 0.1, 0.1, 0.2, 0.2) for n in range(0, 20_000, 2)])
    assert len(packed) < 4_000
    for altered in (b"\1", packed[:60], packed[:4] + b"\xff" * 200, packed[:70] + b"x" + packed[71:]):
        assert Document(DocumentId("a"), "text", box_map=altered).boxes(0, 9_000) == []


def test_boxes_of_a_foreign_map_are_on_the_page() -> None:
    runs = np.array([(0, 0, 1, 5, 5, 9, 9), (0, 4, 1, -9, -9, 10**6, 10**6)], "<i4")
    changes = np.diff(runs, axis=0, prepend=np.zeros((1, 7), "<i4")).astype("<i4").T
    block = zlib.compress(np.ascontiguousarray(changes).view(np.uint8).reshape(-1, 4).T.tobytes())
    packed = np.array([1, 0, 4, 2, len(block)], "<i4").tobytes() + block
    assert boxes_at(packed, 0, 4) == [(1, 0, 0, 1, 1)]


def test_a_long_document_is_looked_up_in_its_blocks() -> None:
    packed = pack([WordBox(2 * n, 2 * n + 1, 1 + n // 500, 0.1, 0.1, 0.2, 0.2) for n in range(50_000)])
    assert [box.page for box in boxes_at(packed, 60_000, 60_001)] == [61]
    assert [box.page for box in boxes_at(packed, 0, 100_000)] == list(range(1, 101))


def check(document: Document) -> None:
    start = document.content.index("pay")
    end = document.content.index("board") + 5
    first, second = document.boxes(start, end)
    assert (first.page, second.page) == (2, 2)
    assert abs(first.left - (72 + 12 * 3.55) / 612) < 0.02
    assert abs((first.top + first.bottom) / 2 - (792 - 720 - 4) / 792) < 0.01
    assert second.top > first.bottom - 0.01
    assert document.boxes(0, 5)[0].page == 1


def test_a_folder_and_a_workspace_know_the_boxes(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.pdf").write_bytes(pdf(PAGES))
    (docs / "b.md").write_text("No pages.")
    for document in Corpus.from_folder(docs, "*.pdf"):
        check(document)
    workspace = Workspace(root=tmp_path / "work")
    (source,) = CorpusSource.of(docs, ["*.pdf", "*.md"]).shards(1)
    shards = [load_corpus(source, workspace)[0]]
    check(StoredDocuments(shards, workspace=workspace)["a.pdf"])
    assert StoredDocuments(shards, workspace=workspace)["b.md"].boxes(0, 5) == []
    assert StoredDocuments(shards)["a.pdf"].boxes(0, 5) == []
    file, text = file_sha256(docs / "a.pdf"), shards[0].column("sha256")[0].as_py()
    found = [stored_boxes(workspace.root / "cache", workspace.storage, file, digest) for digest in (text, "0" * 64)]
    assert [bool(boxes) for boxes in found] == [True, False], "the boxes are those of one text"


def test_a_page_is_drawn_in_the_loader_process(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(PAGES))
    for source in (tmp_path / "a.pdf", pdf(PAGES)):
        picture = page_picture(source, 2, 306)
        assert picture.startswith(b"\x89PNG")
        assert struct.unpack(">II", picture[16:24]) == (306, 396)
    image = pytest.importorskip("PIL.Image")
    pixels = np.asarray(image.open(io.BytesIO(picture)).convert("L"))
    dark = np.argwhere(pixels < 128)
    assert pixels.mean() > 240
    assert dark[:, 0].max() < 60, "two lines at the top"
    for page in (0, 3):
        with pytest.raises(UnreadableDocumentError, match=f"has 2 pages and no page {page}"):
            page_picture(pdf(PAGES), page)
    with pytest.raises(UnreadableDocumentError, match="is not a PDF"):
        page_picture(b"none", 1)
