"""Recognise and convert offsets that count something other than code points.

Other tools count UTF-8 bytes, UTF-16 units, or CRLF as one character. Naming the unit makes an error message
actionable.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

OffsetUnit = Literal["code points", "UTF-8 byte offsets", "UTF-16 unit offsets", "offsets that count CRLF as one"]


@dataclass(frozen=True, slots=True)
class FittingUnit:
    """The unit in which a place fits a text, and the place in code points. As a text, it is advice for a message."""

    unit: OffsetUnit
    start: int
    end: int

    def __str__(self) -> str:
        return f"these are {self.unit}, count code points: [{self.start}, {self.end})"


def length_unit(text: str, length: int) -> OffsetUnit | None:
    """Return the unit, other than code points, in which a text has this length, or None."""
    return next((unit for unit, known in _lengths(text).items() if known == length != len(text)), None)


def fitting_unit(content: str, start: int, end: int | None, text: str) -> FittingUnit | None:
    """Return the unit, other than code points, in which ``content[start:end]`` is ``text``, or None.

    If ``end`` is None, it follows from the length of the text in each unit. When CRLF counts as one character, texts
    are compared with their line ends converted to LF.
    """
    for unit, length in _lengths(text).items():
        place = to_code_points(content, start, start + length if end is None else end, unit)
        if place is None:
            continue
        slice_ = content[place[0] : place[1]]
        if slice_ == text or (unit == "offsets that count CRLF as one" and translated(slice_) == translated(text)):
            return FittingUnit(unit, *place)
    return None


def to_code_points(content: str, start: int, end: int, unit: OffsetUnit) -> tuple[int, int] | None:
    """Convert a place to code points. Return None if it is outside the text or splits a character."""
    if not 0 <= start < end:
        return None
    if unit == "code points":
        return (start, end) if end <= len(content) else None
    if unit == "offsets that count CRLF as one":
        # The LF of each CRLF in the converted text: what follows is one character further in the source.
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


def translated(text: str) -> str:
    """Return a text with all line ends converted to LF, as Python reads text files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _lengths(text: str) -> dict[OffsetUnit, int]:
    return {
        "UTF-8 byte offsets": len(text.encode("utf-8", "surrogatepass")),
        "UTF-16 unit offsets": len(text.encode("utf-16-le", "surrogatepass")) // 2,
        "offsets that count CRLF as one": len(text) - text.count("\r\n"),
    }
