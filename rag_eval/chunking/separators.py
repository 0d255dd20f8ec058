"""The separators of the recursive chunkers, and what happens around them."""

from collections.abc import Sequence

from rag_eval.chunking.base import Cut
from rag_eval.errors import ConfigurationError

DEFAULT_SEPARATORS = ("\n\n", "\n", " ", "")
"""LangChain's: paragraphs, lines, words, characters."""

CHROMA_SEPARATORS = ("\n\n", "\n", ".", "?", "!", " ", "")
"""Those of Chroma's chunking evaluation, which try sentences before words."""


def check_separators(separators: Sequence[str]) -> tuple[str, ...]:
    """The separators as a tuple; raises ``ConfigurationError`` when there is none or one is not a string."""
    is_list = isinstance(separators, Sequence) and not isinstance(separators, str)
    if not is_list or not all(isinstance(separator, str) for separator in separators):
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


def add_unsplit(cuts: list[Cut], text: str, start: int, end: int) -> None:
    """Add ``[start, end)``, which no separator can split, as it is; nothing if it is whitespace alone."""
    if not text[start:end].isspace():
        cuts.append((start, end))
