"""Choosing between differences that are equally small.

Where a stretch was taken out between two copies of a text, or put in, the texts do not tell which copy is the new
one: "a b a" becomes "a" by losing "a b " or " b a". Such a change can be shifted along, and is put where writers make
changes: at the start of a paragraph, of a line, of a sentence, of a word. Two changes that can become one do.
"""

from collections.abc import Callable, Iterable

from rapidfuzz.distance import Postfix, Prefix

from rag_eval.ground_truth.drift.anchors import SOLID, Block
from rag_eval.ground_truth.drift.diff import merged

_FURTHEST = 1000


def settled(blocks: Iterable[Block], old: str, new: str) -> list[Block]:
    """The blocks with changes made one where they can be, and put where one is likely to be made."""
    return _rearranged(_rearranged(blocks, old, new, _using_up), old, new, _to_border)


Choice = Callable[[Block, Block, str, str], int]


def _rearranged(blocks: Iterable[Block], old: str, new: str, choose: Choice) -> list[Block]:
    found = [Block(0, 0, 0)]
    for after in [*blocks, Block(len(old), len(new), 0)]:
        shift = choose(found[-1], after, old, new)
        # A block that is used up makes one change of two, which may go on together.
        while len(found) > 1 and found[-1].length + shift == 0:
            found.pop()
            after = _shifted(after, shift)
            shift = choose(found[-1], after, old, new)
        before, after = found.pop(), _shifted(after, shift)
        found += [Block(before.old, before.new, before.length + shift), *([after] if after.length else [])]
    return merged(found)


def _shifted(block: Block, shift: int) -> Block:
    """The block with its beginning shifted."""
    return Block(block.old + shift, block.new + shift, block.length - shift)


def _using_up(before: Block, after: Block, old: str, new: str) -> int:
    """The shift that uses up a block that is not solid; 0 when there is none."""
    back, on = shifts(before, after, old, new)
    if 0 < before.length < SOLID and back == before.length:
        return -back
    return on if 0 < after.length < SOLID and on == after.length else 0


def _to_border(before: Block, after: Block, old: str, new: str) -> int:
    """The shift to where a writer is likeliest to begin something, among equals the last."""
    back, on = shifts(before, after, old, new)
    text, start = (old, before.old_end) if after.old > before.old_end else (new, before.new_end)
    # The last, so that what comes first stays where it was.
    return max(range(-back, on + 1), key=lambda shift: (_border(text, start + shift), shift))


def shifts(before: Block, after: Block, old: str, new: str) -> tuple[int, int]:
    """How far back and how far on the change between two blocks can be shifted, a thousand characters at most.

    Only what was taken out or put in, and not replaced, can be.
    """
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
