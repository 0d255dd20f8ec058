"""What the structural chunkers share: trimming, cutting to a size, and packing pieces into chunks.

Whitespace is what ``str.isspace`` says. Cuts leave whitespace out and keep every other character.
"""

import re
from collections.abc import Iterator, Sequence

from rag_eval.chunking.base import Cut

_LINE = re.compile(r"[^\r\n\u2028\u2029]+")
_NOT_SPACE = re.compile(r"\S")


def trim(text: str, start: int, end: int) -> Cut:
    """``[start, end)`` without whitespace at its borders; empty when there is nothing else."""
    piece = text[start:end]
    stripped = piece.lstrip()
    left = start + len(piece) - len(stripped)
    return left, left + len(stripped.rstrip())


def cut_to_size(text: str, start: int, end: int, size: int) -> list[Cut]:
    """Pieces of ``[start, end)`` of at most ``size`` characters: whole if it fits, else its lines, else words.

    A word longer than ``size`` is cut inside. Pieces are trimmed; there are none where there is only whitespace.
    """
    start, end = trim(text, start, end)
    if end - start <= size:
        return [(start, end)] if end > start else []
    pieces: list[Cut] = []
    for line in _LINE.finditer(text, start, end):
        first, last = trim(text, *line.span())
        if last > first:
            pieces.extend(_words(text, first, last, size))
    return pieces


def pack(pieces: Sequence[Cut], size: int, overlap: int = 0) -> Iterator[Cut]:
    """Consecutive pieces joined, with what stands between them, as long as the whole is at most ``size`` characters.

    Each group but the first starts with up to ``overlap`` pieces of the one before, as far as a new piece fits beside
    them. No piece may be longer than ``size``.
    """
    first = 0
    while first < len(pieces):
        start = pieces[first][0]
        after = first + 1
        while after < len(pieces) and pieces[after][1] - start <= size:
            after += 1
        yield start, pieces[after - 1][1]
        if after == len(pieces):
            return
        first = max(first + 1, after - overlap)
        while pieces[after][1] - pieces[first][0] > size:
            first += 1


def _words(text: str, start: int, end: int, size: int) -> Iterator[Cut]:
    while end - start > size:
        limit = start + size
        if text[limit].isspace() or text[limit - 1].isspace():
            cut = limit
        else:
            *before, last_word = text[start:limit].rsplit(None, 1)
            cut = limit - len(last_word) if before else limit
        yield trim(text, start, cut)
        following = _NOT_SPACE.search(text, cut, end)
        if following is None:
            return
        start = following.start()
    yield start, end
