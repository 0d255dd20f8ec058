"""Carrying spans over to a changed document of a megabyte, in CPU seconds of one run.

The document is Chroma's longest ones where they are at hand, else made of the sample; edits and spans are seeded. A
span survives when no edit touched it; it is right when it is carried to its real place, and wrong when to another.
What stands in for the usual way is ``difflib.SequenceMatcher`` on lines, which knows only whole lines.
"""

import random
import time
from difflib import SequenceMatcher

from rag_eval.ground_truth.drift import Carrier
from rag_eval.sample import CORPUS
from tests.bench.chroma_data import FOLDER

CHARACTERS, EDITS, SPANS, SPAN_CHARACTERS = 1_000_000, 1_000, 2_000, 150
INSERTED = ("", "", "x", "in other words, ", "\n", "A new sentence was put in here. ")


def make_document() -> str:
    """Real text of a megabyte."""
    folder = FOLDER / "corpora" if FOLDER.is_dir() else CORPUS
    paths = sorted(folder.rglob("*.md"), key=lambda path: (-path.stat().st_size, path.name))
    text = "\n\n".join(path.read_bytes().decode("utf-8") for path in paths)
    copies = [text] + [f"\n\nPart {number}.\n\n{text}" for number in range(1, CHARACTERS // len(text) + 1)]
    return "".join(copies)[:CHARACTERS]


def edited(old: str, rng: random.Random) -> tuple[str, list[tuple[int, int, int]]]:
    """The text with stretches exchanged, and what was left alone: start and end, and where that is now."""
    places = sorted(rng.sample(range(len(old)), EDITS))
    pieces: list[str] = []
    left: list[tuple[int, int, int]] = []
    length, done = 0, 0
    for place in places:
        if place < done:
            continue
        inserted = rng.choice(INSERTED)
        left.append((done, place, length))
        pieces += [old[done:place], inserted]
        length += place - done + len(inserted)
        done = place + rng.choice((0, 1, 10, 60))
    left.append((done, len(old), length))
    return "".join([*pieces, old[done:]]), left


def real_place(start: int, left: list[tuple[int, int, int]]) -> int | None:
    """Where a span is now; None when an edit touched it."""
    for first, after, now in left:
        if first <= start and start + SPAN_CHARACTERS <= after:
            return now + start - first
    return None


def run() -> list[dict[str, object]]:
    """The figures: the time, and how many of the spans that survived were carried to their place."""
    rng = random.Random(20240817)  # noqa: S311  # seeded inputs
    old = make_document()
    new, left = edited(old, rng)
    starts = [rng.randrange(len(old) - SPAN_CHARACTERS) for _ in range(SPANS)]
    started = time.process_time()
    carrier = Carrier(old, new)
    compared = time.process_time()
    carried = [carrier.carry(start, start + SPAN_CHARACTERS) for start in starts]
    seconds = time.process_time() - started
    sliding = time.process_time()
    SequenceMatcher(None, old.splitlines(keepends=True), new.splitlines(keepends=True), autojunk=False).get_opcodes()
    line_seconds = time.process_time() - sliding
    places = [real_place(start, left) for start in starts]
    survived = [(place, one) for place, one in zip(places, carried, strict=True) if place is not None]
    right = sum(one.place is not None and one.place[0] == place for place, one in survived) / len(survived)
    wrong = sum(one.status in ("kept", "moved") and one.place[0] != place for place, one in survived if one.place)
    return [
        _figure("drift: 1 MB with 1,000 edits, 2,000 spans", seconds, 10, "s CPU", seconds <= 10),
        _figure("drift: of that, comparing the texts", compared - started, None, "s CPU"),
        _figure("drift: difflib on the lines alone", line_seconds, None, "s CPU"),
        _figure("drift: survivors carried to their place", right, 1, "", right == 1),
        _figure("drift: survivors carried to another place", wrong, 0, "spans", wrong == 0),
        _figure("drift: spans that edits touched, found altered", _share_altered(places, carried), None, ""),
    ]


def _share_altered(places: list[int | None], carried: list[object]) -> float:
    touched = [one for place, one in zip(places, carried, strict=True) if place is None]
    return sum(getattr(one, "status", None) == "altered" for one in touched) / len(touched)


def _figure(name: str, value: float, target: float | None, unit: str, ok: bool = True) -> dict[str, object]:
    return {"name": name, "value": value, "target": target, "unit": unit, "ok": ok}
