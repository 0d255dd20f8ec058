"""Text that was taken out in one place and put in elsewhere."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from rapidfuzz.distance import Postfix, Prefix

from rag_eval.ground_truth.drift.anchors import Block, unique_blocks

SURE = 32
"""So many characters that are gone here and new there, and nowhere else, were moved."""

Stretch = tuple[int, int]


class Moved(NamedTuple):
    """A block that was moved: what surely was, and all that is the same before and after it in both places."""

    core: Block
    whole: Block


def moved_blocks(shared: Sequence[Block], old: str, new: str) -> list[Moved]:
    """What both texts have between the long blocks that they share, in whatever order.

    The core of each is made of runs of 32 characters that are unique among what lies between. Short blocks are passed
    over: in what was moved, a comparison of characters finds words of other sentences.
    """
    long = [block for block in shared if block.length >= SURE]
    walls = [Block(0, 0, 0), *long, Block(len(old), len(new), 0)]
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
        """The place in the source, and the stretch it is in."""
        number = bisect_right(self._starts, joined) - 1
        stretch = self._stretches[number]
        return stretch[0] + joined - self._starts[number], stretch


def _moved(taken: _Joined, put: _Joined, block: Block) -> Moved:
    """The block in the places of the sources."""
    (old, old_stretch), (new, new_stretch) = taken.place(block.old), put.place(block.new)
    before = Postfix.similarity(taken.source[old_stretch[0] : old], put.source[new_stretch[0] : new])
    old_end, new_end = old + block.length, new + block.length
    after = Prefix.similarity(taken.source[old_end : old_stretch[1]], put.source[new_end : new_stretch[1]])
    return Moved(Block(old, new, block.length), Block(old - before, new - before, before + block.length + after))
