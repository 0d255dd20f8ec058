"""What two texts surely share: runs of characters that each has exactly once, in the same order in both."""

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_eval.ground_truth.run_hashes import run_hashes

SOLID = 8
"""A shared block of fewer characters can be there by chance."""


class Block(NamedTuple):
    """``old[old : old + length] == new[new : new + length]``."""

    old: int
    new: int
    length: int

    @property
    def old_end(self) -> int:
        """The place after the block in the old text."""
        return self.old + self.length

    @property
    def new_end(self) -> int:
        """The place after the block in the new text."""
        return self.new + self.length


def anchors(old: str, new: str, run: int) -> list[Block]:
    """The heaviest chain of unique blocks that rise in both texts."""
    return _disjoint(_heaviest_chain(unique_blocks(old, new, run)))


def unique_blocks(old: str, new: str, run: int) -> list[Block]:
    """The blocks made of runs of so many characters that both texts have exactly once, rising in the old one."""
    old_places, new_places = _shared_once(run_hashes(old, run), run_hashes(new, run))
    if not len(old_places):
        return []
    # Runs that overlap on one diagonal are one block.
    steps, leaps = np.diff(old_places), np.diff(new_places)
    borders = np.flatnonzero((steps != leaps) | (steps > run)) + 1
    firsts = np.concatenate(([0], borders))
    lasts = np.concatenate((borders, [len(old_places)])) - 1
    lengths = old_places[lasts] - old_places[firsts] + run
    columns = (old_places[firsts].tolist(), new_places[firsts].tolist(), lengths.tolist())
    blocks = [Block(*row) for row in zip(*columns, strict=True)]
    # Hashes of different runs may meet.
    return [one for one in blocks if old[one.old : one.old_end] == new[one.new : one.new_end]]


def _shared_once(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places in both of the hashes that each has once, rising in the old one."""
    old_hashes, old_places = _single(old)
    new_hashes, new_places = _single(new)
    _, in_old, in_new = np.intersect1d(old_hashes, new_hashes, assume_unique=True, return_indices=True)
    old_places, new_places = old_places[in_old], new_places[in_new]
    order = np.argsort(old_places)
    return old_places[order], new_places[order]


def _single(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    values, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    return values[counts == 1], places[counts == 1]


def _heaviest_chain(blocks: list[Block]) -> list[Block]:
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
    chosen: list[Block] = []
    number = heaviest[1]
    while number >= 0:
        chosen.append(blocks[number])
        number = before[number]
    return chosen[::-1]


def _disjoint(chain: list[Block]) -> list[Block]:
    """The chain with each block cut where the one before it still covers one of the texts."""
    found: list[Block] = []
    old_end = new_end = 0
    for block in chain:
        cut = max(0, old_end - block.old, new_end - block.new)
        if cut < block.length:
            found.append(Block(block.old + cut, block.new + cut, block.length - cut))
            old_end, new_end = found[-1].old_end, found[-1].new_end
    return found
