"""How a recursive splitter joins pieces into chunks, as LangChain's does, told in places instead of strings.

A text is cut into pieces before every separator, so the pieces touch, and a run of pieces is a pair of borders.
Places may be counted in any unit in which lengths add up: characters, or tokens of the pieces. Chunks are windows over
the borders, and to grow one or to find where the next begins takes one search for a border, not a walk over pieces.
"""

import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple


class Borders(NamedTuple):
    """Where pieces begin. Each function takes ``low, high`` and looks in ``[low, high)``; -1 means none."""

    first: Callable[[int, int], int]
    last: Callable[[int, int], int]


Window = tuple[int, int, bool]
"""``(start, end, oversize)``: pieces joined into a chunk or, when oversize, one piece that fills a chunk alone."""


def borders_before(separator: str, text: str, start: int, end: int) -> Borders:
    """The borders in ``text[start:end]``: before each separator, or before every character if it is empty.

    Separators are taken from left to right and do not overlap.
    """
    if not separator:
        return Borders(lambda low, high: low if low < high else -1, lambda low, high: high - 1 if low < high else -1)
    if len(separator) == 1:
        return Borders(partial(text.find, separator), partial(text.rfind, separator))
    return listed_borders([match.start() for match in re.compile(re.escape(separator)).finditer(text, start, end)])


def listed_borders(places: Sequence[int]) -> Borders:
    """The borders at these increasing places."""
    guarded = [-1, *places, sys.maxsize]

    def first(low: int, high: int) -> int:
        place = guarded[bisect_left(guarded, low)]
        return place if place < high else -1

    def last(low: int, high: int) -> int:
        place = guarded[bisect_left(guarded, high) - 1]
        return place if place >= low else -1

    return Borders(first, last)


def merge(borders: Borders, begin: int, stop: int, size: int, overlap: int) -> Iterator[Window]:
    """The windows over the pieces of ``[begin, stop)``, in order.

    A window takes pieces as long as they fit the size. The next window starts at the earliest border that leaves no
    more than ``overlap`` of the previous window and room for the next piece. A piece as long as the size or longer is
    given alone, and no window reaches over it.
    """
    first, last = borders
    start = end = begin
    while end < stop:
        limit = start + size
        reach = stop if limit >= stop else last(end + 1, limit + 1)
        if start == end and (reach < 0 or (reach == limit and first(start + 1, reach) < 0)):
            if reach < 0:
                reach = first(limit + 1, stop)
            end = stop if reach < 0 else reach
            yield start, end, True
            start = end
            continue
        if reach > end:
            end = reach
            if end == stop:
                break
        yield start, end, False
        piece_end = first(end + 1, stop)
        if piece_end < 0:
            piece_end = stop
        if piece_end - end >= size:
            yield end, piece_end, True
            start = end = piece_end
            continue
        low = end - overlap if piece_end - end <= size - overlap else piece_end - size
        start = first(low, end) if low < end else end
        if start < 0:
            start = end
        end = piece_end
    if start < stop:
        yield start, stop, False
