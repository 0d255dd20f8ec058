"""The blocks of a difference: valid, as heavy as can be, and put where a writer makes changes."""

import random
from itertools import combinations, pairwise

import pytest

from rag_eval.ground_truth.diff import MatchingBlock, longest_chain, settled, shared_blocks

WORDS = ["la ", "la la ", "x", "end", "lo ", "- a\n", "b. ", "\n\n", "22:40 ", "aa", "a", "abcdefgh"]


def check_valid(blocks: list[MatchingBlock], old: str, new: str) -> None:
    for block in blocks:
        assert block.length > 0
        assert 0 <= block.old <= block.old_end <= len(old)
        assert old[block.old : block.old_end] == new[block.new : block.new_end]
    for before, after in pairwise(blocks):
        assert before.old_end <= after.old
        assert before.new_end <= after.new
        assert (before.old_end, before.new_end) != (after.old, after.new), "touching blocks are one"


def changes(blocks: list[MatchingBlock], old: str, new: str) -> int:
    """How many stretches differ, before, between and after the blocks."""
    walls = [MatchingBlock(0, 0, 0), *blocks, MatchingBlock(len(old), len(new), 0)]
    return sum((left.old_end, left.new_end) != (right.old, right.new) for left, right in pairwise(walls))


@pytest.mark.parametrize("seed", range(100))
def test_a_settled_difference_shares_as_much_as_before(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # seeded inputs
    for _ in range(20):
        old = new = "".join(rng.choice(WORDS) for _ in range(rng.randrange(2, 9)))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(new) + 1)
            new = new[:at] + rng.choice(["", "", "la ", "x", " b"]) + new[at + rng.choice([0, 0, 1, 3, 6, 9]) :]
        blocks = shared_blocks(old, new)
        check_valid(blocks, old, new)
        found = settled(blocks, old, new)
        check_valid(found, old, new)
        assert sum(block.length for block in found) == sum(block.length for block in blocks)
        assert changes(found, old, new) <= changes(blocks, old, new), "changes become one, never two"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("endla la aa22:40 a", "endy aa22:40 ax", [(0, 0, 3), (8, 4, 10)]),
        ("lo la - a\n\n\n", "lo lala a\n\n", [(0, 0, 5), (7, 7, 4)]),
        ("\n\n\n\n", "\n\n\n", [(0, 0, 3)]),
        ("One. Two. Two. Three.", "One. Two. Three.", [(0, 0, 10), (15, 10, 6)]),
        ("a\n\nb b\n\nb c", "a\n\nb c", [(0, 0, 3), (8, 3, 3)]),
    ],
)
def test_blocks_that_are_shared_by_chance_are_used_up(old: str, new: str, expected: list[tuple[int, int, int]]) -> None:
    assert settled(shared_blocks(old, new), old, new) == expected


def test_blocks_of_text_that_repeats_do_not_overlap() -> None:
    noon = "leaves at noon. "
    old = f"{noon}ab ab {noon}{noon}ab {noon}of {noon}{noon}of xy of ab {noon}of of ab "
    new = f"oon. ab ab {noon}leaveaves at es at noon. ab {noon}of at noon. {noon}of xy of ves at noon. of of ab "
    for one, other in ((old, new), (new, old)):
        found = shared_blocks(one, other)
        check_valid(found, one, other)
        assert sum(block.length for block in found) == 121


@pytest.mark.parametrize("seed", range(100))
def test_the_chain_has_as_many_pieces_as_can_rise_in_both_texts(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # seeded inputs
    count = rng.randrange(1, 9)
    pieces = [(old, new, 1) for old, new in enumerate(rng.sample(range(count), count))]
    chain = longest_chain(pieces)
    assert [piece for piece in pieces if piece in chain] == chain
    assert all(before < after for (_, before, _), (_, after, _) in pairwise(chain))
    longest = max(
        size
        for size in range(1, count + 1)
        for some in combinations(pieces, size)
        if all(before < after for (_, before, _), (_, after, _) in pairwise(some))
    )
    assert len(chain) == longest
