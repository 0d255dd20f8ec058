"""The difference of two versions of a text, as the blocks that both have.

``shared_blocks`` finds what stayed in order, ``moved_blocks`` what was taken elsewhere. ``settled`` chooses between
differences that are equally small: where a stretch was taken out between two copies of a text, or put in, the texts do
not tell which copy is the new one ("a b a" becomes "a" by losing "a b " or " b a"), so the change is put where writers
make changes: at the start of a paragraph, of a line, of a sentence, of a word. Two changes that can become one do.

A general diff library is no substitute: fast-diff-match-patch takes a sixth of the time on an edited megabyte, but a
hundred times as long on texts that have little in common, and its blocks send spans of moved lines astray.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq, Postfix, Prefix

from rag_eval.ground_truth.text_index import run_hashes

SOLID = 8
"""A shared block of fewer characters can be there by chance."""

SURE = 32
"""So many characters that are gone here and new there, and nowhere else, were moved."""

RUNS = (32, 16, 8)
"""How long the runs are that anchor a gap: the long ones first."""

EXACT_CELLS = 1 << 25
"""Gaps whose lengths multiply to no more than this are compared character by character."""

_FURTHEST = 1000
"""How far a change is shifted at most, in characters."""

Stretch = tuple[int, int]


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
    """Find the blocks that both texts have in the same order; neighbouring ones are merged.

    Beginning and end are compared first, then the blocks made of runs that are unique in both split what is left into
    gaps, and a small gap is compared character by character, so that as many as possible are shared. Of a large gap
    without unique runs nothing is shared.
    """
    found: list[MatchingBlock] = []
    gaps = [(0, len(old), 0, len(new), 0)]
    while gaps:
        old_start, old_end, new_start, new_end, depth = gaps.pop()
        a, b = old[old_start:old_end], new[new_start:new_end]
        head = Prefix.similarity(a, b)
        tail = Postfix.similarity(a[head:], b[head:])
        found += [MatchingBlock(old_start, new_start, head), MatchingBlock(old_end - tail, new_end - tail, tail)]
        a, b = a[head : len(a) - tail], b[head : len(b) - tail]
        old_start, new_start = old_start + head, new_start + head
        if not a or not b:
            continue
        if depth and len(a) * len(b) <= exact_cells:
            matches = LCSseq.editops(a, b).as_matching_blocks()
            found += [MatchingBlock(old_start + one.a, new_start + one.b, one.size) for one in matches]
        elif depth < len(RUNS):
            inner = anchors(a, b, RUNS[depth])
            found += [MatchingBlock(old_start + one.old, new_start + one.new, one.length) for one in inner]
            for left, right in pairwise([MatchingBlock(0, 0, 0), *inner, MatchingBlock(len(a), len(b), 0)]):
                old_gap = old_start + left.old_end, old_start + right.old
                gaps.append((*old_gap, new_start + left.new_end, new_start + right.new, depth + 1))
    return merged(sorted(found))


def merged(blocks: list[MatchingBlock]) -> list[MatchingBlock]:
    """Join the blocks that touch in both texts, and leave out empty ones."""
    found: list[MatchingBlock] = []
    for block in blocks:
        if not block.length:
            continue
        if found and (found[-1].old_end, found[-1].new_end) == (block.old, block.new):
            block = MatchingBlock(found[-1].old, found[-1].new, found[-1].length + block.length)
            found.pop()
        found.append(block)
    return found


def anchors(old: str, new: str, run: int) -> list[MatchingBlock]:
    """Find the heaviest chain of unique blocks that rise in both texts."""
    return _disjoint(_heaviest_chain(unique_blocks(old, new, run)))


def unique_blocks(old: str, new: str, run: int) -> list[MatchingBlock]:
    """Find the blocks made of runs of so many characters that both texts have exactly once, rising in the old one."""
    old_hashes, old_places = _single(run_hashes(old, run))
    new_hashes, new_places = _single(run_hashes(new, run))
    _, in_old, in_new = np.intersect1d(old_hashes, new_hashes, assume_unique=True, return_indices=True)
    if not len(in_old):
        return []
    order = np.argsort(old_places[in_old])
    old_places, new_places = old_places[in_old][order], new_places[in_new][order]
    # Runs that overlap on one diagonal are one block.
    steps, leaps = np.diff(old_places), np.diff(new_places)
    borders = np.flatnonzero((steps != leaps) | (steps > run)) + 1
    firsts = np.concatenate(([0], borders))
    lasts = np.concatenate((borders, [len(old_places)])) - 1
    lengths = old_places[lasts] - old_places[firsts] + run
    columns = (old_places[firsts].tolist(), new_places[firsts].tolist(), lengths.tolist())
    blocks = [MatchingBlock(*row) for row in zip(*columns, strict=True)]
    # Hashes of different runs may meet.
    return [one for one in blocks if old[one.old : one.old_end] == new[one.new : one.new_end]]


def _single(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes that occur once, and their places."""
    values, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    return values[counts == 1], places[counts == 1]


def _heaviest_chain(blocks: list[MatchingBlock]) -> list[MatchingBlock]:
    """Of blocks that rise in the old text, those that rise in the new one too and have the most characters."""
    places = sorted({block.new for block in blocks})
    # A Fenwick tree: the heaviest chain that ends at a place in the new text or before, and its last block.
    tree: list[tuple[int, int]] = [(0, -1)] * (len(places) + 1)
    before: list[int] = []
    heaviest = (0, -1)
    for number, block in enumerate(blocks):
        rank = bisect_left(places, block.new)
        best, at = (0, -1), rank
        while at > 0:
            best = max(best, tree[at])
            at &= at - 1
        before.append(best[1])
        chain = (best[0] + block.length, number)
        heaviest = max(heaviest, chain)
        at = rank + 1
        while at < len(tree):
            tree[at] = max(tree[at], chain)
            at += at & -at
    chosen: list[MatchingBlock] = []
    number = heaviest[1]
    while number >= 0:
        chosen.append(blocks[number])
        number = before[number]
    return chosen[::-1]


def _disjoint(chain: list[MatchingBlock]) -> list[MatchingBlock]:
    """Return the chain with each block cut where the one before it still covers one of the texts."""
    found: list[MatchingBlock] = []
    old_end = new_end = 0
    for block in chain:
        cut = max(0, old_end - block.old, new_end - block.new)
        if cut < block.length:
            found.append(MatchingBlock(block.old + cut, block.new + cut, block.length - cut))
            old_end, new_end = found[-1].old_end, found[-1].new_end
    return found


class Moved(NamedTuple):
    """A block that was moved: what surely was, and all that is the same before and after it in both places."""

    core: MatchingBlock
    whole: MatchingBlock


def moved_blocks(shared: Sequence[MatchingBlock], old: str, new: str) -> list[Moved]:
    """Find what both texts have between the long blocks that they share, in whatever order.

    The core of each is made of runs of 32 characters that are unique among what lies between. Short blocks are passed
    over: in what was moved, a comparison of characters finds words of other sentences.
    """
    long = [block for block in shared if block.length >= SURE]
    walls = [MatchingBlock(0, 0, 0), *long, MatchingBlock(len(old), len(new), 0)]
    gone = [(left.old_end, right.old) for left, right in pairwise(walls) if right.old - left.old_end >= SURE]
    fresh = [(left.new_end, right.new) for left, right in pairwise(walls) if right.new - left.new_end >= SURE]
    # Two different characters that no text has: no run goes over from one stretch to the next.
    taken, put = _Joined(old, gone, "\ud800"), _Joined(new, fresh, "\udfff")
    return [_moved(taken, put, block) for block in unique_blocks(taken.text, put.text, SURE)]


class _Joined:
    """Stretches of a text in a row, and the way back."""

    def __init__(self, source: str, stretches: Sequence[Stretch], between: str) -> None:
        self.source = source
        self.text = between.join(source[start:end] for start, end in stretches)
        self._stretches = stretches
        self._starts = [0, *accumulate(end - start + 1 for start, end in stretches)]

    def place(self, joined: int) -> tuple[int, Stretch]:
        """Return the place in the source, and the stretch it is in."""
        number = bisect_right(self._starts, joined) - 1
        stretch = self._stretches[number]
        return stretch[0] + joined - self._starts[number], stretch


def _moved(taken: _Joined, put: _Joined, block: MatchingBlock) -> Moved:
    (old, old_stretch), (new, new_stretch) = taken.place(block.old), put.place(block.new)
    before = Postfix.similarity(taken.source[old_stretch[0] : old], put.source[new_stretch[0] : new])
    old_end, new_end = old + block.length, new + block.length
    after = Prefix.similarity(taken.source[old_end : old_stretch[1]], put.source[new_end : new_stretch[1]])
    core = MatchingBlock(old, new, block.length)
    return Moved(core, MatchingBlock(old - before, new - before, before + block.length + after))


def settled(blocks: Iterable[MatchingBlock], old: str, new: str) -> list[MatchingBlock]:
    """Make two changes one where they can be, and put each where a writer is likely to make it."""
    return _rearranged(_rearranged(blocks, old, new, _using_up), old, new, _to_border)


Choice = Callable[[MatchingBlock, MatchingBlock, str, str], int]


def _rearranged(blocks: Iterable[MatchingBlock], old: str, new: str, choose: Choice) -> list[MatchingBlock]:
    found = [MatchingBlock(0, 0, 0)]
    for after in [*blocks, MatchingBlock(len(old), len(new), 0)]:
        shift = choose(found[-1], after, old, new)
        # A block that is used up makes one change of two, which may go on together.
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
    """Return the shift that uses up a block that is not solid; 0 when there is none."""
    back, on = shifts(before, after, old, new)
    if 0 < before.length < SOLID and back == before.length:
        return -back
    return on if 0 < after.length < SOLID and on == after.length else 0


def _to_border(before: MatchingBlock, after: MatchingBlock, old: str, new: str) -> int:
    """Return the shift to where a writer is likeliest to begin something, among equals the last."""
    back, on = shifts(before, after, old, new)
    text, start = (old, before.old_end) if after.old > before.old_end else (new, before.new_end)
    # The last, so that what comes first stays where it was.
    return max(range(-back, on + 1), key=lambda shift: (_border(text, start + shift), shift))


def shifts(before: MatchingBlock, after: MatchingBlock, old: str, new: str) -> tuple[int, int]:
    """Tell how far back and on a change between two blocks can be shifted; what was replaced cannot be."""
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
    """How likely a writer begins something here: a paragraph, a line, a sentence, a word, or nothing."""
    before = text[max(0, place - 2) : place]
    if before == "\n\n":
        return 4
    if not before or before[-1] == "\n":
        return 3
    if before[-1].isspace():
        return 2 if before[0] in ".!?" else 1
    return 0
