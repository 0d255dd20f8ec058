"""Offsets that count something other than code points: telling the unit, and converting.

Other tools count UTF-8 bytes, UTF-16 units, or CRLF as one character. Naming the unit turns "the text is not there"
into a message that says what to change.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

OffsetUnit = Literal["code points", "UTF-8 byte offsets", "UTF-16 unit offsets", "offsets that count CRLF as one"]


@dataclass(frozen=True, slots=True)
class FittingUnit:
    """A unit in which the numbers fit the text, and the place in code points."""

    unit: OffsetUnit
    start: int
    end: int

    def __str__(self) -> str:
        """Return the advice for a message."""
        return f"these are {self.unit}, count code points: [{self.start}, {self.end})"


def length_unit(text: str, length: int) -> OffsetUnit | None:
    """Find the unit in which a text has this length; None where none fits, code points not tried."""
    return next((unit for unit, known in _lengths(text).items() if known == length != len(text)), None)


def fitting_unit(content: str, start: int, end: int | None, text: str) -> FittingUnit | None:
    """Find the foreign unit in which ``content`` has ``text`` at ``[start, end)``; None when it has it in none.

    Without ``end`` the text's length in that unit decides. In the last unit line ends are compared translated, as the
    source saw them.
    """
    for unit, length in _lengths(text).items():
        place = to_code_points(content, start, start + length if end is None else end, unit)
        if place is None:
            continue
        there = content[place[0] : place[1]]
        if there == text or (unit == "offsets that count CRLF as one" and translated(there) == translated(text)):
            return FittingUnit(unit, *place)
    return None


def to_code_points(content: str, start: int, end: int, unit: OffsetUnit) -> tuple[int, int] | None:
    """Convert a place to code points; None where it lies outside the text or inside a character."""
    if not 0 <= start < end:
        return None
    if unit == "code points":
        return (start, end) if end <= len(content) else None
    if unit == "offsets that count CRLF as one":
        # Each CRLF by the place of its LF in the translated text: what follows it is one further in the source.
        ends = [match.start() - number for number, match in enumerate(re.finditer("\r\n", content))]
        is_inside = end <= len(content) - len(ends)
        return (start + bisect_left(ends, start), end + bisect_left(ends, end)) if is_inside else None
    encoding, size = ("utf-8", 1) if unit == "UTF-8 byte offsets" else ("utf-16-le", 2)
    data = content.encode(encoding)
    if end * size > len(data):
        return None
    try:
        before = len(data[: start * size].decode(encoding))
        return before, before + len(data[start * size : end * size].decode(encoding))
    except UnicodeDecodeError:
        return None


def _lengths(text: str) -> dict[OffsetUnit, int]:
    return {
        "UTF-8 byte offsets": len(text.encode("utf-8", "surrogatepass")),
        "UTF-16 unit offsets": len(text.encode("utf-16-le", "surrogatepass")) // 2,
        "offsets that count CRLF as one": len(text) - text.count("\r\n"),
    }


def translated(text: str) -> str:
    """Return the text as Python's text mode gives it: every line end is LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
