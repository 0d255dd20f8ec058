"""Data inside the page comes out as it went in, and cannot break out."""

import base64
import html
import json
import re
import zlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from rag_eval.reports.html import Section, templates

PAGES = templates()
NASTY = st.text() | st.sampled_from(["</script>", "<!--", "<script>", "]]>", "\u2028", "&lt;", '"', "\\u003c"])


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(NASTY, st.lists(NASTY)))
def test_json_comes_back_and_holds_no_markup(data: dict[str, list[str]]) -> None:
    inner = PAGES.from_string("{{ data|tojson }}").render(data=data)
    assert not set(inner) & set("<>&\u2028\u2029")
    assert json.loads(inner) == data


TURNS = "[\u202a-\u202e\u2066-\u2069]"


def as_escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


@settings(deadline=None, derandomize=True)
@given(NASTY, NASTY)
def test_text_in_markup_is_escaped(content: str, attribute: str) -> None:
    template = PAGES.from_string('<p title="{{ attribute }}">{{ content }}</p>')
    written = template.render(content=content, attribute=attribute)
    found = re.fullmatch(r'<p title="([^"<>]*)">([^<>]*)</p>', written, re.DOTALL)
    assert found is not None
    for seen, before in zip(found.groups(), (attribute, content), strict=True):
        assert html.unescape(seen) == html.unescape(html.escape(re.sub(TURNS, as_escape, before)))
    markup = Markup(written)  # noqa: S704  # what was escaped is not escaped again
    assert template.render(content=markup, attribute="") == f'<p title="">{written}</p>'
    heading = PAGES.from_string("{{ content|breakable }}").render(content=content)
    assert html.unescape(re.sub("<wbr>", "", heading)) == html.unescape(found[2])


def test_a_name_does_not_turn_the_sentence_around_it() -> None:
    written = PAGES.from_string("<p>{{ sentence }}</p>").render(sentence="Ship \u202egpj.exe\u2069.")
    assert written == "<p>Ship \\u202egpj.exe\\u2069.</p>"


def unpack(section: Section) -> bytes:
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", section.packed)
    return zlib.decompress(base64.b64decode(section.packed))


def test_sections_come_back() -> None:
    values = np.array([[1, -1], [2**31 - 1, 0]])
    assert np.frombuffer(unpack(Section.of("hits-0", values)), "<i4").tolist() == values.ravel().tolist()
    shares = np.array([0.5, np.nan, 1.0], dtype=np.float32)
    assert np.array_equal(np.frombuffer(unpack(Section.of("s", shares)), "<f4"), shares, equal_nan=True)
    assert json.loads(unpack(Section.of("queries", ["</script>🚢", 1]))) == ["</script>🚢", 1]
    assert unpack(Section.of("texts", b"\x00</script>")) == b"\x00</script>"
