"""How many tokens each piece of a text is on its own, from one encoding of the whole.

Encoding a text, then its lines, then its words is what makes token splitters slow. In the patterns of cl100k and o200k
no unit runs from an ASCII letter or digit into an ASCII character that is neither and no apostrophe, nor from anything
but whitespace into a blank. At such a place, here called clean, the tokens on one side do not depend on the other:
counts add up. So a piece between clean places is counted by looking up its ends among the tokens of the whole, and
elsewhere only the few characters up to the next clean place are encoded again.
"""

import re
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.tokens import count_tokens, encode, ends_of_tokens

SHORT = 40
"""Pieces of up to this many characters recur and are remembered; clean places are not sought further away."""

_BLANKS = " \t"
_CLEAN_PLACE = re.compile(r"[0-9A-Za-z](?=[^0-9A-Za-z'\x80-\U0010ffff])|\S(?=[ \t])")
_BEYOND_WHITESPACE = 0x3001  # no character from here on is whitespace


class TokenCounter:
    """Counts the tokens of pieces of one text, each as if it were encoded on its own."""

    def __init__(self, text: str, encoding: str) -> None:
        self.text = text
        self.encoding = encoding
        self._short: dict[str, int] = {}

    def count(self, start: int, end: int) -> int:
        """The tokens of ``text[start:end]``; short pieces are remembered."""
        piece = self.text[start:end]
        if len(piece) > SHORT:
            return count_tokens(piece, self.encoding)
        found = self._short.get(piece)
        if found is None:
            found = self._short[piece] = count_tokens(piece, self.encoding)
        return found


class EncodedPiece:
    """``text[start:end]``, encoded once to count the tokens of smaller pieces inside."""

    def __init__(self, counter: TokenCounter, start: int, end: int) -> None:
        self._counter = counter
        self._start = start
        self._end = end
        self._piece = counter.text[start:end]
        self._tokens = encode(self._piece, counter.encoding)
        self._token_starts: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """The number of tokens."""
        return len(self._tokens)

    def counts(self, places: NDArray[np.int64], following: str) -> NDArray[np.int64]:
        """The tokens of each piece between increasing places in ``[start, end]``.

        ``following`` is the character at each inner place, one that ``counts_before`` accepts.
        """
        characters = np.frombuffer(self._piece.encode("utf-32-le"), dtype=np.uint32)
        preceding = np.minimum(characters[places[1:-1] - self._start - 1], _BEYOND_WHITESPACE)
        clean = np.empty(len(places), dtype=np.bool_)
        clean[1:-1] = _clean_before(following)[preceding]
        clean[0], clean[-1] = self._is_clean(int(places[0])), self._is_clean(int(places[-1]))
        counts = np.diff(self._tokens_before(places))
        for unclean in np.flatnonzero(~(clean[1:] & clean[:-1])).tolist():
            counts[unclean] = self._count(int(places[unclean]), int(places[unclean + 1]))
        return counts

    def _count(self, start: int, end: int) -> int:
        if end - start > SHORT:
            left = start if self._is_clean(start) else self._clean_place_after(start)
            right = end if self._is_clean(end) else self._clean_place_before(end)
            if start <= left < right <= end:
                before, after = self._tokens_before([left, right]).tolist()
                return self._counter.count(start, left) + after - before + self._counter.count(right, end)
        return self._counter.count(start, end)

    def _tokens_before(self, places: ArrayLike) -> NDArray[np.int64]:
        # A token that is part of a character counts from where the character starts, so it is never before its place.
        if self._token_starts is None:
            ends = ends_of_tokens(self._tokens, self._piece, self._counter.encoding)
            self._token_starts = np.concatenate(([0], ends[:-1])) + self._start
        return self._token_starts.searchsorted(places)

    def _is_clean(self, place: int) -> bool:
        if place in (self._start, self._end):
            return True
        return _CLEAN_PLACE.match(self._counter.text, place - 1) is not None

    def _clean_place_after(self, place: int) -> int:
        found = _CLEAN_PLACE.search(self._counter.text, place, place + SHORT)
        return found.end() if found else self._end + 1

    def _clean_place_before(self, place: int) -> int:
        for earlier in range(place - 1, max(place - SHORT, self._start), -1):
            if self._is_clean(earlier):
                return earlier
        return self._start - 1


def counts_before(character: str) -> bool:
    """Whether places before this character can be clean."""
    return character.isascii() and not character.isalnum() and character not in ("", "'")


@cache
def _clean_before(character: str) -> NDArray[np.bool_]:
    """By the code of the preceding character, capped: whether the place before ``character`` is clean."""
    codes = map(chr, range(_BEYOND_WHITESPACE + 1))
    if character in _BLANKS:
        return np.array([not code.isspace() for code in codes])
    return np.array([code.isascii() and code.isalnum() for code in codes])
