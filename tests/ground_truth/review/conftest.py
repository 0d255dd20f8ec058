from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ground_truth.review.review_files import review_address

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.ground_truth.review.review_page import Opener

REFUSED = "Failed to load resource"  # what a browser says of every answer that is no success


@pytest.fixture
def opened(chromium: "Browser") -> "Iterator[Opener]":
    """Opens the review of a file; what a page complains about fails the test."""
    from tests.ground_truth.review.review_page import expect

    trouble: list[str] = []
    with ExitStack() as stack:

        def open_page(truth: Path, **options: object) -> "Page":
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
