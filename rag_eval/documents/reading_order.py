"""The order in which the words of a page are read: lines, columns and tables."""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

Letters = Sequence[str]


class Word(NamedTuple):
    """A word and its box, in points from the upper left corner of its page.

    ``pitch`` is how wide each of its glyphs is, where all are as wide; ``is_turned`` says that it does not run along a
    horizontal line.
    """

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    baseline: float
    pitch: float = 0.0
    is_rtl: float = False
    is_turned: float = False


class Line(NamedTuple):
    """Words as they are read, one after the other."""

    words: list[Word]


def is_right_to_left(letters: Letters) -> bool:
    """Whether most letters are of a script that runs from right to left."""
    if max(letters) < "\u0590":
        return False
    kinds = [unicodedata.bidirectional(letter) for letter in letters]
    return sum(kind in ("R", "AL") for kind in kinds) > kinds.count("L")


def in_clusters(letters: Letters) -> list[str]:
    """Return letters, each with the marks that follow it."""
    found: list[str] = []
    for letter in letters:
        if found and unicodedata.combining(letter):
            found[-1] += letter
        else:
            found.append(letter)
    return found


def lines_in_order(words: list[Word]) -> list[Line]:
    """Return the lines of a page as they are read."""
    lines: list[Line] = []
    for word in words:
        last = lines[-1].words[-1] if lines else None
        if last is not None and abs(last.baseline - word.baseline) < 0.5 * max(last.size, word.size):
            lines[-1].words.append(word)
        else:
            lines.append(Line([word]))
    return lines
