"""Pages of documents in the report: numbers for all, pictures with the relevant text marked for as many as fit."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.documents import FILE_DIGEST
from rag_eval.pipeline.workspace import Workspace
from rag_eval.reports import sheets
from rag_eval.reports.exports import export_run
from rag_eval.reports.question_data import pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.reports.write import keep_report
from rag_eval.results.run_scores import read_scores
from rag_eval.storage.files import data_sha256
from rag_eval.storage.rows import KeyedRows
from rag_eval.types.ids import DocumentId
from tests.chain import run_benchmark
from tests.documents.made_files import pdf
from tests.reports.conftest import Kept, Opened

OpenReport = Callable[..., Opened]
HOSTILE = "<img src=x onerror='window.pwned = 1'>"
PAGES = [
    ["The harbour office opens at eight.", "It is closed on Sundays."],
    ["Ferries leave at noon.", HOSTILE, "Children travel free of charge."],
    ["Dogs need a ticket of their own."],
]
ASKED = [("Who travels free?", 2, PAGES[1][2]), ("What do dogs need?", 3, PAGES[2][0]), ("What is this?", 2, HOSTILE)]


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A run about a PDF, a notebook and a text, with questions about pages and cells."""
    folder = tmp_path_factory.mktemp("paged")
    docs = folder / "docs"
    docs.mkdir()
    (docs / "guide.pdf").write_bytes(pdf(PAGES))
    (docs / "plain.md").write_text("Nothing but text about ferries.\n", encoding="utf-8")
    cell = {"cell_type": "markdown", "source": "Snow falls in winter, and ferries are late.", "metadata": {}}
    (docs / "weather.ipynb").write_text(json.dumps({"nbformat": 4, "cells": [cell]}), encoding="utf-8")
    lines = [
        {"query": query, "relevant_spans": [{"doc_id": "guide.pdf", "page": page, "text": text}]}
        for query, page, text in ASKED
    ]
    lines += [{"query": "When does snow fall?", "relevant_spans": [{"doc_id": "weather.ipynb", "place": "cell 1"}]}]
    truth = folder / "truth.jsonl"
    truth.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    config = BenchmarkConfig(
        corpus=docs,
        glob=["**/*"],
        ground_truth=truth,
        chunkers=[RecursiveCharacterChunker(40), RecursiveCharacterChunker(400)],
        retrieval=["bm25"],
        k=[2],
        metrics=["span_recall"],
    )
    workspace = Workspace(root=folder / "workspace")
    outcome = run_benchmark(workspace, config)
    keep_report(workspace, outcome)
    return Kept(workspace, outcome)


def test_passages_tell_their_page_and_show_it_with_the_text_marked(paged: Kept, open_report: OpenReport) -> None:
    opened = open_report(paged.page)
    page = opened.page
    opened.choose("search", "free")
    page.wait_for_function("document.querySelector('#question h3')?.textContent === 'Who travels free?'")
    assert "guide.pdf · page" in page.locator(".hits .where").first.inner_text()
    page.locator("details.sheet summary").first.click()
    page.wait_for_function("document.querySelector('.paper img')?.naturalWidth > 0")
    assert page.locator(".paper img").first.get_attribute("alt") == "Page 2 of guide.pdf"
    box = page.locator(".paper .found, .paper .missed").first.bounding_box()
    paper = page.locator(".paper").first.bounding_box()
    assert box is not None
    assert paper is not None
    # 12 points of Helvetica on the third line of a sheet of 612 × 792, 72 points from its left and its top.
    assert (box["x"] - paper["x"]) / paper["width"] == pytest.approx(72 / 612, abs=0.01)
    assert (box["y"] + box["height"] / 2 - paper["y"]) / paper["height"] == pytest.approx(100 / 792, abs=0.02)
    # What a PDF holds stays text.
    opened.choose("search", "What is this")
    page.wait_for_function("document.querySelector('#question h3')?.textContent === 'What is this?'")
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    assert page.locator("mark", has_text="onerror").count() > 0
    assert page.locator("#question .text img").count() == 0
    assert page.evaluate("window.pwned") is None
    # A cell is named, and has no picture.
    opened.choose("search", "snow")
    page.wait_for_function("document.querySelector('.hits .where')?.textContent.includes('cell 1')")
    assert page.locator("details.sheet").count() == 0
    assert opened.messages == []
    assert all(request.startswith(("file:", "blob:", "data:")) for request in opened.requests)


def packed(kept: Kept) -> dict[str, object]:
    questions = questions_of(kept.workspace, kept.outcome, read_scores(kept.workspace, kept.outcome))
    return {section.name: section for section in pack_overlay(questions).sections}


def sheets_in(kept: Kept) -> list[str]:
    return sorted(name for name in packed(kept) if name.startswith("sheet-"))


def test_as_many_pages_are_carried_as_fit(paged: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sheets_in(paged) == ["sheet-0", "sheet-1"], "one picture for two questions about a page"
    monkeypatch.setattr(sheets, "MOST_BYTES", 10_000)
    assert sheets_in(paged) in (["sheet-0"], [])


def test_pages_are_drawn_once_and_of_the_file_as_it_was_read(paged: Kept) -> None:
    path = Path(paged.outcome.corpus.folder) / "guide.pdf"
    kept, pictures = path.read_bytes(), paged.workspace.root / "cache" / "pictures"
    for other in (pdf([["Something else."]]), None):
        assert len(sheets_in(paged)) == 2
        try:
            path.unlink() if other is None else path.write_bytes(other)
            assert len(sheets_in(paged)) == 2
            shutil.rmtree(pictures)
            assert sheets_in(paged) == []
            assert "places" in json.loads(packed(paged)["documents"].content)  # type: ignore[attr-defined]
        finally:
            path.write_bytes(kept)


def test_exports_tell_where_on_its_page_a_passage_is(paged: Kept, tmp_path: Path) -> None:
    for kind in ("jsonl", "csv", "parquet"):
        export_run(paged.workspace, paged.outcome, kind, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "passages.jsonl").read_text(encoding="utf-8").splitlines()]
    passages = [passage for line in lines for passage in line["passages"]]
    dogs = next(one for one in passages if one["place"] == "page 3")
    page, left, top, right, bottom = dogs["boxes"][0]
    assert (page, left) == (3, pytest.approx(72 / 612, abs=0.01))
    assert left < right < 0.5
    assert top < 72 / 792 < bottom + 0.01
    assert all(one["boxes"] == [] for one in passages if one["doc_id"] != "guide.pdf")
    rows = pq.read_table(tmp_path / "passages.parquet").to_pylist()
    assert [json.loads(row["boxes"] or "[]") for row in rows] == [one["boxes"] for one in passages]
    assert (tmp_path / "passages.csv").read_text(encoding="utf-8").count("page 3") > 0


def test_places_are_those_that_ranges_begin_or_end_in(paged: Kept) -> None:
    questions = questions_of(paged.workspace, paged.outcome, read_scores(paged.workspace, paged.outcome))
    document = questions.paged.documents["guide.pdf"]
    starts = [start for start, _ in document.places]
    ranges = np.array([[1, 0, starts[2] + 1], [0, 0, 5], [-1, 0, 0]])
    found = questions.paged.places(["plain.md", "guide.pdf"], np.array([9, len(document.content)]), ranges)
    assert {number: [name for _, _, name in rows] for number, rows in found.items()} == {1: ["page 1", "page 3"]}


def test_of_a_long_passage_no_more_pages_are_drawn_than_fit(paged: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = questions_of(paged.workspace, paged.outcome, read_scores(paged.workspace, paged.outcome))
    document, pictures = questions.paged.documents["guide.pdf"], paged.workspace.root / "cache" / "pictures"
    shutil.rmtree(pictures, ignore_errors=True)
    monkeypatch.setattr(sheets, "MOST_BYTES", 1)
    length = len(document.content)
    assert questions.paged.sheets(["guide.pdf"], np.array([length]), [(0, 0, length)]) == ([], [])
    keys = [data_sha256([document.metadata[FILE_DIGEST], page]) for page in (1, 2, 3)]
    assert len(KeyedRows(pictures / str(sheets.WIDTH), sheets.PICTURES, paged.workspace.storage).get(keys)) == 1


def test_a_workspace_names_no_file_outside_of_the_documents(paged: Kept, tmp_path: Path) -> None:
    questions = questions_of(paged.workspace, paged.outcome, read_scores(paged.workspace, paged.outcome))
    document, workspace = questions.paged.documents["guide.pdf"], Workspace(root=tmp_path)
    metadata, told = json.dumps(dict(document.metadata)), ["../docs/guide.pdf", "guide.pdf"]
    named = {name: replace(document, id=DocumentId(name)) for name in told}
    paged_by = sheets.PagedDocuments(named, dict.fromkeys(told, metadata), paged.outcome.corpus.folder, workspace)
    length = len(document.content)
    found, _ = paged_by.sheets(told, np.array([length, length]), [(0, 0, length), (1, 0, length)])
    assert {one.document for one in found} == {1}


def test_a_picture_has_the_words_of_its_own_page(paged: Kept) -> None:
    questions = questions_of(paged.workspace, paged.outcome, read_scores(paged.workspace, paged.outcome))
    document, length = questions.paged.documents["guide.pdf"], len(questions.paged.documents["guide.pdf"].content)
    told = json.dumps(dict(document.metadata) | {"places": [(0, "all of it")]})
    one_place = sheets.PagedDocuments(
        {"guide.pdf": document}, {"guide.pdf": told}, paged.outcome.corpus.folder, paged.workspace
    )
    _, sections = one_place.sheets(["guide.pdf"], np.array([length]), [(0, 0, length)])
    words = np.frombuffer(sections[1].content, np.int32).reshape(-1, 6)
    assert words[:, 1].max() <= document.places[1][0]
