"""Recursive splitting, sized in characters or in tokens: the cuts of LangChain's splitter, at exact places.

A text is split at the first separator it has, pieces that are still too long at the next one, and neighbours are joined
up to the size. With sizes in tokens, a piece is as long as the number of tokens it is on its own; places are counted in
tokens, summed over the pieces, and joined in the same way. The text is encoded once; how many tokens a paragraph, a
line or a word is, is read off that encoding.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field, GetPydanticSchema, StrictStr

from rag_eval.chunking.chunker import BuiltInChunker, Cut, Encoding, check_overlap
from rag_eval.parts import Shown, part
from rag_eval.parts.part_settings import Count, OptionalWhole, Whole
from rag_eval.tokens import TokenCounter, check_encoding

DEFAULT_OVERLAP = 200

DEFAULT_SEPARATORS = ("\n\n", "\n", " ", "")
"""LangChain's: paragraphs, lines, words, characters."""

CHROMA_SEPARATORS = ("\n\n", "\n", ".", "?", "!", " ", "")
"""Those of Chroma's chunking evaluation, which try sentences before words."""


Separators = Annotated[
    Sequence[str],
    GetPydanticSchema(lambda _, handler: handler(tuple[StrictStr, ...])),
    Field(min_length=1, description="Where to split, in the order in which they are tried."),
]


def choose_separator(separators: Sequence[str], text: str, start: int, end: int) -> tuple[str, Sequence[str]]:
    """Return the first separator that ``text[start:end]`` holds, and those left for its pieces.

    The empty separator is always held, and leaves none. If none is held, the last is chosen and none is left.
    """
    for rank, separator in enumerate(separators):
        if not separator:
            return separator, ()
        if text.find(separator, start, end) >= 0:
            return separator, separators[rank + 1 :]
    return separators[-1], ()


class Borders(NamedTuple):
    """Where pieces begin, and where the last one ends."""

    around: Callable[[int, int], tuple[int, int]]
    """``(low, high)`` to the last border in ``[low, high)``, or -1, and the first from ``high`` on, or the end."""
    first: Callable[[int, int], int]
    """``(low, high)`` to the first border in ``[low, high)``, or -1."""


Window = tuple[int, int, bool]
"""``(start, end, oversize)``: pieces joined into a chunk or, when oversize, one piece that fills a chunk alone."""

Windows = Callable[[str, int, int], Iterable[Window]]
"""``(separator, start, end)`` to the windows over the pieces of ``text[start:end]``."""


def split(text: str, start: int, end: int, separators: Sequence[str], windows: Windows, cuts: list[Cut]) -> None:
    """Add the chunks of ``text[start:end]`` to the cuts, without the whitespace at their ends.

    A piece that no separator can split is added as it is. A cut that starts where the previous one does holds all of
    it, and takes its place; of whitespace alone there is none.
    """
    separator, finer = choose_separator(separators, text, start, end)
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


def borders_before(separator: str, text: str, start: int, end: int) -> Borders:
    """Return the borders in ``text[start:end]``: before each separator, or before every character if it is empty.

    Separators are taken from left to right and do not overlap.
    """
    if not separator:
        return Borders(lambda low, high: (high - 1, high), lambda low, high: low if low < high else -1)
    if len(separator) > 1:
        matches = re.compile(re.escape(separator)).finditer(text, start, end)
        return listed_borders([match.start() for match in matches], end)
    find, rfind = text.find, text.rfind

    def around(low: int, high: int) -> tuple[int, int]:
        following = find(separator, high, end)
        return rfind(separator, low, high), following if following >= 0 else end

    return Borders(around, partial(find, separator))


def listed_borders(places: Sequence[int], end: int) -> Borders:
    """Return the borders at these increasing places, all before ``end``."""
    guarded = [-1, *places, end]

    def around(low: int, high: int) -> tuple[int, int]:
        following = bisect_left(guarded, high)
        last = guarded[following - 1]
        return last if last >= low else -1, guarded[following]

    def first(low: int, high: int) -> int:
        place = guarded[bisect_left(guarded, low)]
        return place if place < high else -1

    return Borders(around, first)


def merge(borders: Borders, begin: int, stop: int, size: int, overlap: int) -> Iterator[Window]:
    """Return the windows over the pieces of ``[begin, stop)``, in order.

    A window takes pieces as long as they fit the size. The next window starts at the earliest border that leaves no
    more than ``overlap`` of the previous window and room for the next piece. A piece as long as the size or longer is
    given alone, and no window reaches over it.
    """
    around, first = borders
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
    r"""Chunks of at most ``chunk_size`` characters, cut at the coarsest separator that allows it.

    The chunks are those of langchain-text-splitters' ``RecursiveCharacterTextSplitter`` with the same settings:
    separators stay at the start of the piece they precede, chunks are stripped of whitespace, and a piece that no
    separator can split is kept as it is, whatever its length. There are two differences, both rare:

    - where two of LangChain's chunks start at the same place, only the longer, which holds the other, is kept; that
      happens when the overlap holds all of a chunk but the whitespace before it;
    - chunks of whitespace alone are always dropped, which LangChain does except for pieces it cannot split.

    Raises ``ConfigurationError`` on sizes that are not whole numbers, ``chunk_size`` < 1, ``chunk_overlap`` outside
    [0, chunk_size), or no separators. Unless it is given, ``chunk_overlap`` is 200, or a quarter of ``chunk_size``
    where that is less; read back, it is that number.
    """

    chunk_size: Annotated[Count, Shown, Field(description="The most characters of a chunk.")] = 1000
    chunk_overlap: Annotated[
        OptionalWhole,
        Shown,
        Field(
            description="The most characters shared with the chunk before; "
            "null: 200, or a quarter of `chunk_size` where that is less."
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
    """Chunks of pieces with at most ``chunk_size`` tokens together, cut at the coarsest separator that allows it.

    The chunks are those of langchain-text-splitters' ``RecursiveCharacterTextSplitter`` with the same settings and the
    number of tokens as its length function; the rules are those of ``RecursiveCharacterChunker``. Tokens are counted
    for each piece on its own: a chunk, encoded as a whole, usually has fewer and now and then a few more.
    Text that looks like a special token is text.

    Raises ``ConfigurationError`` on sizes that are not whole numbers, ``chunk_size`` < 1, ``chunk_overlap`` outside
    [0, chunk_size), no separators, or an unknown encoding.
    """

    packages = ("tiktoken",)

    chunk_size: Annotated[Count, Shown, Field(description="The most tokens of a chunk.")] = 400
    chunk_overlap: Annotated[Whole, Shown, Field(description="The most tokens shared with the chunk before.")] = 0
    separators: Separators = DEFAULT_SEPARATORS
    encoding: Encoding = "cl100k_base"

    def __post_init__(self) -> None:
        check_overlap("chunk_size", self.chunk_size, self.chunk_overlap)
        check_encoding(self.encoding)

    def cuts(self, text: str) -> list[Cut]:
        """Return the places of the chunks; raises ``TextEncodingError`` on a lone surrogate."""
        if not text:
            return []
        counter = TokenCounter(text, self.encoding)

        def windows(separator: str, start: int, end: int) -> Iterator[Window]:
            borders = counter.borders(separator, start, end)
            totals = [0, *counter.counts(borders, separator).cumsum().tolist()]
            in_tokens = listed_borders(totals[:-1], totals[-1])
            for low, high, oversize in merge(in_tokens, 0, totals[-1], self.chunk_size, self.chunk_overlap):
                yield int(borders[bisect_left(totals, low)]), int(borders[bisect_left(totals, high)]), oversize

        cuts: list[Cut] = []
        split(text, 0, len(text), self.separators, windows, cuts)
        return cuts
