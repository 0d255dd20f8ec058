"""The page in a real browser: keyboard first, places exact over emoji and CRLF, documents inert."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from strategies import NASTY_SAMPLES

from tests.ground_truth.review.review_files import (
    FERRY,
    HOSTILE,
    Record,
    queries_in,
    records,
    review_address,
    span,
    write_files,
)

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
REFUSED = "Failed to load resource"  # what a browser says of every answer that is no success
Page = playwright_api.Page
expect = playwright_api.expect
expect.set_options(timeout=20_000)  # a busy machine is no fault of the page
Opener = Callable[..., Page]

SELECT = """([from, to]) => {
  const walker = document.createTreeWalker(document.getElementById("document"), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  let before = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const after = before + node.length;
    if (before <= from && from < after) range.setStart(node, from - before);
    if (before < to && to <= after) range.setEnd(node, to - before);
    before = after;
  }
  document.getSelection().removeAllRanges();
  document.getSelection().addRange(range);
}"""


@pytest.fixture
def opened(chromium: "playwright_api.Browser") -> Iterator[Opener]:
    """Opens the review of a file; what a page complains about fails the test."""
    trouble: list[str] = []
    with ExitStack() as stack:

        def open_page(truth: Path, **options: object) -> Page:
            address = stack.enter_context(review_address(truth))
            context = chromium.new_context(**options)
            stack.callback(context.close)
            page = context.new_page()
            page.on("pageerror", lambda error: trouble.append(str(error)))
            page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
            page.goto(address)
            expect(page.locator("#position")).not_to_be_empty()
            assert "token" not in page.url
            return page

        yield open_page
    assert [one for one in trouble if not one.startswith(REFUSED)] == []


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def select(page: Page, content: str, text: str, occurrence: int = 0) -> None:
    """Select a text of the document shown, as the browser counts."""
    start = span("", content, text, occurrence)["start"]
    units = [len(content[:place].encode("utf-16-le")) // 2 for place in (start, start + len(text))]
    page.evaluate(SELECT, units)


def said(page: Page, text: str) -> None:
    expect(page.locator("#said")).to_contain_text(text)


def test_a_review_with_the_keyboard_alone(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    aside = tmp_path / "truth.rejected.jsonl"
    page = opened(truth)
    expect(page.locator("#question")).to_have_text("When?")
    expect(page.locator("mark.current")).to_have_text("22:40")
    press(page, "ArrowDown", "k", "j")
    expect(page.locator("#question")).to_have_text("Boats?")
    press(page, "ArrowRight")
    expect(page.locator("mark.current")).to_have_text("zwei")
    press(page, "h", "ArrowUp")
    # Typed in one go: what is typed waits for what was typed before.
    press(page, "a", "r", "a")
    expect(page.locator("#counts")).to_have_text("3 of 4 reviewed, 1 rejected")
    assert [query["metadata"]["review"] for query in queries_in(truth)[:2]] == ["accepted", "accepted"]
    assert [query["query"] for query in queries_in(aside)] == ["Boats?"]
    expect(page.locator("#question")).to_have_text("Never?")
    expect(page.locator("#unanswerable")).to_be_visible()
    press(page, "a")
    said(page, "Every query is reviewed.")
    press(page, "u", "u", "u")
    said(page, "Undone and saved.")
    expect(page.locator("#question")).to_have_text("Boats?")
    assert [query["query"] for query in queries_in(truth)] == [record["query"] for record in records()]
    assert [query.get("metadata", {}).get("review") for query in queries_in(truth)] == ["accepted", None, None, None]


def test_every_key_is_listed_on_the_page(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    for place in ("#keys", "#help-keys"):
        keys = set(page.locator(f"{place} kbd").all_text_contents())
        assert keys >= set("jkarenxulh/d?") | {"↑", "↓", "←", "→"}
    press(page, "?")
    expect(page.locator("#help")).to_be_visible()
    press(page, "a", "Escape")
    expect(page.locator("#help")).to_be_hidden()
    expect(page.locator("#counts")).to_have_text("0 of 4 reviewed")
    press(page, "e")
    assert {"Enter", "Esc", "Shift", "Alt"} <= set(page.locator("#keys kbd").all_text_contents())


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
    said(page, "Removed and saved.")
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
    expect(page.locator(".span .fault")).to_contain_text("the text stands at")
    press(page, "a")
    said(page, "adjust the span before you accept it")
    press(page, "e", "Enter")
    said(page, "Saved at")
    assert queries_in(truth)[0]["relevant_spans"] == [span("ferry.md", FERRY, "22:40", 1)]
    expect(page.locator(".span .fault")).to_have_count(0)
    press(page, "a")
    said(page, "Accepted and saved.")


def test_what_documents_and_queries_hold_is_text_and_nothing_else(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    press(page, "j", "j")
    expect(page.locator("#question")).to_have_text("<b>Script?</b>")
    expect(page.locator("mark.current")).to_have_text("{{7*7}}")
    assert page.evaluate("document.getElementById('document').textContent") == HOSTILE
    assert page.evaluate("window.pwned") is None
    assert page.locator("#document script, #document img, #list b").count() == 0


def test_what_somebody_else_wrote_is_noticed_and_shown_after_a_reload(tmp_path: Path, opened: Opener) -> None:
    truth = write_files(tmp_path)
    page = opened(truth)
    theirs = truth.read_bytes().replace(b"Boats?", b"Ships?")
    truth.write_bytes(theirs)
    press(page, "a")
    expect(page.locator("#notice")).to_contain_text("truth.jsonl was changed by somebody else")
    assert truth.read_bytes() == theirs
    page.locator("#reload").click()
    expect(page.locator("#list")).to_contain_text("Ships?")
    expect(page.locator("#notice")).to_be_hidden()
    press(page, "a")
    said(page, "Accepted and saved.")
    assert [query["query"] for query in queries_in(truth)[:2]] == ["When?", "Ships?"]


def test_the_list_shows_what_is_asked_for(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    press(page, "a")
    said(page, "Accepted")
    page.locator("#filter").select_option("accepted")
    expect(page.locator("#list li:visible")).to_have_count(2)  # and the one being looked at
    page.locator("#list button").first.click()
    expect(page.locator("#question")).to_have_text("When?")
    expect(page.locator("#list li:visible")).to_have_count(1)
    press(page, "j")
    said(page, "This is the last query.")


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


def test_offsets_are_counted_as_python_counts_them(tmp_path: Path, opened: Opener) -> None:
    page = opened(write_files(tmp_path))
    texts = [*NASTY_SAMPLES, FERRY, HOSTILE, "".join(NASTY_SAMPLES) * 3]
    counted = page.evaluate(
        """async (texts) => {
          const { DocumentText } = await import("/static/text.js");
          return texts.map((text) => {
            const document = new DocumentText(text);
            const points = Array.from(text);
            const units = points.map((_, point) => document.toUnits(point)).concat(document.toUnits(points.length));
            const whole = document.blocks.map((block) => text.slice(block.start, block.end)).join("") === text;
            return { units, back: units.map((unit) => document.toPoints(unit)), whole };
          });
        }""",
        texts,
    )
    for text, found in zip(texts, counted, strict=True):
        expected = [0]
        for character in text:
            expected.append(expected[-1] + (2 if ord(character) > 0xFFFF else 1))
        assert found == {"units": expected, "back": list(range(len(text) + 1)), "whole": True}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_can_be_read_and_reached(tmp_path: Path, opened: Opener, scheme: str, width: int) -> None:
    page = opened(write_files(tmp_path), viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in page.locator("button:visible, select:visible, input:visible").all():
        name = button.evaluate("one => (one.ariaLabel || one.labels?.[0]?.textContent || one.textContent).trim()")
        assert name
    press(page, "e")
    faint = page.evaluate(CONTRAST)
    assert faint == []


CONTRAST = """() => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const found = parts(getComputedStyle(element).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !element.checkVisibility() || element.disabled || element.closest(":disabled, option")) continue;
    const [one, other] = [light(parts(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) faint.push(`${element.tagName} ${element.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return faint;
}"""
