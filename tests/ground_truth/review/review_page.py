"""A review in a real browser, for tests to type and click in."""

from collections.abc import Callable

import pytest

from tests.ground_truth.review.review_files import span

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
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
