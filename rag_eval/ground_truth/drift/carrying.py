"""Carrying spans of a text over to its new version."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from rag_eval.ground_truth.check import places_of
from rag_eval.ground_truth.drift.anchors import SOLID, Block
from rag_eval.ground_truth.drift.diff import EXACT_CELLS, shared_blocks
from rag_eval.ground_truth.drift.moves import moved_blocks
from rag_eval.ground_truth.drift.outcomes import LostReason, Status
from rag_eval.ground_truth.drift.settling import settled, shifts

LEAST_SIMILARITY = 0.5
"""What is less similar to the old text is not the same content any more: 1 - edits / length of the longer."""

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Carried:
    """Where a span is in the new text; ``place`` is None and there is a reason when it is lost."""

    status: Status
    place: Place | None
    reason: LostReason | None = None


class Carrier:
    """The difference of two versions of a text, and what becomes of the spans of the old one.

    The diff is what tells copies of a text apart. A span inside a shared block has the same text in the new version.
    One that was surely moved is where it was moved to. One that is cut is looked for between the solid blocks around
    it, then beside what was moved, and is else what now stands between those blocks, if that is similar enough.
    """

    def __init__(self, old: str, new: str, exact_cells: int = EXACT_CELLS) -> None:
        self._old, self._new = old, new
        blocks = settled(shared_blocks(old, new, exact_cells), old, new)
        self._solid = [block for block in blocks if self._is_solid(block)]
        self._walls = [Block(0, 0, 0), *blocks, Block(len(old), len(new), 0)]
        self._moved = moved_blocks(blocks, old, new)

    def carry(self, start: int, end: int) -> Carried:
        """What becomes of ``old[start:end]``."""
        # What was moved goes first: the diff may have found words of it in other sentences.
        number = bisect_right(self._moved, start, key=lambda moved: moved.core.old)
        for core, _ in self._moved[max(0, number - 2) : number]:
            if core.old_end >= end:
                return self._unaltered((start, end), core.new + start - core.old)
        number = bisect_right(self._solid, start, key=lambda block: block.old)
        if number and self._solid[number - 1].old_end >= end:
            block = self._solid[number - 1]
            return self._unaltered((start, end), block.new + start - block.old)
        shifted = self._shifted(start, end)
        if shifted is not None:
            return self._unaltered((start, end), shifted)
        text = self._old[start:end]
        old_gap, new_gap = self._gap(start, end)
        in_old = places_of(text, self._old[slice(*old_gap)])
        in_new = places_of(text, self._new[slice(*new_gap)])
        if len(in_old) == len(in_new) == 1 and (end - start >= SOLID or self._is_shared(start, end)):
            return self._unaltered((start, end), new_gap[0] + in_new[0])
        for _, whole in self._moved:
            if whole.old <= start and end <= whole.old_end:
                return self._unaltered((start, end), whole.new + start - whole.old)
        if in_new:
            return Carried("lost", None, "ambiguous")
        return self._altered(start, end, old_gap, new_gap)

    def _is_solid(self, block: Block) -> bool:
        at_start = block.old == block.new == 0
        at_end = (block.old_end, block.new_end) == (len(self._old), len(self._new))
        return block.length >= SOLID or at_start or at_end

    def _is_shared(self, start: int, end: int) -> bool:
        number = bisect_right(self._walls, start, key=lambda block: block.old)
        return self._walls[number - 1].old_end >= end

    def _unaltered(self, place: Place, start: int) -> Carried:
        return Carried("kept" if start == place[0] else "moved", (start, start + place[1] - place[0]))

    def _shifted(self, start: int, end: int) -> int | None:
        """Where a span that one change cuts is whole, when the change can as well be before or after it."""
        walls = self._walls
        number = bisect_right(walls, start, hi=len(walls) - 1, key=lambda block: block.old)
        before, after = walls[number - 1], walls[number]
        is_cut = start < after.old and end > before.old_end
        is_gone = before.old_end <= start and end <= after.old
        if not is_cut or is_gone or end > after.old_end:
            return None
        back, on = shifts(before, after, self._old, self._new)
        if end - before.old_end <= on:
            return before.new + start - before.old
        return after.new + start - after.old if after.old - start <= back else None

    def _gap(self, start: int, end: int) -> tuple[Place, Place]:
        """The old and the new text between the last solid character before the span and the first one after it."""
        first, after = (0, 0), (len(self._old), len(self._new))
        number = bisect_left(self._solid, start, key=lambda block: block.old)
        if number:
            block = self._solid[number - 1]
            length = min(block.length, start - block.old)
            first = block.old + length, block.new + length
        number = bisect_right(self._solid, end, key=lambda block: block.old_end)
        if number < len(self._solid):
            block = self._solid[number]
            skipped = max(0, end - block.old)
            after = block.old + skipped, block.new + skipped
        return (first[0], after[0]), (first[1], after[1])

    def _altered(self, start: int, end: int, old_gap: Place, new_gap: Place) -> Carried:
        old, new = self._old[slice(*old_gap)], self._new[slice(*new_gap)]
        if len(old) * len(new) > EXACT_CELLS:
            return Carried("lost", None, "rewritten")
        first, after = (new_gap[0] + place for place in _image(old, new, start - old_gap[0], end - old_gap[0]))
        # What began and ended with whole words goes on doing so.
        while _is_border(self._old, start) and first > new_gap[0] and not _is_border(self._new, first):
            first -= 1
        while _is_border(self._old, end) and after < new_gap[1] and not _is_border(self._new, after):
            after += 1
        found = self._new[first:after]
        if not found.strip():
            return Carried("lost", None, "deleted")
        first += len(found) - len(found.lstrip())
        found = found.strip()
        if Levenshtein.normalized_similarity(self._old[start:end], found) < LEAST_SIMILARITY:
            return Carried("lost", None, "rewritten")
        return Carried("altered", (first, first + len(found)))


def _image(old: str, new: str, start: int, end: int) -> Place:
    """The part of the new text that the fewest edits make out of ``old[start:end]``; it may be empty."""
    shared = [Block(one.a, one.b, one.size) for one in Levenshtein.editops(old, new).as_matching_blocks()]
    walls = [Block(0, 0, 0), *settled(shared, old, new), Block(len(old), len(new), 0)]
    # The block that holds the first character, or is before the change that does; the last one from its other side.
    number = bisect_right(walls, start, hi=len(walls) - 1, key=lambda block: block.old) - 1
    first = min(walls[number].new + start - walls[number].old, walls[number + 1].new)
    number = bisect_left(walls, end, lo=1, hi=len(walls) - 1, key=lambda block: block.old_end)
    after = max(walls[number].new_end - (walls[number].old_end - end), walls[number - 1].new_end)
    return first, max(first, after)


def _is_border(text: str, place: int) -> bool:
    return not (0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum())
