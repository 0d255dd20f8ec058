"""LangChain's recursive splitting told plainly, on spans: slow, and easy to check by eye.

The peer tests show that it gives LangChain's chunks; the chunker tests compare the chunkers with it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from rag_eval.chunking.chunker import Cut


def langchain_spans(
    text: str, separators: Sequence[str], size: int, overlap: int, length: Callable[[str], int]
) -> list[Cut]:
    """Where each of LangChain's chunks comes from, in its order."""
    chunks: list[Cut] = []

    def measure(span: Cut) -> int:
        return length(text[span[0] : span[1]])

    def join(pieces: list[Cut]) -> None:
        joined = text[pieces[0][0] : pieces[-1][1]]
        if joined.strip():
            start = pieces[0][0] + len(joined) - len(joined.lstrip())
            chunks.append((start, start + len(joined.strip())))

    def merge(pieces: list[Cut]) -> None:
        window: list[Cut] = []
        for piece in pieces:
            total = sum(map(measure, window))
            if window and total + measure(piece) > size:
                join(window)
                while window and (total > overlap or total + measure(piece) > size):
                    total -= measure(window.pop(0))
            window.append(piece)
        if window:
            join(window)

    def split(start: int, end: int, separators: Sequence[str]) -> None:
        chosen, finer = separators[-1], separators[:0]
        for rank, separator in enumerate(separators):
            if separator in text[start:end]:
                chosen, finer = separator, separators[rank + 1 :] if separator else separators[:0]
                break
        fitting: list[Cut] = []
        for piece in pieces_of(text, chosen, start, end):
            if measure(piece) < size:
                fitting.append(piece)
                continue
            merge(fitting)
            fitting = []
            if finer:
                split(*piece, finer)
            else:
                chunks.append(piece)
        merge(fitting)

    split(0, len(text), separators)
    return chunks


def pieces_of(text: str, separator: str, start: int, end: int) -> list[Cut]:
    """The pieces of ``text[start:end]``, each beginning at a separator; an empty one separates all characters."""
    borders = [start]
    if separator:
        found = text.find(separator, start, end)
        while found >= 0:
            borders.append(found)
            found = text.find(separator, found + len(separator), end)
    else:
        borders += range(start + 1, end)
    borders.append(end)
    return [(left, right) for left, right in pairwise(borders) if left < right]


def expected_cuts(spans: list[Cut], text: str) -> list[Cut]:
    """Those of LangChain's chunks that our chunkers keep: not blank, and the longest of those with the same start."""
    solid = [(start, end) for start, end in spans if text[start:end].strip()]
    return [span for i, span in enumerate(solid) if i + 1 == len(solid) or solid[i + 1][0] != span[0]]
