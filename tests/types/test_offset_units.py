"""Offsets in other units lead to the same characters, over ugly text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import nasty_texts

from rag_eval.types.offsets import OffsetUnit, fitting_unit, length_unit, to_code_points, translated


def in_unit(text: str, unit: OffsetUnit) -> int:
    """How long a text is in a unit, the long way round."""
    if unit == "UTF-8 byte offsets":
        return len(text.encode())
    if unit == "UTF-16 unit offsets":
        return sum(2 if ord(character) > 0xFFFF else 1 for character in text)
    return len(translated(text)) if unit == "offsets that count CRLF as one" else len(text)


@pytest.mark.parametrize("unit", ["code points", "UTF-8 byte offsets", "UTF-16 unit offsets"])
@settings(max_examples=80, deadline=None, derandomize=True)
@given(nasty_texts(max_size=60).filter(bool), st.data())
def test_a_place_is_carried_over(unit: OffsetUnit, content: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(start + 1, len(content)))
    given_start, given_end = in_unit(content[:start], unit), in_unit(content[:end], unit)
    assert to_code_points(content, given_start, given_end, unit) == (start, end)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(nasty_texts(max_size=60).filter(bool), st.data())
def test_a_place_in_a_text_with_translated_line_ends_is_carried_over(content: str, data: st.DataObject) -> None:
    seen = translated(content)
    start = data.draw(st.integers(0, len(seen) - 1))
    end = data.draw(st.integers(start + 1, len(seen)))
    place = to_code_points(content, start, end, "offsets that count CRLF as one")
    assert place is not None
    assert translated(content[slice(*place)]) == seen[start:end]


@pytest.mark.parametrize(
    ("start", "end", "unit"),
    [
        (0, 9, "code points"),
        (2, 2, "code points"),
        (-1, 2, "code points"),
        (1, 4, "UTF-8 byte offsets"),
        (1, 2, "UTF-16 unit offsets"),
        (0, 99, "UTF-8 byte offsets"),
        (0, 7, "offsets that count CRLF as one"),
    ],
)
def test_a_place_outside_or_inside_a_character_is_none(start: int, end: int, unit: OffsetUnit) -> None:
    assert to_code_points("😀a\r\nb é", start, end, unit) is None


def test_the_unit_that_fits_is_named_and_code_points_never_are() -> None:
    assert fitting_unit("é two", 3, 6, "two") == fitting_unit("é two", 3, None, "two")
    assert fitting_unit("one two", 0, 3, "two") is None
    assert length_unit("é", 2) == "UTF-8 byte offsets"
    assert length_unit("😀", 2) == "UTF-16 unit offsets"
    assert length_unit("a\r\nb", 3) == "offsets that count CRLF as one"
    assert length_unit("one", 3) is None
    assert length_unit("one", 4) is None
