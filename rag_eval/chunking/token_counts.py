"""How many tokens each piece of a text is on its own, from one encoding of the whole text.

Encoding paragraphs, then lines, then words is what makes token splitters slow. But there are places, here called clean,
that no unit of the cl100k and o200k patterns crosses, and where no unit looks ahead to the other side:

- after an ASCII letter or digit, before another ASCII character, unless that is an apostrophe;
- after anything but whitespace, before a space or tab;
- after a line end, before anything but whitespace or a slash.

The tokens on the two sides of a clean place are independent, so counts add up. A piece between clean places is counted
by looking up its ends among the tokens of the text; elsewhere the few characters up to the next clean place, most often
a full stop or a line end, are encoded on their own.
"""

import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rag_eval.tokens import count_tokens, token_ends

_CLEAN_PLACE = re.compile(r"[0-9A-Za-z](?=[^0-9A-Za-z'\x80-\U0010ffff])|\S(?=[ \t])|[\r\n](?=[^\s/])")
_SHORT = 40  # pieces up to this length recur and are remembered; clean places are not sought further away
_BEYOND_WHITESPACE = 0x3001  # no character from here on is whitespace


class TokenCounter:
    """One text and the tokens of its pieces, each counted as if it were encoded on its own.

    Raises ``TextEncodingError`` on a lone surrogate.
    """

    def __init__(self, text: str, encoding: str) -> None:
        self.text = text
        self._encoding = encoding
        # A token that is part of a character counts from where that character starts, so none is before its place.
        self._token_starts = np.concatenate(([0], token_ends(text, encoding)[:-1]))
        self._characters: NDArray[np.uint8] | NDArray[np.uint32]
        if text.isascii():
            self._characters = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
        else:
            self._characters = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        self._known: dict[str, int] = {"": 0}

    def borders(self, separator: str, start: int, end: int) -> NDArray[np.int64]:
        """Where the pieces of ``text[start:end]`` begin, and ``end``: a piece starts before each separator.

        Separators are taken from left to right and do not overlap; an empty one stands before every character.
        """
        if not separator:
            return np.arange(start, end + 1)
        if len(separator) == 1:
            found = (self._characters[start:end] == ord(separator)).nonzero()[0] + start
        else:
            matches = re.compile(re.escape(separator)).finditer(self.text, start, end)
            found = np.fromiter((match.start() for match in matches), dtype=np.int64)
        inner = found[1:] if len(found) and found[0] == start else found
        return np.concatenate(([start], inner, [end]))

    def counts(self, borders: NDArray[np.int64], separator: str) -> NDArray[np.int64]:
        """The tokens of each piece between borders that ``borders`` gave for this separator."""
        clean = np.zeros(len(borders), dtype=np.bool_)
        if separator and (clean_after := _clean_before(separator[0])) is not None:
            clean[1:-1] = clean_after.take(self._characters[borders[1:-1] - 1], mode="clip")
        clean[0], clean[-1] = self._is_clean(int(borders[0])), self._is_clean(int(borders[-1]))
        before = self._token_starts.searchsorted(borders)
        counts: NDArray[np.int64] = before[1:] - before[:-1]
        for piece in (~(clean[1:] & clean[:-1])).nonzero()[0].tolist():
            start, end = int(borders[piece]), int(borders[piece + 1])
            if end - start <= _SHORT:
                counts[piece] = self._count(start, end)
                continue
            # Only the ends of the piece differ from the text around: encode up to the nearest clean places again.
            left = start if clean[piece] else self._clean_place_after(start)
            right = end if clean[piece + 1] else self._clean_place_before(end)
            if start <= left < right <= end:
                inside = self._token_starts.searchsorted((left, right))
                counts[piece] = self._count(start, left) + inside[1] - inside[0] + self._count(right, end)
            else:
                counts[piece] = self._count(start, end)
        return counts

    def _count(self, start: int, end: int) -> int:
        piece = self.text[start:end]
        found = self._known.get(piece)
        if found is None:
            found = count_tokens(piece, self._encoding)
            if len(piece) <= _SHORT:
                self._known[piece] = found
        return found

    def _is_clean(self, place: int) -> bool:
        if place in (0, len(self.text)):
            return True
        return _CLEAN_PLACE.match(self.text, place - 1) is not None

    def _clean_place_after(self, place: int) -> int:
        found = _CLEAN_PLACE.search(self.text, place, place + _SHORT)
        return found.end() if found else len(self.text) + 1

    def _clean_place_before(self, place: int) -> int:
        for earlier in range(place - 1, max(place - _SHORT, 0), -1):
            if self._is_clean(earlier):
                return earlier
        return -1


@cache
def _clean_before(character: str) -> NDArray[np.bool_] | None:
    """By the code of the preceding character, capped: whether the place between the two is clean; None if it never is.

    The rule for line ends is left out here: it is for finding places, and a separator seldom follows a line end.
    """
    if not character.isascii() or character.isalnum() or character == "'":
        return None
    preceding = map(chr, range(_BEYOND_WHITESPACE + 1))
    if character in " \t":
        return np.array([not other.isspace() for other in preceding])
    return np.array([other.isascii() and other.isalnum() for other in preceding])
