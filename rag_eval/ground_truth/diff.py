"""Compare two versions of a text, and return the blocks that both have.

``shared_blocks`` finds text that stayed in order, ``moved_blocks`` text that moved. ``settled`` chooses between
differences of the same size: if "a b a" becomes "a", it may have lost "a b " or " b a". A change is placed where
writers make changes: at the start of a paragraph, line, sentence or word. Two changes become one where possible.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from rapidfuzz.distance import Editops, LCSseq, Postfix, Prefix

SOLID = 8
"""Minimum length of a shared block; a shorter one may be a coincidence."""

SURE = 32
"""Minimum number of characters that count as moved if they are removed in one place and added in another."""

EXACT_CELLS = 1 << 25
"""The largest product of the lengths of two texts that are compared character by character."""

_ANCHORS = (
    re.compile(rf"^(?=(.{{{SOLID},}}))", re.MULTILINE),
    re.compile(rf"(?:\b|(?=\s))(?=(.{{{SURE}}}))", re.DOTALL),
    re.compile(rf"(?:\b|(?=\s))(?=(.{{{SOLID}}}))", re.DOTALL),
)
"""What both texts must contain once to be aligned by it: lines, then runs of characters that start at a word."""

_FURTHEST = 1000
"""Maximum number of characters by which a change is shifted."""


class MatchingBlock(NamedTuple):
    """``old[old : old + length] == new[new : new + length]``."""

    old: int
    new: int
    length: int

    @property
    def old_end(self) -> int:
        return self.old + self.length

    @property
    def new_end(self) -> int:
        return self.new + self.length


def shared_blocks(old: str, new: str, exact_cells: int = EXACT_CELLS) -> list[MatchingBlock]:
    """Find the blocks that both texts have in the same order.

    The texts are split at lines that both have once, then at runs of characters that both have once. The gaps between
    are compared character by character; gaps that are too large count as different.
    """
    found: list[MatchingBlock] = []
    gaps = [(0, len(old), 0, len(new), 0)]
    while gaps:
        old_start, old_end, new_start, new_end, depth = gaps.pop()
        a, b = old[old_start:old_end], new[new_start:new_end]
        head = Prefix.similarity(a, b)
        tail = Postfix.similarity(a[head:], b[head:])
        if not depth:  # whole lines
            head = a.rfind("\n", 0, head) + 1
            tail = len(a) - 1 - line if (line := a.find("\n", len(a) - tail)) >= 0 else 0
        found += [MatchingBlock(old_start, new_start, head), MatchingBlock(old_end - tail, new_end - tail, tail)]
        a, b = a[head : len(a) - tail], b[head : len(b) - tail]
        old_start, new_start = old_start + head, new_start + head
        if not a or not b:
            continue
        if depth > 1 and len(a) * len(b) <= exact_cells:
            inner = matching_blocks(LCSseq.editops(a, b))
        elif depth < len(_ANCHORS):
            inner = _blocks(longest_chain(_unique_pieces(a, b, _ANCHORS[depth])))
            for left, right in pairwise([MatchingBlock(0, 0, 0), *inner, MatchingBlock(len(a), len(b), 0)]):
                old_gap = old_start + left.old_end, old_start + right.old
                gaps.append((*old_gap, new_start + left.new_end, new_start + right.new, depth + 1))
        else:
            continue
        found += [MatchingBlock(old_start + block.old, new_start + block.new, block.length) for block in inner]
    return merged(sorted(found))


def matching_blocks(edits: Editops) -> list[MatchingBlock]:
    """Return the blocks between the edits found by rapidfuzz."""
    return [MatchingBlock(block.a, block.b, block.size) for block in edits.as_matching_blocks()]


def merged(blocks: list[MatchingBlock]) -> list[MatchingBlock]:
    """Join the blocks that touch in both texts, and remove empty ones."""
    found: list[MatchingBlock] = []
    for block in filter(lambda block: block.length, blocks):
        if found and (found[-1].old_end, found[-1].new_end) == (block.old, block.new):
            last = found.pop()
            block = MatchingBlock(last.old, last.new, last.length + block.length)
        found.append(block)
    return found


Stretch = tuple[int, int]
Piece = tuple[int, int, int]
"""The positions of a piece in the old and in the new text, and its length."""


def _unique_pieces(old: str, new: str, pattern: re.Pattern[str]) -> list[Piece]:
    """Find the pieces that occur once in each text, in the order of the old text."""
    return _common(_single_pieces(old, [(0, len(old))], pattern), _single_pieces(new, [(0, len(new))], pattern))


def _single_pieces(text: str, stretches: Sequence[Stretch], pattern: re.Pattern[str]) -> dict[str, int]:
    """Return the position of each piece that occurs once in the stretches."""
    places: dict[str, int] = {}
    for start, end in stretches:
        for match in pattern.finditer(text, start, end):
            places[match[1]] = -1 if match[1] in places else match.start()
    return {piece: place for piece, place in places.items() if place >= 0}


def _common(in_old: dict[str, int], in_new: dict[str, int]) -> list[Piece]:
    return [(place, in_new[piece], len(piece)) for piece, place in in_old.items() if piece in in_new]


def longest_chain(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the most pieces, given in the order of the old text, that are also in order in the new one."""
    ends: list[int] = []  # by length of a chain: the earliest position in the new text where such a chain can end
    lasts: list[int] = []
    before: list[int] = []
    for number, (_, new, _) in enumerate(pieces):
        length = bisect_left(ends, new)
        before.append(lasts[length - 1] if length else -1)
        ends[length : length + 1] = [new]
        lasts[length : length + 1] = [number]
    chain: list[Piece] = []
    number = lasts[-1] if lasts else -1
    while number >= 0:
        chain.append(pieces[number])
        number = before[number]
    return chain[::-1]


def _blocks(pieces: Iterable[Piece]) -> list[MatchingBlock]:
    """Join pieces that overlap by the same amount in both texts, and shorten those that overlap otherwise."""
    found: list[MatchingBlock] = []
    start, shift, old_end, new_end = 0, 0, 0, 0
    for old, new, length in pieces:
        if new - old == shift and old <= old_end:
            old_end, new_end = old + length, new + length
            continue
        found.append(MatchingBlock(start, start + shift, old_end - start))
        cut = max(0, old_end - old, new_end - new)
        if cut < length:
            start, shift, old_end, new_end = old + cut, new - old, old + length, new + length
        else:
            start = old_end
    return merged([*found, MatchingBlock(start, start + shift, old_end - start)])


class Moved(NamedTuple):
    """A moved block: the part that certainly moved, and all equal text around it in both places."""

    core: MatchingBlock
    whole: MatchingBlock


def moved_blocks(shared: Sequence[MatchingBlock], old: str, new: str) -> list[Moved]:
    """Find runs of ``SURE`` characters that each text has once outside their long shared blocks.

    Short blocks count as outside: comparing characters matches words of a moved text with other sentences.
    """
    long = [block for block in shared if block.length >= SURE]
    walls = [MatchingBlock(0, 0, 0), *long, MatchingBlock(len(old), len(new), 0)]
    gone = [(left.old_end, right.old) for left, right in pairwise(walls) if right.old - left.old_end >= SURE]
    fresh = [(left.new_end, right.new) for left, right in pairwise(walls) if right.new - left.new_end >= SURE]
    cores: list[MatchingBlock] = []
    for place, target, length in _common(
        _single_pieces(old, gone, _ANCHORS[1]), _single_pieces(new, fresh, _ANCHORS[1])
    ):
        core = cores[-1] if cores else MatchingBlock(place, target, 0)
        if core.new - core.old == target - place and place <= core.old_end:
            cores[-1:] = [MatchingBlock(core.old, core.new, place + length - core.old)]
        else:
            cores.append(MatchingBlock(place, target, length))
    return [_moved(core, old, new, gone, fresh) for core in cores]


def _moved(core: MatchingBlock, old: str, new: str, gone: Sequence[Stretch], fresh: Sequence[Stretch]) -> Moved:
    old_start, old_end = gone[bisect_right(gone, core.old, key=itemgetter(0)) - 1]
    new_start, new_end = fresh[bisect_right(fresh, core.new, key=itemgetter(0)) - 1]
    before = Postfix.similarity(old[old_start : core.old], new[new_start : core.new])
    after = Prefix.similarity(old[core.old_end : old_end], new[core.new_end : new_end])
    return Moved(core, MatchingBlock(core.old - before, core.new - before, before + core.length + after))


def settled(blocks: Iterable[MatchingBlock], old: str, new: str) -> list[MatchingBlock]:
    """Join changes where possible, and put each where a writer is likely to make it."""
    return _rearranged(_rearranged(blocks, old, new, _using_up), old, new, _to_border)


Choice = Callable[[MatchingBlock, MatchingBlock, str, str], int]


def _rearranged(blocks: Iterable[MatchingBlock], old: str, new: str, choose: Choice) -> list[MatchingBlock]:
    found = [MatchingBlock(0, 0, 0)]
    for after in [*blocks, MatchingBlock(len(old), len(new), 0)]:
        shift = choose(found[-1], after, old, new)
        # A block that is used up joins the changes around it, which may then be shifted further.
        while len(found) > 1 and found[-1].length + shift == 0:
            found.pop()
            after = _shifted(after, shift)
            shift = choose(found[-1], after, old, new)
        before, after = found.pop(), _shifted(after, shift)
        found += [MatchingBlock(before.old, before.new, before.length + shift), *([after] if after.length else [])]
    return merged(found)


def _shifted(block: MatchingBlock, shift: int) -> MatchingBlock:
    return MatchingBlock(block.old + shift, block.new + shift, block.length - shift)


def _using_up(before: MatchingBlock, after: MatchingBlock, old: str, new: str) -> int:
    """Return the shift that uses up a block that is not solid; 0 if there is none."""
    back, on = shifts(before, after, old, new)
    if 0 < before.length < SOLID and back == before.length:
        return -back
    return on if 0 < after.length < SOLID and on == after.length else 0


def _to_border(before: MatchingBlock, after: MatchingBlock, old: str, new: str) -> int:
    """Return the shift to the most likely position of a change; of several, the last."""
    back, on = shifts(before, after, old, new)
    text, start = (old, before.old_end) if after.old > before.old_end else (new, before.new_end)
    return max(range(-back, on + 1), key=lambda shift: (_border(text, start + shift), shift))


def shifts(before: MatchingBlock, after: MatchingBlock, old: str, new: str) -> tuple[int, int]:
    """Return how far a change between two blocks can be shifted back and forward: 0 for a replacement."""
    taken, put = after.old - before.old_end, after.new - before.new_end
    if (taken == 0) == (put == 0):
        return 0, 0
    text, start, end = (old, before.old_end, after.old) if taken else (new, before.new_end, after.new)
    back, on = min(before.length, _FURTHEST), min(after.length, _FURTHEST)
    return (
        Postfix.similarity(text[start - back : start], text[end - back : end]),
        Prefix.similarity(text[start : start + on], text[end : end + on]),
    )


def _border(text: str, place: int) -> int:
    """Rate a position for a change: 4 starts a paragraph, 3 a line, 2 a sentence, 1 a word."""
    before = text[max(0, place - 2) : place]
    if before == "\n\n":
        return 4
    if not before or before[-1] == "\n":
        return 3
    if before[-1].isspace():
        return 2 if before[0] in ".!?" else 1
    return 0
