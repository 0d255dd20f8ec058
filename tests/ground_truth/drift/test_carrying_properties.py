"""Random edits to random documents, held against what was really done to them.

A text alone does not always tell what was done: "a b a" becomes "a" in two ways. A place is right when it is the real
one, or when the documents can be explained with it just as well: the span stays there, and before and after it at
least as many characters stay as really did. A span that survives may be given up only where something else explains
the documents just as well.
"""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import LCSseq, Levenshtein
from strategies import nasty_texts

from rag_eval import Corpus
from rag_eval.ground_truth.diff import SOLID, MatchingBlock
from rag_eval.ground_truth.drift import LEAST_SIMILARITY, Carried, Carrier
from rag_eval.ground_truth.folding import places_of
from rag_eval.sample import CORPUS

OURS = settings(deadline=None, derandomize=True, max_examples=300)
WORDS = ["ferry", "leaves", "at", "noon", "Ticket", "prices", "fell.", "\n", "\n\n", "é", "👍🏽", "漢字", "22:40"]
LINES = ["The ferry leaves at noon.\n", "Tickets are sold on board.\n\n", "Dogs travel free of charge.\n"]


@dataclass(frozen=True)
class History:
    """An old text, the new one, and for each character of the new one its place in the old one, or None."""

    old: str
    new: str
    origins: list[int | None]

    @property
    def stayed(self) -> int:
        """How many characters of the old text are in the new one."""
        return sum(origin is not None for origin in self.origins)

    def real_start(self, start: int, end: int) -> int | None:
        """Where ``old[start:end]`` is now; None when it was cut or split."""
        wanted = list(range(start, end))
        first = self.origins.index(start) if start in self.origins else -1
        return first if first >= 0 and self.origins[first : first + end - start] == wanted else None

    def stayed_around(self, place: int) -> int:
        """How many characters around a place of the new text stayed together."""
        first = after = place
        while first > 0 and self._follows(first):
            first -= 1
        while after + 1 < len(self.origins) and self._follows(after + 1):
            after += 1
        return after + 1 - first

    def _follows(self, place: int) -> bool:
        before, here = self.origins[place - 1], self.origins[place]
        return before is not None and here is not None and before + 1 == here

    def explains(self, start: int, end: int, place: int) -> bool:
        """Whether the span may as well have gone to this place."""
        length = end - start
        before = LCSseq.similarity(self.old[:start], self.new[:place])
        after = LCSseq.similarity(self.old[end:], self.new[place + length :])
        return before + length + after >= self.stayed

    def explains_loss(self, start: int, end: int) -> bool:
        """Whether all that stayed may as well have come from elsewhere."""
        return LCSseq.similarity(self.old[:start] + self.old[end:], self.new) >= self.stayed


def edited(draw: st.DrawFn, old: str, most_edits: int) -> History:
    new: list[tuple[str, int | None]] = [(char, place) for place, char in enumerate(old)]
    for _ in range(draw(st.integers(0, most_edits))):
        start = draw(st.integers(0, len(new)))
        end = start + draw(st.sampled_from([0, 0, 1, 5, 30]))
        inserted = draw(st.sampled_from(["", "", "#", "new ", "ferry ", "§ 7 § ", "\n"]))
        new[start:end] = [(char, None) for char in inserted]
    return History(old, "".join(char for char, _ in new), [origin for _, origin in new])


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, list[tuple[int, int]]]:
    numbered = st.integers(0, 99).flatmap(lambda number: st.sampled_from(LINES).map(lambda line: f"{number} {line}"))
    pieces = draw(st.lists(numbered | st.sampled_from(LINES) | st.sampled_from(WORDS) | nasty_texts(12), max_size=14))
    old = draw(st.sampled_from(["", " "])).join(pieces)
    starts = st.integers(0, max(0, len(old) - 1))
    spans = draw(st.lists(st.tuples(starts, st.sampled_from([1, 4, 12, 25, 60])), max_size=6)) if old else []
    places = [(start, min(len(old), start + length)) for start, length in spans]
    return edited(draw, old, 5), places


def check_sound(history: History, start: int, end: int, carried: Carried) -> None:
    text = history.old[start:end]
    assert (carried.status == "lost") == (carried.place is None) == (carried.reason is not None)
    if carried.place is not None:
        found = history.new[slice(*carried.place)]
        assert 0 <= carried.place[0] < carried.place[1] <= len(history.new)
        assert (carried.status == "altered") == (found != text)
        assert (carried.status == "kept") == (found == text and carried.place[0] == start)


@OURS
@given(histories())
def test_what_survives_goes_to_the_right_place_and_nothing_to_a_wrong_one(
    drawn: tuple[History, list[tuple[int, int]]],
) -> None:
    history, spans = drawn
    carrier = Carrier(history.old, history.new)
    for start, end in spans:
        carried = carrier.carry(start, end)
        check_sound(history, start, end, carried)
        real = history.real_start(start, end)
        if carried.place is not None and carried.status in ("kept", "moved"):
            place = carried.place[0]
            assert place == real or history.explains(start, end, place), (history, start, end, carried)
        elif real is not None and history.stayed_around(real) >= SOLID:
            others = [place for place in places_of(history.old[start:end], history.new) if place != real]
            cannot_be_told = any(history.explains(start, end, place) for place in others)
            assert cannot_be_told or history.explains_loss(start, end), (history, start, end, carried)


@OURS
@given(histories())
def test_without_comparing_characters_nothing_goes_to_a_wrong_place(
    drawn: tuple[History, list[tuple[int, int]]],
) -> None:
    history, spans = drawn
    carrier = Carrier(history.old, history.new, exact_cells=0)
    for start, end in spans:
        carried = carrier.carry(start, end)
        check_sound(history, start, end, carried)
        if carried.place is not None and carried.status in ("kept", "moved"):
            place = carried.place[0]
            assert place == history.real_start(start, end) or history.explains(start, end, place)


def rewritten(rng: random.Random) -> tuple[str, str, list[MatchingBlock]]:
    """Two texts that share only short blocks, no character occurring twice, and the blocks with an empty one around.

    The blocks are so much longer than what a change adds or takes that no other difference is as small.
    """
    fresh = iter(map(chr, range(0x4E00, 0x4E00 + 1000)))

    def some(count: int) -> str:
        return "".join(next(fresh) for _ in range(count))

    old, new, blocks = "", "", [MatchingBlock(0, 0, 0)]
    for _ in range(rng.randrange(3, 9)):
        gone = rng.randrange(1, 4)
        old, new = old + some(gone), new + some(max(1, gone + rng.randrange(-1, 2)))
        kept = some(rng.randrange(4, SOLID))
        blocks.append(MatchingBlock(len(old), len(new), len(kept)))
        old, new = old + kept, new + kept
    old, new = old + some(2), new + some(2)
    return old, new, [*blocks, MatchingBlock(len(old), len(new), 0)]


@pytest.mark.parametrize("seed", range(200))
def test_an_altered_span_is_what_became_of_its_first_to_its_last_character(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # seeded inputs
    old, new, blocks = rewritten(rng)
    carrier = Carrier(old, new)
    for _ in range(20):
        first, last = sorted(rng.sample(range(len(blocks) - 1), 2))
        # Anywhere from the beginning of a block to the next; of a change, as much as the span had of it on that side.
        start = rng.randrange(blocks[first].old, blocks[first + 1].old)
        end = rng.randrange(blocks[last].old_end, blocks[last + 1].old_end) + 1
        expected = (
            min(blocks[first].new + start - blocks[first].old, blocks[first + 1].new),
            max(blocks[last + 1].new_end - (blocks[last + 1].old_end - end), blocks[last].new_end),
        )
        found = new[slice(*expected)]
        if Levenshtein.normalized_similarity(old[start:end], found) >= LEAST_SIMILARITY:
            assert carrier.carry(start, end) == Carried("altered", expected), (old, new, start, end)
        else:
            assert carrier.carry(start, end) == Carried("lost", None, "rewritten")


def report(lines: int, rng: random.Random) -> list[str]:
    """Paragraphs that begin with something of their own and go on with sentences that come back."""
    return [
        f"Entry {number} of {rng.randrange(10**6)}. {rng.choice(LINES).strip()} {rng.choice(LINES)}"
        for number in range(lines)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_lines_that_were_moved_take_their_spans_along(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # seeded inputs
    lines = report(30, rng)
    first = rng.randrange(28)
    moved, rest = lines[first : first + 2], lines[:first] + lines[first + 2 :]
    target = rng.randrange(len(rest))
    old, new = "".join(lines), "".join([*rest[:target], *moved, *rest[target:]])
    spans = []
    for _ in range(20):
        start = rng.randrange(len(old) - 60)
        spans.append((start, start + rng.choice([5, 20, 50])))
    carrier = Carrier(old, new)
    block, went_to = old.index(moved[0]), new.index(moved[0])
    size = sum(map(len, moved))
    for start, end in spans:
        carried = carrier.carry(start, end)
        text = old[start:end]
        if block <= start and end <= block + size:
            assert carried.place == (went_to + start - block, went_to + end - block)
        elif end <= block or block + size <= start:
            shifted = start - size * (start >= block)
            if not shifted < went_to < shifted + len(text):
                assert carried.place is not None
                assert carried.place[0] == shifted + size * (shifted >= went_to)


@pytest.mark.parametrize("seed", range(10))
def test_paragraphs_in_another_order_take_their_spans_along(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # seeded inputs
    documents = Corpus.from_folder(CORPUS).documents
    paragraphs = [f"{one}\n\n" for one in rng.choice(documents).content.split("\n\n")]
    order = rng.sample(range(len(paragraphs)), len(paragraphs))
    old, new = "".join(paragraphs), "".join(paragraphs[number] for number in order)
    carrier = Carrier(old, new)
    for number, paragraph in enumerate(paragraphs):
        if len(paragraph) < 80:
            continue  # a heading says too little to be known again
        first = rng.randrange(len(paragraph) - 60)
        start = sum(map(len, paragraphs[:number])) + first
        now = sum(len(paragraphs[other]) for other in order[: order.index(number)]) + first
        assert carrier.carry(start, start + 40).place == (now, now + 40)


def test_a_long_document_with_a_thousand_edits_loses_nothing_that_survives() -> None:
    rng = random.Random(3)  # noqa: S311  # seeded inputs
    old = "".join(report(13000, rng))
    pieces, origins, place = [], {}, 0
    for start in range(0, len(old), len(old) // 1000):
        piece = old[start : start + len(old) // 1000]
        cut = rng.randrange(len(piece) // 2)
        kind = rng.randrange(3)
        head, tail = piece[:cut], piece[cut + rng.randrange(1, 40) * (kind > 0) :]
        put_in = f" {rng.randrange(10**9)} " if kind < 2 else ""
        for offset, text in ((0, head), (len(piece) - len(tail), tail)):
            at = place if offset == 0 else place + len(head) + len(put_in)
            origins[start + offset] = (at, len(text))
        pieces.append(head + put_in + tail)
        place += len(pieces[-1])
    new = "".join(pieces)
    spans, expected = [], []
    for start, (at, length) in origins.items():
        if length >= 60:
            first = rng.randrange(20, length - 39)
            spans.append((start + first, start + first + 20))
            expected.append((at + first, at + first + 20))
    assert len(old) > 900_000
    carrier = Carrier(old, new)
    assert [carrier.carry(*span).place for span in spans] == expected
