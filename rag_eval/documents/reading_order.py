"""The reading order of the words of a page: lines, columns and tables.

Words that a file draws side by side are a segment. A gutter is a strip without text that has segments on both sides in
at least two lines; segments across it end it. If both sides are text, they are columns, read one after the other. If
their lines are at the same heights, they are a table, read row by row.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GUTTER = 0.8
"""Minimum width of a gutter, relative to the size of the text."""
DEEPEST = 8
_LABEL = re.compile(r"\W{1,2}|[(\[]?[\dA-Za-z]{1,3}[.):\]]{1,2}")
"""The label of a list item or an equation, which is not a column."""


class Word(NamedTuple):
    """A word and its box, in points from the top left corner of its page.

    ``pitch`` is the width of its glyphs if they are equally wide. ``is_turned`` is whether it is not horizontal, or
    upside down.
    """

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float
    baseline: float
    pitch: float = 0.0
    is_rtl: float = False
    is_turned: float = False


@dataclass(slots=True)
class Line:
    """Words in reading order. ``cells`` are the indexes of the words that start a new cell of a row.

    ``left`` and ``right`` are the edges of its column, which ``block`` identifies on the page.
    """

    words: list[Word]
    left: float
    right: float
    block: int
    cells: frozenset[int] = frozenset()
    is_row: bool = False

    @property
    def size(self) -> float:
        return max(self.words, key=lambda word: len(word.text)).size

    @property
    def baseline(self) -> float:
        return max(self.words, key=lambda word: word.size).baseline

    @property
    def is_rtl(self) -> bool:
        return _is_rtl(self.words)

    @property
    def pitch(self) -> float:
        """The width of the glyphs if all words have the same, otherwise 0."""
        known = [word.pitch for word in self.words if len(word.text) > 1]
        is_fixed = len(known) > 0 and min(known) > 0 and max(known) - min(known) < 0.05 * max(known)
        return max(known) if is_fixed and sum(len(word.text) for word in self.words) > 5 else 0.0

    def __str__(self) -> str:
        return " ".join(word.text for word in self.words)


class Segment(NamedTuple):
    """Words that a file draws consecutively on a line."""

    words: list[Word]
    left: float
    right: float
    baseline: float
    size: float
    length: int

    @classmethod
    def of(cls, words: list[Word]) -> "Segment":
        """Return the segment of these words."""
        edges = min(word.left for word in words), max(word.right for word in words)
        largest = max(words, key=lambda word: word.size)
        return cls(words, *edges, largest.baseline, largest.size, sum(len(word.text) for word in words))


OnLine = TypeVar("OnLine", Word, Segment)


def is_right_to_left(letters: Sequence[str]) -> bool:
    """Return whether most letters belong to a right-to-left script."""
    kinds = [unicodedata.bidirectional(letter) for letter in letters]
    return sum(kind in ("R", "AL") for kind in kinds) > kinds.count("L")


def in_clusters(letters: Iterable[str]) -> list[str]:
    """Return each letter together with the combining marks that follow it."""
    clusters: list[str] = []
    for letter in letters:
        if clusters and unicodedata.combining(letter):
            clusters[-1] += letter
        else:
            clusters.append(letter)
    return clusters


def _is_rtl(words: Iterable[Word]) -> bool:
    return sum(len(word.text) if word.is_rtl else -len(word.text) for word in words) > 0


def lines_in_order(words: Sequence[Word]) -> list[Line]:
    """Return the lines of a page in reading order. Turned words come last, in the order of the file."""
    upright = [word for word in words if not word.is_turned]
    blocks = list(_blocks(_segments(upright), _is_rtl(words)))
    lines = [line for number, block in enumerate(blocks) for line in _lines(number, *block)]
    turned = [word for word in words if word.is_turned]
    if turned:
        edges = min(word.left for word in turned), max(word.right for word in turned)
        lines.append(Line(turned, *edges, len(blocks)))
    return lines


def _blocks(segments: list[Segment], is_rtl: bool, depth: int = 0) -> Iterator[tuple[list[Segment], bool]]:
    """Yield the segments between gutters in reading order, and whether they are a table."""
    parts = _divided(segments) if len(segments) > 3 and depth < DEEPEST else None
    if parts is None:
        yield segments, False
        return
    for kind, first, second in parts:
        if kind == "table":
            yield [*first, *second], True
        else:  # plain parts have no second side
            for side in (second, first) if is_rtl else (first, second):
                yield from _blocks(side, is_rtl, depth + 1)


def _lines(block: int, segments: list[Segment], is_table: bool) -> Iterator[Line]:
    left = min((segment.left for segment in segments), default=0.0)
    right = max((segment.right for segment in segments), default=0.0)
    for row in rows_of(segments):
        words = _in_order([word for segment in row for word in segment.words])
        yield Line(words, left, right, block, frozenset(_cells(words) if is_table else ()), is_table)


def _segments(words: Iterable[Word]) -> list[Segment]:
    runs: list[list[Word]] = []
    for word in words:
        last = runs[-1][-1] if runs else word
        size = max(word.size, last.size)
        gap = last.left - word.right if word.is_rtl and last.is_rtl else word.left - last.right
        if runs and abs(word.baseline - last.baseline) < 0.35 * size and -0.3 * word.size < gap < GUTTER * size:
            runs[-1].append(word)
        else:
            runs.append([word])
    return [Segment.of(run) for run in runs]


def rows_of(segments: Iterable[OnLine]) -> list[list[OnLine]]:
    """Group items with a baseline and a size into lines from the top. Superscripts and subscripts join their line."""
    rows: list[list[OnLine]] = []
    largest = None
    for item in sorted(segments, key=lambda item: (item.baseline, item.left)):
        if largest is not None and item.baseline - largest.baseline < 0.45 * max(item.size, largest.size):
            rows[-1].append(item)
            largest = item if item.size > largest.size else largest
        else:
            rows.append([item])
            largest = item
    return rows


def _in_order(words: list[Word]) -> list[Word]:
    """Return the words of a line in reading order, reversing runs in the opposite direction."""
    is_rtl = _is_rtl(words)
    across = sorted(words, key=lambda word: word.left + word.right)
    if is_rtl:
        across.reverse()
    ordered: list[Word] = []
    for is_opposite, words_of_run in groupby(
        across, lambda word: bool(word.is_rtl) != is_rtl and _has(word, str.isalnum)
    ):
        run = list(words_of_run)
        # Numbers between words in the other direction keep their order.
        ordered += run[::-1] if is_opposite and any(_has(word, str.isalpha) for word in run) else run
    return ordered


def _has(word: Word, is_kind: Callable[[str], bool]) -> bool:
    return any(map(is_kind, word.text))


def _cells(words: list[Word]) -> Iterable[int]:
    for number, (word, other) in enumerate(pairwise(words), start=1):
        gap = max(other.left - word.right, word.left - other.right)
        is_leader = not (word.text.strip(".·…") and other.text.strip(".·…"))
        if gap >= GUTTER * max(word.size, other.size) and not is_leader:
            yield number


Part = tuple[str, list[Segment], list[Segment]]


def _divided(segments: list[Segment]) -> list[Part] | None:
    """Return the parts that the best gutter separates, from the top, or None if there is no gutter."""
    numbers = np.array([(segment.left, segment.right, segment.baseline, segment.size) for segment in segments])
    left, right, height = numbers[:, 0], numbers[:, 1], numbers[:, 2]
    size = float(np.median(numbers[:, 3]))
    for place in _gutters(left, right, height, size):
        parts = _parts(segments, *_sides(left, right, height, place, size), size)
        if any(kind != "plain" for kind, _, _ in parts):
            return parts
    return None


def _gutters(left: Floats, right: Floats, height: Floats, size: float) -> list[float]:
    """Return where gutters may end, sorted by how much they separate and how little crosses them."""
    scored = []
    for place in np.unique(np.round(left / 2) * 2)[1:].tolist():
        if min(np.sum(left >= place - 1.5), np.sum(right <= place - GUTTER * size)) < 2:
            continue
        sides, bands = _sides(left, right, height, place, size)
        counts = [np.bincount(bands[sides == side], minlength=int(bands.max()) + 1) for side in (-1, 1)]
        both = np.minimum(*counts)
        score = int(both[both > 1].sum())
        if score:
            scored.append((score, -int((sides == 0).sum()), place))
    return [place for _, _, place in sorted(scored, reverse=True)[:6]]


def _parts(segments: list[Segment], sides: NDArray[np.int64], bands: NDArray[np.int64], size: float) -> list[Part]:
    """Return the parts that a gutter separates, band by band. Neighbouring plain parts are joined."""
    by_band: dict[int, tuple[list[Segment], ...]] = {}
    for segment, side, band in zip(segments, sides.tolist(), bands.tolist(), strict=True):
        by_band.setdefault(band, ([], [], []))[side].append(segment)
    parts: list[Part] = []
    for _, (across, second, first) in sorted(by_band.items()):
        for kind, some, others in _band_parts(first, second, across, size):
            if kind == "plain" and parts and parts[-1][0] == "plain":
                parts[-1][1].extend(some)
            elif some or others:
                parts.append((kind, some, others))
    return parts


def _band_parts(first: list[Segment], second: list[Segment], across: list[Segment], size: float) -> list[Part]:
    kind = _kind(first, second, size)
    if kind == "plain":
        return [("plain", [*first, *second, *across], [])]
    before: list[Segment] = []
    if kind == "table":  # it starts where both sides have text
        top = max(min(segment.baseline for segment in side) for side in (first, second)) - 0.35 * size
        before = [segment for segment in (*first, *second) if segment.baseline < top]
        first, second = ([segment for segment in side if segment.baseline >= top] for side in (first, second))
    return [("plain", before, []), (kind, first, second), ("plain", across, [])]


def _sides(
    left: Floats, right: Floats, height: Floats, place: float, size: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each segment whether it is left (-1) or right (1) of a gutter or across it (0), and its band.

    A band extends to the next segments across the gutter, which belong to it.
    """
    sides = np.where(left >= place - 1.5, 1, np.where(right <= place - GUTTER * size, -1, 0))
    across = np.sort(height[sides == 0])
    if len(across):
        after = np.searchsorted(across, height)
        near = [np.abs(height - across[np.clip(after + step, 0, len(across) - 1)]) for step in (-1, 0)]
        sides[np.minimum(*near) < 0.35 * size] = 0
    bands = np.searchsorted(across, height - 0.35 * size)
    return sides, bands.astype(np.int64)


class _Side:
    """The rows on one side of a gutter."""

    def __init__(self, segments: list[Segment]) -> None:
        self.rows = rows_of(segments)
        self.heights = np.array([row[0].baseline for row in self.rows])
        self.lefts = np.array([min(segment.left for segment in row) for row in self.rows])
        self.rights = np.array([max(segment.right for segment in row) for row in self.rows])

    @property
    def fill(self) -> float:
        """Share of the width that its median row fills."""
        return float(np.median(self.rights - self.lefts)) / max(1.0, float(self.rights.max() - self.lefts.min()))

    @property
    def length(self) -> float:
        """Number of characters of its median row."""
        return float(np.median([sum(segment.length for segment in row) for row in self.rows]))

    @property
    def flush(self) -> float:
        """Share of rows that end at the right edge."""
        return float(np.mean(np.abs(self.rights - self.rights.max()) < 1.5))

    @property
    def is_even(self) -> bool:
        """Whether most rows have the same left edge or the same middle."""
        middles = np.array([(row[0].left + row[0].right) / 2 for row in self.rows])
        return any(np.mean(np.abs(places - np.median(places)) < 1.5) > 0.75 for places in (self.lefts, middles))

    @property
    def has_labels(self) -> bool:
        labels = [row[0].words[0].text for row in self.rows if len(row) == 1 and len(row[0].words) == 1]
        return sum(_LABEL.fullmatch(text) is not None for text in labels) > 0.7 * len(self.rows)

    @property
    def has_numbers(self) -> bool:
        return bool(np.mean([any(map(str.isdigit, row[0].words[-1].text)) for row in self.rows]) > 0.6)


def _kind(first: list[Segment], second: list[Segment], size: float) -> str:
    """Return what two sides of a gutter are: columns, a table, or plain."""
    if len(first) < 2 or len(second) < 2 or _is_code([*first, *second]):
        return "plain"
    left, right = _Side(first), _Side(second)
    if not _are_beside(left, right):
        return "plain"
    fewer, more = sorted((left.heights, right.heights), key=len)
    is_wide = bool((right.lefts.min() - left.rights.max()) / size > 2 * GUTTER)
    # In a few lines of justified text, wide blanks may be aligned by chance.
    is_long = len(fewer) > (2 if is_wide else 5)
    aligned = float(np.mean(np.abs(fewer[:, None] - more[None, :]).min(axis=1) < 0.3 * size))
    if is_long and (aligned <= 0.7 or _are_texts(left, right, aligned, len(fewer))):
        return "columns"
    return "table" if aligned > 0.7 and _ends_row(right, len(fewer), is_wide) else "plain"


def _are_beside(left: _Side, right: _Side) -> bool:
    """Return whether the sides have rows beside each other, and not only the labels of a list."""
    if min(len(left.rows), len(right.rows)) < 2 or left.has_labels or right.has_labels:
        return False
    return bool(left.heights.max() >= right.heights.min() and right.heights.max() >= left.heights.min())


def _is_code(segments: Iterable[Segment]) -> bool:
    """Return whether most words are monospaced. Digits do not count, because they are in most fonts."""
    words = [word for segment in segments for word in segment.words if sum(map(str.isalpha, word.text)) > 1]
    return sum(word.pitch > 0 for word in words) > 0.6 * len(words)


def _are_texts(left: _Side, right: _Side, aligned: float, rows: int) -> bool:
    """Return whether the lines of both sides are long and full, as those of columns are."""
    is_text = min(left.fill, right.fill) > 0.7 and min(left.length, right.length) > 17
    return is_text and (aligned < 0.9 or max(left.flush, right.flush) > 0.5 or rows > 7)


def _ends_row(side: _Side, rows: int, is_wide: bool) -> bool:
    """Return whether the right side of a gutter is the last column of a table."""
    if side.has_numbers:
        return is_wide or side.is_even
    return side.is_even and (side.flush <= 0.6 or rows >= 8) and (is_wide or rows > 2)
