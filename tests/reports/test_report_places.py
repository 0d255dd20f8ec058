"""Pages and cells of documents, in the report and in exports."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rag_eval.chunking.recursive import RecursiveCharacterChunker
from rag_eval.config.models import BenchmarkConfig
from rag_eval.reports.exports import export_run
from rag_eval.reports.question_data import pack_overlay
from rag_eval.reports.question_tables import questions_of
from rag_eval.results.run_scores import read_scores
from tests.documents.made_files import pdf
from tests.reports.conftest import Kept, Opened, run_and_report

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
    return run_and_report(folder / "workspace", config)


def test_passages_tell_their_page(paged: Kept, open_report: OpenReport) -> None:
    opened = open_report(paged.page)
    page = opened.page
    opened.choose("search", "free")
    page.wait_for_function("document.querySelector('#question h3')?.textContent === 'Who travels free?'")
    assert "guide.pdf · page" in page.locator(".hits .where").first.inner_text()
    # What a PDF holds stays text.
    opened.choose("search", "What is this")
    page.wait_for_function("document.querySelector('#question h3')?.textContent === 'What is this?'")
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    assert page.locator("mark", has_text="onerror").count() > 0
    assert page.locator("#question .text img").count() == 0
    assert page.evaluate("window.pwned") is None
    opened.choose("search", "snow")
    page.wait_for_function("document.querySelector('.hits .where')?.textContent.includes('cell 1')")
    assert opened.messages == []
    assert opened.requests == [paged.page.as_uri()]


def test_exports_tell_where_on_its_page_a_passage_is(paged: Kept, tmp_path: Path) -> None:
    export_run(paged.workspace, paged.outcome, "jsonl", tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "passages.jsonl").read_text(encoding="utf-8").splitlines()]
    passages = [passage for line in lines for passage in line["passages"]]
    dogs = next(one for one in passages if one["place"] == "page 3")
    page, left, top, right, bottom = dogs["boxes"][0]
    assert (page, left) == (3, pytest.approx(72 / 612, abs=0.01))
    assert left < right < 0.5
    assert top < 72 / 792 < bottom + 0.01
    assert all(one["boxes"] == [] for one in passages if one["doc_id"] != "guide.pdf")


def test_the_page_has_the_places_that_texts_begin_or_end_in(paged: Kept) -> None:
    questions = questions_of(paged.workspace, paged.outcome, read_scores(paged.workspace, paged.outcome))
    sections = {section.name: section for section in pack_overlay(questions).sections}
    documents = json.loads(sections["documents"].content)
    names = {documents["titles"][int(number)]: rows for number, rows in documents["places"].items()}
    assert names.keys() == {"guide.pdf", "weather.ipynb"}
    assert [name for _, _, name in names["guide.pdf"]] == ["page 1", "page 2", "page 3"]
    (start, end, name), *_ = names["guide.pdf"]
    assert (start, name) == (0, "page 1")
    assert end == names["guide.pdf"][1][0]
