"""Data inside the page comes out as it went in, and cannot break out."""

import base64
import html
import json
import re
import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.reports.html import element, json_element, numbers, records, text

NASTY = st.text() | st.sampled_from(["</script>", "<!--", "<script>", "]]>", "\u2028", "&lt;", '"', "\\u003c"])


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(NASTY, st.lists(NASTY)))
def test_json_comes_back_and_holds_no_markup(data: dict[str, list[str]]) -> None:
    written = json_element("manifest", data)
    inner = written.removeprefix('<script type="application/json" id="manifest">').removesuffix("</script>")
    assert not set(inner) & set("<>&\u2028\u2029")
    assert json.loads(inner) == data


TURNS = "[\u202a-\u202e\u2066-\u2069]"


def as_escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


@settings(deadline=None, derandomize=True)
@given(NASTY, NASTY)
def test_text_in_markup_is_escaped(content: str, attribute: str) -> None:
    written = element("p", content, title=attribute)
    found = re.fullmatch(r'<p title="([^"<>]*)">([^<>]*)</p>', written, re.DOTALL)
    assert found is not None
    assert html.unescape(found[1]) == html.unescape(html.escape(attribute))
    assert html.unescape(found[2]) == html.unescape(html.escape(re.sub(TURNS, as_escape, content)))
    assert text(element("b", content)) == element("b", content)


def test_a_name_does_not_turn_the_sentence_around_it() -> None:
    assert element("p", "Ship \u202egpj.exe\u2069.") == "<p>Ship \\u202egpj.exe\\u2069.</p>"


def unpack(written: str) -> bytes:
    packed = re.fullmatch(r'<script type="text/plain" id="[\w-]+" data-kind="\w+">([A-Za-z0-9+/=]*)</script>', written)
    assert packed is not None
    return zlib.decompress(base64.b64decode(packed[1]))


def test_sections_come_back() -> None:
    values = np.array([[1, -1], [2**31 - 1, 0]])
    assert np.frombuffer(unpack(numbers("hits-0", values).element()), "<i4").tolist() == values.ravel().tolist()
    shares = np.array([0.5, np.nan, 1.0], dtype=np.float32)
    assert np.array_equal(np.frombuffer(unpack(numbers("s", shares).element()), "<f4"), shares, equal_nan=True)
    assert json.loads(unpack(records("queries", ["</script>🚢", 1]).element())) == ["</script>🚢", 1]
