"""How a recursive splitter joins pieces into chunks, as LangChain's does, told in places instead of strings.

A text is cut into pieces before every separator, so the pieces touch, and a run of pieces is a pair of borders.
Places may be counted in any unit in which lengths add up: characters, or tokens of the pieces. Chunks are windows over
the borders, and to grow one or to find where the next begins takes one search for a border, not a walk over pieces.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple


class Borders(NamedTuple):
    """Where pieces begin, and where the last one ends."""

    around: Callable[[int, int], tuple[int, int]]
    """``(low, high)`` to the last border in ``[low, high)``, or -1, and the first from ``high`` on, or the end."""
    first: Callable[[int, int], int]
    """``(low, high)`` to the first border in ``[low, high)``, or -1."""


Window = tuple[int, int, bool]
"""``(start, end, oversize)``: pieces joined into a chunk or, when oversize, one piece that fills a chunk alone."""


def borders_before(separator: str, text: str, start: int, end: int) -> Borders:
    """The borders in ``text[start:end]``: before each separator, or before every character if it is empty.

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
    """The borders at these increasing places, all before ``end``."""
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
    """The windows over the pieces of ``[begin, stop)``, in order.

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
