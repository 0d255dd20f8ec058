"""Spans on the page in a real browser: selected, moved, added and mended, with places exact over emoji and CRLF."""

import json
from pathlib import Path

from tests.ground_truth.review.review_files import FERRY, Record, queries_in, span, write_files
from tests.ground_truth.review.review_page import Opener, expect, press, said, select

SELECTIONS = [
    ("😀", 0),
    ("👩‍👩‍👧\r\n\r\nDie", 0),
    ("fährt um 22:40.\r\nZwei 👍🏽 Boote: e\u0301ins", 0),
    ("🎉 fährt um 22:40.", 1),
    (FERRY.strip(), 0),
]


def test_a_selection_becomes_the_span(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    page = opened(truth)
    for text, occurrence in SELECTIONS:
        select(page, FERRY, text, occurrence)
        press(page, "e")
        expect(page.locator("mark.draft").first).to_be_visible()
        press(page, "Enter")
        expect(page.locator("mark.draft")).to_have_count(0)
        assert queries_in(truth)[0]["relevant_spans"] == [span("ferry.md", FERRY, text, occurrence)]
        marked = page.locator("mark.current").all_text_contents()
        assert "".join(marked) == text


def test_white_space_around_a_selection_is_left_out(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    page = opened(truth)
    select(page, FERRY, "\r\nZwei ")
    press(page, "e", "Enter")
    said(page, "Saved at")
    assert queries_in(truth)[0]["relevant_spans"] == [span("ferry.md", FERRY, "Zwei")]


def test_the_mouse_selects_and_adds_a_span(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    page = opened(truth)
    press(page, "n")
    expect(page.locator("#draft-text")).to_contain_text("select text")
    corners = page.evaluate(
        """() => {
          const node = document.querySelector("#document .block").firstChild;
          const at = node.data.indexOf("letzte");
          const range = document.createRange();
          range.setStart(node, at);
          range.setEnd(node, at + 6);
          const box = range.getBoundingClientRect();
          return [box.left, box.right, (box.top + box.bottom) / 2];
        }"""
    )
    page.mouse.move(corners[0] + 1, corners[2])
    page.mouse.down()
    page.mouse.move(corners[1], corners[2], steps=4)
    page.mouse.up()
    expect(page.locator("mark.draft")).to_have_text("letzte")
    page.locator("[data-action=save]").click()
    said(page, "Saved at")
    assert [one["text"] for one in queries_in(truth)[0]["relevant_spans"]] == ["22:40", "letzte"]
    press(page, "x")
    said(page, "It does not answer: saved.")
    assert [one["text"] for one in queries_in(truth)[0]["relevant_spans"]] == ["22:40"]


def test_the_ends_move_by_words_and_characters(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path, {"query": "x?", "relevant_spans": [span("ferry.md", FERRY, "Boote")]})
    page = opened(truth)
    press(page, "e", "ArrowRight", "ArrowRight")
    expect(page.locator("mark.draft")).to_have_text("Boote: e\u0301ins, zwei")
    press(page, "ArrowLeft", "Alt+ArrowLeft")
    expect(page.locator("mark.draft")).to_have_text("Boote: e\u0301in")
    press(page, "Shift+ArrowLeft")
    expect(page.locator("mark.draft")).to_have_text("Zwei 👍🏽 Boote: e\u0301in")
    press(page, "Shift+ArrowRight", "Shift+Alt+ArrowLeft", "Shift+Alt+ArrowLeft")
    expect(page.locator("mark.draft")).to_have_text("👍🏽 Boote: e\u0301in")
    press(page, "a")
    press(page, "Enter")
    said(page, "Saved at")
    assert queries_in(truth)[0]["relevant_spans"] == [span("ferry.md", FERRY, "👍🏽 Boote: e\u0301in")]
    press(page, "e", "ArrowRight", "Escape")
    said(page, "Left as it was.")
    assert len(queries_in(truth)[0]["relevant_spans"][0]["text"]) == len("👍🏽 Boote: e\u0301in")


def test_a_text_is_found_and_added_without_the_mouse(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    page = opened(truth)
    press(page, "/")
    page.keyboard.type("zwei 👍🏽")
    press(page, "Enter")
    expect(page.locator("mark.found")).to_have_text("Zwei 👍🏽")
    press(page, "Escape", "n", "Enter")
    said(page, "Saved at")
    assert queries_in(truth)[0]["relevant_spans"][1] == span("ferry.md", FERRY, "Zwei 👍🏽")
    press(page, "d")
    page.locator("#document-choice").select_option("hostile.md")
    expect(page.locator("#document")).to_contain_text("{{7*7}}")


def test_a_wrong_span_is_shown_with_its_reason_and_mended(tmp_path: Path, opened: Opener) -> None:
    wrong: Record = span("ferry.md", FERRY, "22:40", 1)
    wrong |= {"start": wrong["start"] - 2, "end": wrong["end"] - 2}
    truth = write_files(tmp_path, {"query": "x?", "relevant_spans": [wrong]})
    page = opened(truth)
    expect(page.locator(".span .fault")).to_contain_text("the text is at")
    press(page, "a")
    said(page, "adjust the span before you accept it")
    press(page, "e", "Enter")
    said(page, "Saved at")
    assert queries_in(truth)[0]["relevant_spans"] == [span("ferry.md", FERRY, "22:40", 1)]
    expect(page.locator(".span .fault")).to_have_count(0)
    press(page, "a")
    said(page, "Accepted and saved.")


def test_a_large_document_is_laid_out_where_it_is_looked_at(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    paragraph = "Ein Absatz 😀 mit Wörtern, der sich wiederholt, \r\n"
    content = paragraph * 24_000 + "Hier steht es." + "x" * 200_000
    (tmp_path / "docs" / "large.md").write_bytes(content.encode())
    there = span("large.md", content, "Hier steht es.")
    truth.write_text(json.dumps({"query": "where?", "relevant_spans": [there]}))
    page = opened(truth)
    expect(page.locator("mark.current")).to_be_in_viewport()
    select(page, content, "steht es.")
    press(page, "e", "Enter")
    said(page, "Saved at")
    assert queries_in(truth)[0]["relevant_spans"] == [span("large.md", content, "steht es.")]
    assert (
        page.evaluate("document.getElementById('document').textContent.length") == len(content.encode("utf-16-le")) / 2
    )
