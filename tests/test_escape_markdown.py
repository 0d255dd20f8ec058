"""Text from outside stays text in Markdown, held against a real renderer."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rag_eval.formatting import escape_markdown

RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
UGLY = [
    "plain",
    "a | b || c",
    "<script>alert(1)</script>",
    "[link](http://example.com) ![image](x.png) <http://a.example>",
    "**bold** _em_ `code` ~~gone~~ \\ back\\slash \\|",
    "# heading\n- item\r\n1. one\u2028two",
    "&amp; &lt;b&gt; &#42;",
    "漢字 👩🏽‍🚀 \u202eright to left",
    "\x1b[31mred [bold]markup[/bold]",
    "{% raw %} {{ x }}",
]


def cell_text(escaped: str) -> str:
    """The text that a reader sees in a table's only cell; fails when the cell is more than text."""
    rendered = RENDERER.render(f"| head |\n|---|\n| {escaped} |\n")
    match = re.fullmatch(r".*<tbody>\s*<tr>\s*<td>(.*)</td>\s*</tr>\s*</tbody>\s*</table>\s*", rendered, re.DOTALL)
    assert match, rendered
    assert not re.search(r"<[a-z/]", match[1]), rendered
    return html.unescape(match[1])


def seen(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("text", UGLY, ids=range(len(UGLY)))
def test_ugly_text_is_seen_as_it_is(text: str) -> None:
    assert seen(cell_text(escape_markdown(text))) == seen(text)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from("ab*_`[]()<>|\\#!&;~{}.-+ 1\n\r:/@"), max_size=30))
def test_any_text_is_seen_as_it_is(text: str) -> None:
    assert seen(cell_text(escape_markdown(text))) == seen(text)
