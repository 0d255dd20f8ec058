"""The difference of two texts as the blocks they share: exact where it is small, anchored and never quadratic."""

from itertools import pairwise

from rapidfuzz.distance import LCSseq, Postfix, Prefix

from rag_eval.ground_truth.drift.anchors import Block, anchors

RUNS = (32, 16, 8)
"""How long the runs are that anchor a gap: the long ones first."""

EXACT_CELLS = 1 << 25
"""Gaps whose lengths multiply to no more than this are compared character by character."""


def shared_blocks(old: str, new: str, exact_cells: int = EXACT_CELLS) -> list[Block]:
    """Blocks that both texts have in the same order; neighbouring ones are merged.

    Beginning and end are compared first, then the blocks made of runs that are unique in both split what is left into
    gaps, and a small gap is compared character by character, so that as many as possible are shared. Of a large gap
    without unique runs nothing is shared.
    """
    found: list[Block] = []
    gaps = [(Block(0, 0, 0), Block(len(old), len(new), 0), 0)]
    while gaps:
        left, right, depth = gaps.pop()
        left, right = _closed(old, new, left, right)
        found += [block for block in (left, right) if block.length]
        a, b = old[left.old_end : right.old], new[left.new_end : right.new]
        if not a or not b:
            continue
        if depth and len(a) * len(b) <= exact_cells:
            inner = [Block(one.a, one.b, one.size) for one in LCSseq.editops(a, b).as_matching_blocks() if one.size]
            found += [Block(left.old_end + one.old, left.new_end + one.new, one.length) for one in inner]
        elif depth < len(RUNS):
            inner = [
                Block(left.old_end + one.old, left.new_end + one.new, one.length) for one in anchors(a, b, RUNS[depth])
            ]
            found += inner
            walls = [Block(left.old_end, left.new_end, 0), *inner, Block(right.old, right.new, 0)]
            gaps += [
                (Block(before.old_end, before.new_end, 0), Block(after.old, after.new, 0), depth + 1)
                for before, after in pairwise(walls)
            ]
    return merged(sorted(found))


def _closed(old: str, new: str, left: Block, right: Block) -> tuple[Block, Block]:
    """A gap between two empty blocks made smaller by what it begins and ends with in both texts."""
    a, b = old[left.old : right.old], new[left.new : right.new]
    head = Prefix.similarity(a, b)
    tail = Postfix.similarity(a[head:], b[head:])
    return Block(left.old, left.new, head), Block(right.old - tail, right.new - tail, tail)


def merged(blocks: list[Block]) -> list[Block]:
    """The blocks with those that touch in both texts made one, and empty ones left out."""
    found: list[Block] = []
    for block in blocks:
        if not block.length:
            continue
        if found and (found[-1].old_end, found[-1].new_end) == (block.old, block.new):
            block = Block(found[-1].old, found[-1].new, found[-1].length + block.length)
            found.pop()
        found.append(block)
    return found
