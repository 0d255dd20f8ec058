"""The separators of the recursive chunkers, and what happens around them."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.base import Cut
from rag_eval.errors import ConfigurationError

DEFAULT_SEPARATORS = ("\n\n", "\n", " ", "")
"""LangChain's: paragraphs, lines, words, characters."""

CHROMA_SEPARATORS = ("\n\n", "\n", ".", "?", "!", " ", "")
"""Those of Chroma's chunking evaluation, which try sentences before words."""


def check_separators(separators: Sequence[str]) -> tuple[str, ...]:
    """The separators as a tuple; raises ``ConfigurationError`` when there is none or one is not a string."""
    if isinstance(separators, str) or not all(isinstance(separator, str) for separator in separators):
        raise ConfigurationError(f"separators is {separators!r}: give a list of strings")
    if not separators:
        raise ConfigurationError("separators is empty: give at least one, such as ''")
    return tuple(separators)


def choose_separator(separators: Sequence[str], text: str, start: int, end: int) -> tuple[str, Sequence[str]]:
    """The first separator that ``text[start:end]`` holds, and those left for its pieces.

    The empty separator is always held, and leaves none. If none is held, the last is chosen and none is left.
    """
    for rank, separator in enumerate(separators):
        if not separator:
            return separator, ()
        if text.find(separator, start, end) >= 0:
            return separator, separators[rank + 1 :]
    return separators[-1], ()


def piece_borders(separator: str, text: str, start: int, end: int) -> NDArray[np.int64]:
    """Where the pieces of ``text[start:end]`` begin, and ``end``: a piece starts before each separator.

    Separators are taken from left to right and do not overlap; an empty one stands before every character.
    """
    if not separator:
        return np.arange(start, end + 1)
    if len(separator) == 1:
        characters = np.frombuffer(text[start:end].encode("utf-32-le"), dtype=np.uint32)
        found = np.flatnonzero(characters == ord(separator)) + start
    else:
        matches = re.compile(re.escape(separator)).finditer(text, start, end)
        found = np.fromiter((match.start() for match in matches), dtype=np.int64)
    inner = found[1:] if len(found) and found[0] == start else found
    return np.concatenate(([start], inner, [end]))


def add_stripped(cuts: list[Cut], text: str, start: int, end: int) -> None:
    """Add ``[start, end)`` without the whitespace at its ends; nothing if that is all there is.

    A cut that starts where the previous one does holds all of it, and takes its place.
    """
    stripped = text[start:end].lstrip()
    if not stripped:
        return
    start = end - len(stripped)
    end = start + len(stripped.rstrip())
    if cuts and cuts[-1][0] == start:
        cuts.pop()
    cuts.append((start, end))
