"""Split recursively by characters or tokens, with the cuts of LangChain's splitter at exact positions.

A text is split at the first separator that it contains. Pieces that are too long are split at the next separator, and
neighbours are joined up to the size. With sizes in tokens, the length of a piece is its number of tokens when encoded
alone, positions are sums of these lengths, and pieces are joined in the same way. The text is encoded only once: the
tokens of a paragraph, line or word are read off that encoding.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, GetPydanticSchema, StrictStr

from rag_eval.chunking.chunker import BuiltInChunker, Cut, Encoding, check_overlap
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Count, OptionalWhole, Whole
from rag_eval.tokens import TokenCounter, check_encoding

DEFAULT_OVERLAP = 200

DEFAULT_SEPARATORS = ("\n\n", "\n", " ", "")
"""The separators of LangChain: paragraphs, lines, words, characters."""

CHROMA_SEPARATORS = ("\n\n", "\n", ".", "?", "!", " ", "")
"""The separators of Chroma's chunking evaluation, which tries sentences before words."""


Separators = Annotated[
    Sequence[str],
    GetPydanticSchema(lambda _, handler: handler(tuple[StrictStr, ...])),
    Field(min_length=1, description="Separators to split at, in the order to try."),
]


Window = tuple[int, int, bool]
"""``(start, end, oversize)``: pieces joined into a chunk or, if oversize, one piece that is a chunk by itself."""

Windows = Callable[[str, int, int], Iterable[Window]]
"""A function of ``(separator, start, end)`` that returns the windows over the pieces of ``text[start:end]``."""


def split(text: str, start: int, end: int, separators: Sequence[str], windows: Windows, cuts: list[Cut]) -> None:
    """Append the chunks of ``text[start:end]`` to the cuts, without the whitespace at their ends.

    The text is split at the first separator that it contains, and pieces that are too long at the separators after it.
    Pieces that no separator can split are appended unchanged. A cut with the start of the previous one contains and
    replaces it. Whitespace alone is dropped.
    """
    ranks = (rank for rank, separator in enumerate(separators) if text.find(separator, start, end) >= 0)
    rank = next(ranks, len(separators) - 1)  # an empty separator is always found
    separator, finer = separators[rank], separators[rank + 1 :] if separators[rank] else ()
    for left, right, oversize in windows(separator, start, end):
        if oversize and finer:
            split(text, left, right, finer, windows, cuts)
        elif oversize:
            if not text[left:right].isspace():
                cuts.append((left, right))
        elif stripped := text[left:right].lstrip():
            left = right - len(stripped)
            if cuts and cuts[-1][0] == left:
                cuts.pop()
            cuts.append((left, left + len(stripped.rstrip())))


@dataclass(frozen=True, slots=True)
class Borders:
    """Where pieces begin, in increasing order, and where the last one ends."""

    places: Sequence[int]
    end: int

    def around(self, low: int, high: int) -> tuple[int, int]:
        """Return the last border in ``[low, high)`` or -1, and the first border at or after ``high``, or the end."""
        following = bisect_left(self.places, high)
        last = self.places[following - 1] if following else -1
        return last if last >= low else -1, self.places[following] if following < len(self.places) else self.end

    def first(self, low: int, high: int) -> int:
        """Return the first border in ``[low, high)``, or -1."""
        number = bisect_left(self.places, low)
        return self.places[number] if number < len(self.places) and self.places[number] < high else -1


def borders_before(separator: str, text: str, start: int, end: int) -> Borders:
    """Return the borders in ``text[start:end]``: before each separator, or before every character if it is empty.

    Separators are found from left to right and do not overlap.
    """
    if not separator:
        return Borders(range(start, end), end)
    matches = re.compile(re.escape(separator)).finditer(text, start, end)
    return Borders([match.start() for match in matches], end)


def merge(borders: Borders, begin: int, stop: int, size: int, overlap: int) -> Iterator[Window]:
    """Yield the windows over the pieces of ``[begin, stop)`` in order.

    A window takes pieces as long as they fit the size. The next window starts at the first border that leaves at most
    ``overlap`` of the previous window and has room for the next piece. A piece of at least the size is a window of its
    own, which no other window crosses.
    """
    around, first = borders.around, borders.first
    start = end = begin  # the window so far
    while (limit := start + size) < stop:
        reach, next_end = around(end + 1, limit + 1)
        if start == end and (reach < 0 or (reach == limit and first(start + 1, limit) < 0)):
            end = next_end if reach < 0 else reach
            yield start, end, True
            start = end
            continue
        if reach > end:
            end = reach
        yield start, end, False
        if next_end - end >= size:
            yield end, next_end, True
            start = end = next_end
            continue
        restart = first(end - overlap if next_end - size <= end - overlap else next_end - size, end)
        start = end if restart < 0 else restart
        end = next_end
    if start < stop:
        yield start, stop, start == end and limit == stop and first(start + 1, stop) < 0


@part
class RecursiveCharacterChunker(BuiltInChunker):
    """Split text into chunks of at most ``chunk_size`` characters, at the coarsest possible separator.

    The chunks are those of langchain-text-splitters' ``RecursiveCharacterTextSplitter`` with the same settings:
    separators stay at the start of the piece that they precede, chunks are stripped, and a piece that no separator can
    split is kept, however long it is. There are two rare differences:

    - Of two LangChain chunks that start at the same place, only the longer one, which contains the other, is kept. This
      happens if the overlap contains all of a chunk but the whitespace before it.
    - Chunks of whitespace are always dropped. LangChain keeps those that it cannot split.

    The default ``chunk_overlap`` is 200, or a quarter of ``chunk_size`` if that is less.
    """

    chunk_size: Annotated[Count, Shown, Field(description="Maximum number of characters per chunk.")] = 1000
    chunk_overlap: Annotated[
        OptionalWhole,
        Shown,
        Field(
            description="Maximum number of characters shared with the previous chunk; "
            "null: 200, or a quarter of `chunk_size` if that is less."
        ),
    ] = None
    separators: Separators = DEFAULT_SEPARATORS

    def __post_init__(self) -> None:
        overlap = min(DEFAULT_OVERLAP, self.chunk_size // 4) if self.chunk_overlap is None else self.chunk_overlap
        object.__setattr__(self, "chunk_overlap", overlap)
        check_overlap("chunk_size", self.chunk_size, overlap)

    def cuts(self, text: str) -> list[Cut]:
        def windows(separator: str, start: int, end: int) -> Iterator[Window]:
            borders = borders_before(separator, text, start, end)
            return merge(borders, start, end, self.chunk_size, self.chunk_overlap or 0)

        cuts: list[Cut] = []
        split(text, 0, len(text), self.separators, windows, cuts)
        return cuts


@part
class RecursiveTokenChunker(BuiltInChunker):
    """Split text into chunks of about ``chunk_size`` tokens at most, at the coarsest possible separator.

    The chunks are those of langchain-text-splitters' ``RecursiveCharacterTextSplitter`` with the number of tokens as
    its length function, with the differences of ``RecursiveCharacterChunker``. Tokens are counted for each piece alone
    and added up: a whole chunk usually has fewer, and sometimes a few more. Special tokens are treated as text.
    """

    packages = ("tiktoken",)

    chunk_size: Annotated[Count, Shown, Field(description="Maximum number of tokens per chunk.")] = 400
    chunk_overlap: Annotated[
        Whole, Shown, Field(description="Maximum number of tokens shared with the previous chunk.")
    ] = 0
    separators: Separators = DEFAULT_SEPARATORS
    encoding: Encoding = "cl100k_base"

    def __post_init__(self) -> None:
        check_overlap("chunk_size", self.chunk_size, self.chunk_overlap)
        check_encoding(self.encoding)

    def cuts(self, text: str) -> list[Cut]:
        """Return the places of the chunks. Raises ``TextEncodingError`` on a lone surrogate."""
        if not text:
            return []
        counter = TokenCounter(text, self.encoding)

        def windows(separator: str, start: int, end: int) -> Iterator[Window]:
            borders = counter.borders(separator, start, end)
            totals = [0, *counter.counts(borders, separator).cumsum().tolist()]
            in_tokens = Borders(totals[:-1], totals[-1])
            for low, high, oversize in merge(in_tokens, 0, totals[-1], self.chunk_size, self.chunk_overlap):
                yield int(borders[bisect_left(totals, low)]), int(borders[bisect_left(totals, high)]), oversize

        cuts: list[Cut] = []
        split(text, 0, len(text), self.separators, windows, cuts)
        return cuts
