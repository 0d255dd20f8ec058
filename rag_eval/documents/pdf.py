"""Read the text of a PDF in reading order, and locate each word on its pages.

A PDF draws glyphs at positions, in any order. This module groups glyphs into words;
``rag_eval.documents.reading_order`` groups words into lines, columns and tables. Headings, headers and footers are
found by comparing all pages.
"""

import ctypes
import re
import struct
import unicodedata
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, pairwise, repeat
from math import hypot
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rag_eval.distribution import install_command
from rag_eval.documents.boxes import WordBox, pack
from rag_eval.documents.loaders import LoadedText
from rag_eval.documents.reading_order import Floats, Line, Word, in_clusters, is_right_to_left, lines_in_order
from rag_eval.errors import ConfigurationError, UnreadableDocumentError
from rag_eval.parts import part

MOST_PAGES = 5_000
MARGIN = 0.12
"""Share of a page, at its top and bottom, that may hold headers and footers."""
RUNNING = 3
"""Number of pages on which a line must recur at the same height to count as a header or footer."""
HEADING = 1.15
"""Minimum size of a heading, relative to the body text."""
LONGEST_HEADING = 200
MOST_BLANKS = 80
"""Maximum number of blanks between two words of code, or before the first."""
MOST_PIXELS = 4_000
SIZE, BASELINE = (Word._fields.index(name) - 1 for name in ("size", "baseline"))
"""Columns of ``_Page.numbers``."""

Indices = NDArray[np.int64]


@part
class PdfLoader:
    """Loads the text layer of a PDF in reading order, with the place of each word on its page."""

    running_lines: bool = Field(
        default=False,
        description="Keep headers, footers and page numbers in the text.",
    )
    packages = ("pypdfium2",)

    def load(self, data: bytes) -> LoadedText:
        """Return the text, the start of each page, and the boxes of the words.

        Raises:
            UnreadableDocumentError: The file is broken or encrypted, or has no text layer or too many pages.
            ConfigurationError: pypdfium2 is not installed.
        """
        with _opened(data) as document:
            if len(document) > MOST_PAGES:
                raise UnreadableDocumentError(f"has {len(document):,} pages, more than {MOST_PAGES:,}: split it")
            pages = [_page(document, number) for number in range(len(document))]
        if not any(page.texts for page in pages):
            raise UnreadableDocumentError("has no text layer: it is a scan, run OCR on it first")
        if not self.running_lines:
            pages = _without_running_lines(pages)
        body = _body_size(pages)
        writer = _Writer(body, _levels(pages, body))
        for page in pages:
            writer.add_page(lines_in_order(page.words()), page.size)
        return writer.loaded()


def draw_page(data: bytes, page: int, width: int = 800) -> bytes:
    """Return a page of a PDF, counted from 1, as a PNG of this width. Raises like ``PdfLoader.load``."""
    with _opened(data) as document:
        if not 1 <= page <= len(document):
            raise UnreadableDocumentError(f"has {len(document):,} pages and no page {page:,}")
        across, down = document[page - 1].get_size()
        scale = min(width, MOST_PIXELS) / max(across, 1.0)
        scale = min(scale, MOST_PIXELS / max(down, 1.0))
        bitmap = document[page - 1].render(scale=scale, rev_byteorder=True, maybe_alpha=False)
        pixels = np.asarray(bitmap.to_numpy())[:, :, :3]
    high, wide, _ = pixels.shape
    rows = np.zeros((high, 1 + 3 * wide), np.uint8)  # each row starts with its filter, 0
    rows[:, 1:] = pixels.reshape(high, -1)
    header = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_part(kind, chunk) for kind, chunk in parts)


def _png_part(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _opened(data: bytes) -> Any:
    try:
        import pypdfium2
    except ImportError:
        raise ConfigurationError(f"PDF files need pypdfium2: {install_command('documents')}") from None
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        is_locked = "password" in str(error).lower()
        reason = "is encrypted: remove its password" if is_locked else f"is not a PDF, or damaged ({error})"
        raise UnreadableDocumentError(reason) from None


# Glyphs and words.

_BLANKS = np.array([0xA0, 0xFEFF, 0xFFFF], np.uint32)
_HYPHENS = str.maketrans(dict.fromkeys("\x02\ufffe\u00ad\u2010", "-"))
"""pdfium returns U+0002 or U+FFFE for hyphens at line ends."""
_FORMS = re.compile("[\ufb00-\ufdff\ufe70-\ufefc]+")
"""Ligatures and presentation forms of Arabic letters."""


class _Page(NamedTuple):
    """The words of a page in the order of the file: their texts, and the other fields of ``Word``."""

    texts: list[str]
    numbers: NDArray[np.float32]
    size: tuple[float, float]

    def words(self) -> list[Word]:
        return [Word(text, *row) for text, row in zip(self.texts, self.numbers.tolist(), strict=True)]

    def without(self, words: list[int]) -> "_Page":
        """Return the page without the words at these indexes."""
        if not words:
            return self
        gone = set(words)
        remaining = [number for number in range(len(self.texts)) if number not in gone]
        return self._replace(texts=[self.texts[number] for number in remaining], numbers=self.numbers[remaining])


def _page(document: Any, number: int) -> _Page:
    import pypdfium2

    words, size = list[Word](), (1.0, 1.0)
    with suppress(pypdfium2.PdfiumError):  # a broken page has no text
        page = document[number]
        size = page.get_size()
        text = page.get_textpage()
        if min(size) > 0 and text.count_chars():
            words = list(_words(page, text))
        text.close()
        page.close()
    numbers = np.array([word[1:] for word in words], np.float32).reshape(-1, len(Word._fields) - 1)
    return _Page([word.text for word in words], numbers, size)


class _Glyphs(NamedTuple):
    """The visible glyphs of a page in the order of the file: their numbers, code points, and boxes as displayed."""

    numbers: Indices
    codes: NDArray[np.uint32]
    low: Floats
    high: Floats


def _glyphs(text: Any, size: Floats, turn: Floats) -> _Glyphs:
    from pypdfium2 import raw

    count, handle = text.count_chars(), text.raw
    rectangles = (raw.FS_RECTF * count)()
    # One call per glyph: map is much faster than a loop.
    codes = np.fromiter(map(raw.FPDFText_GetUnicode, repeat(handle), range(count)), np.uint32, count)
    is_known = np.fromiter(map(raw.FPDFText_GetLooseCharBox, repeat(handle), range(count), rectangles), bool, count)
    boxes = np.frombuffer(rectangles, np.float32).reshape(-1, 4).astype(np.float64)
    corners = boxes[:, [0, 1]] @ turn[:2] + turn[2], boxes[:, [2, 3]] @ turn[:2] + turn[2]
    low, high = np.minimum(*corners), np.maximum(*corners)
    is_seen = is_known & (codes < 0x110000) & ((high >= 0) & (low <= size)).all(axis=1)
    is_seen &= ((codes > 32) | (codes == 2)) & ~np.isin(codes, _BLANKS) & ((codes & 0x1FF800) != 0xD800)
    seen = np.flatnonzero(is_seen)
    return _Glyphs(seen, codes[seen], low[seen], high[seen])


def _words(page: Any, text: Any) -> Iterator[Word]:
    from pypdfium2 import raw

    handle = text.raw
    size, turn = _shown(page)
    seen, codes, low, high = _glyphs(text, size, turn)
    if not len(seen):
        return
    letters = [*map(chr, codes.tolist())]
    has_rtl = bool((((codes >= 0x590) & (codes < 0x900)) | ((codes >= 0xFB1D) & (codes < 0xFF00))).any())
    (xx, xy), (yx, yy), (_, y0) = turn.tolist()
    matrix, x, y = raw.FS_MATRIX(), ctypes.c_double(), ctypes.c_double()
    is_first = np.r_[True, np.diff(seen) > 1]  # the previous glyph is not visible
    is_far = _far(low, high)
    turned = set[int]()
    for first, last in pairwise([*np.flatnonzero(is_first).tolist(), len(seen)]):
        raw.FPDFText_GetMatrix(handle, int(seen[first]), matrix)
        along = matrix.a * xx + matrix.b * yx, matrix.a * xy + matrix.b * yy
        is_upside_down = along[0] * raw.FPDFText_GetFontSize(handle, int(seen[first])) < 0
        if is_upside_down or abs(along[1]) > 0.2 * abs(along[0]):
            turned.add(first)
            is_far[first:last] = False
    starts = np.flatnonzero(is_first | is_far)
    extents = [np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)]
    edges = np.hstack([*extents, _pitches(high[:, 0] - low[:, 0], starts)[:, None]]).tolist()
    for (first, last), (left, top, right, bottom, pitch) in zip(
        pairwise([*starts.tolist(), len(seen)]), edges, strict=True
    ):
        raw.FPDFText_GetMatrix(handle, int(seen[first]), matrix)
        raw.FPDFText_GetCharOrigin(handle, int(seen[first]), x, y)
        up = hypot(matrix.c * xx + matrix.d * yx, matrix.c * xy + matrix.d * yy)
        # Flat text has no height.
        points = max(0.1, abs(raw.FPDFText_GetFontSize(handle, int(seen[first])) * up))
        baseline = x.value * xy + y.value * yy + y0
        part, is_turned = letters[first:last], first in turned
        is_rtl = has_rtl and is_right_to_left(part)
        if is_rtl and low[last - 1, 0] > low[first, 0]:  # drawn from the left
            part = in_clusters(part)[::-1]
        if not is_turned:  # some fonts have boxes much higher than their letters
            top, bottom = max(top, baseline - 1.1 * points), min(bottom, baseline + 0.4 * points)
        top, bottom = min(top, bottom), max(top, bottom)
        yield Word(_plain("".join(part)), left, top, right, bottom, points, baseline, pitch, is_rtl, is_turned)


def _plain(word: str) -> str:
    """Return a word with plain hyphens, and letters instead of ligatures and presentation forms."""
    return _FORMS.sub(lambda form: unicodedata.normalize("NFKC", form[0]), word.translate(_HYPHENS))


def _pitches(widths: Floats, starts: Indices) -> Floats:
    """Return the width of the glyphs of each word if they are equally wide, otherwise 0."""
    pitches = np.add.reduceat(widths, starts) / np.diff(np.r_[starts, len(widths)])
    ranges = np.maximum.reduceat(widths, starts) - np.minimum.reduceat(widths, starts)
    return np.where(ranges < 0.03 * pitches, pitches, 0.0)


def _far(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Return for each glyph whether it is too far from the previous one to be in the same word."""
    left, right, heights = low[:, 0], high[:, 0], high[:, 1] - low[:, 1]
    middle, higher = (low[:, 1] + high[:, 1]) / 2, np.maximum(heights[1:], heights[:-1])
    ahead, back = left[1:] - right[:-1], left[:-1] - right[1:]  # the gaps of left-to-right and of right-to-left text
    is_near = (np.minimum(np.abs(ahead), np.abs(back)) < 0.3 * higher) | ((ahead < 0) & (back < 0))
    is_far: NDArray[np.bool_] = np.r_[False, ~is_near | (np.abs(np.diff(middle)) > 0.6 * higher)]
    return is_far


def _shown(page: Any) -> tuple[Floats, Floats]:
    """Return the size of a page in points, and the matrix from its coordinates to those of its display."""
    from pypdfium2 import raw

    size, fine = np.array(page.get_size()), 2**20
    x, y = ctypes.c_int(), ctypes.c_int()
    corners = []
    for point in ((0.0, 0.0), (1000.0, 0.0), (0.0, 1000.0)):
        raw.FPDF_PageToDevice(page.raw, 0, 0, fine, fine, 0, *point, x, y)
        corners.append(np.array([x.value, y.value]) / fine * size)
    return size, np.array([(corners[1] - corners[0]) / 1000, (corners[2] - corners[0]) / 1000, corners[0]])


# Properties of the whole document.


def _without_running_lines(pages: list[_Page]) -> list[_Page]:
    """Return the pages without headers, footers and page numbers.

    These are the two outermost lines of a margin, if no larger than the body text, that recur at the same height on at
    least ``RUNNING`` pages with the same text except for numbers, or with a number that increases with the pages.
    """
    body = _body_size(pages)
    rows = [
        (number, row, _running_keys(page, number, row, is_top))
        for number, page in enumerate(pages)
        for is_top, row in _margin_rows(page)
        if max(page.numbers[row, SIZE]) <= HEADING * body
    ]
    pages_of: dict[object, set[int]] = defaultdict(set)
    for number, _, keys in rows:
        for key in keys:
            pages_of[key].add(number)
    gone: dict[int, list[int]] = defaultdict(list)
    for number, row, keys in rows:
        if any(len(pages_of[key]) >= RUNNING for key in keys):
            gone[number] += row
    return [page.without(gone[number]) for number, page in enumerate(pages)]


def _running_keys(page: _Page, number: int, row: list[int], is_top: bool) -> list[object]:
    """Return what a header or footer shares with other pages: its words, or its distance to a number."""
    text = " ".join(page.texts[word] for word in row)
    place = is_top, round(float(page.numbers[row[0], BASELINE]) / 3)
    alike = re.sub(r"\d+", "#", "#" if re.fullmatch("[ivxlc]+", text) else text)
    return [(*place, alike), *((*place, int(end[:9]) - number) for end in re.findall(r"^\d+\b|\b\d+$", text))]


def _margin_rows(page: _Page) -> Iterator[tuple[bool, list[int]]]:
    """Yield the two outermost lines of each margin: whether it is the top margin, and the indexes of the words."""
    if not page.texts:
        return
    heights, sizes = page.numbers[:, BASELINE], page.numbers[:, SIZE]
    for is_top in (True, False):
        share = heights / page.size[1]
        inside = np.flatnonzero(share < MARGIN if is_top else share > 1 - MARGIN)
        outward = inside[np.argsort(heights[inside] * (1 if is_top else -1), kind="stable")]
        for _ in range(2):
            if not len(outward):
                break
            is_row = np.abs(heights[outward] - heights[outward[0]]) < 0.4 * sizes[outward[0]]
            row = outward[is_row]
            yield is_top, row[np.argsort(page.numbers[row, 0])].tolist()
            outward = outward[~is_row]


def _body_size(pages: list[_Page]) -> float:
    """Return the size of most of the text."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for text, size in zip(page.texts, np.round(page.numbers[:, SIZE] * 2).tolist(), strict=True):
            sizes[size / 2] += len(text)
    return sizes.most_common(1)[0][0] if sizes else 1.0


# Text.

_OPEN = "\0"
"""A placeholder for a hyphen at a line end until all words are known. A PDF cannot contain this character."""
_DIVIDED = re.compile("[a-zà-ÿ]-\n[a-zà-ÿ]")
"""A hyphen at a line end, inside a word."""
_ITEM = re.compile(r"[•◦▪●○■‣∙·*–—-]|\d{1,3}[.)]")
"""The start of a list item."""
_FIRSTS = frozenset(
    ["all", "anti", "cross", "ex", "half", "ill", "multi", "non", "post", "pre", "self", "semi", "well"]
)
"""Words that are often followed by a hyphen inside a line."""
_HYPHENATED = re.compile(f"(?<![a-zà-ÿ])([a-zà-ÿ]+){_OPEN}([a-zà-ÿ]+)")  # matches every word exactly once


class _Writer:
    """Writes lines as text, and records the start of each page and the box of each word."""

    def __init__(self, body: float, levels: dict[int, int]) -> None:
        self._body, self._levels = body, levels
        self._pieces: list[str] = []
        self._length = 0
        self._places: list[tuple[int, str]] = []
        self._boxes: list[Floats] = []  # an array for each page, to save memory
        self._last: Line | None = None

    def add_page(self, lines: list[Line], size: tuple[float, float]) -> None:
        """Append the lines of the next page."""
        page, boxes = len(self._places) + 1, list[tuple[float, ...]]()
        spacings = _spacings(lines)
        for number, line in enumerate(lines):
            level, between = self._level(line), ""
            if self._last is not None:
                between = self._between(self._last, line, spacings[line.block], is_same_page=number > 0)
            if between == _OPEN:
                self._pieces[-1] = self._pieces[-1][:-1] + _OPEN
            else:
                self._add(between)
            if not number:
                self._places.append((self._length, f"page {page}"))
            if level and between != " ":
                self._add("#" * level + " ")
            boxes += self._add_line(line, page, size)
            self._last = line
        if not lines:
            self._places.append((self._length, f"page {page}"))
        self._boxes.append(np.array(boxes).reshape(-1, len(WordBox._fields)))

    def _add(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _add_line(self, line: Line, page: int, size: tuple[float, float]) -> list[tuple[float, ...]]:
        """Add the words of a line, and return their boxes."""
        (across, down), boxes = size, list[tuple[float, ...]]()
        pitch = 0.0 if line.is_row else line.pitch
        line_edges = min(word.top for word in line.words), max(word.bottom for word in line.words)
        for number, word in enumerate(line.words):
            self._add(_gap(line, number, pitch))
            begin, end = (word.right, word.left) if word.is_rtl else (word.left, word.right)
            top, bottom = (word.top, word.bottom) if word.is_turned else line_edges
            stop = self._length + len(word.text)
            boxes.append((self._length, stop, page, begin / across, top / down, end / across, bottom / down))
            self._add(word.text)
        return boxes

    def _level(self, line: Line) -> int:
        """Return the level of a heading, or 0 for other lines. A heading contains letters and is not a paragraph."""
        if line.size < HEADING * self._body or line.is_row or line.words[0].is_turned:
            return 0
        text = str(line)
        is_title = len(text) <= LONGEST_HEADING and sum(map(str.isalpha, text)) > 1
        return self._levels.get(round(line.size), 0) if is_title else 0

    def _between(self, before: Line, line: Line, spacing: float, *, is_same_page: bool) -> str:
        """Return the text between two lines: a blank if the second continues the first, otherwise line breaks."""
        level, size = self._level(line), max(line.size, before.size)
        step = line.baseline - before.baseline if is_same_page else -1.0  # the text continues at the top
        is_same_block = is_same_page and before.block == line.block
        if self._level(before) != level:
            return "\n\n"
        if level:
            is_same = 0 < step < 1.7 * size and abs(line.size - before.size) < 0.05 * size
            return " " if is_same else "\n\n"
        if before.is_row or line.is_row:
            return "\n" if is_same_block else "\n\n"
        is_near = is_same_block and 0 < step < max(1.45 * spacing, 1.3 * size)
        return _between_text(before, line, is_near, is_next=step < 0 or not is_same_block, is_above=step < 0)

    def loaded(self) -> LoadedText:
        """Return the text, with hyphenated words joined where this is safe."""
        text, gone = _joined("".join(self._pieces))
        boxes = np.concatenate(self._boxes)
        boxes[:, :2] -= np.searchsorted(gone, boxes[:, :2])
        moved = np.searchsorted(gone, [start for start, _ in self._places]).tolist()
        places = [(start - by, name) for (start, name), by in zip(self._places, moved, strict=True)]
        return LoadedText(f"{text}\n", places, pack(boxes))


def _spacings(lines: list[Line]) -> dict[int, float]:
    """Return the median distance between the lines of each block, or 0 for one or two lines."""
    spacings = {}
    for block, same in groupby(lines, key=attrgetter("block")):
        steps = [other.baseline - line.baseline for line, other in pairwise(same)]
        spacings[block] = float(np.median(steps)) if len(steps) > 1 else 0.0
    return spacings


def _gap(line: Line, number: int, pitch: float) -> str:
    """Return the text before a word. In code, which has a pitch, the blanks fill the gap."""
    if number in line.cells:
        return " | "
    if not pitch:
        return " " if number else ""
    left = line.words[number].left
    room = max(pitch, left - line.words[number - 1].right) if number else left - line.left
    return " " * min(MOST_BLANKS, round(room / pitch))


def _between_text(before: Line, line: Line, is_near: bool, is_next: bool, is_above: bool) -> str:
    """Return the text between two lines of text; ``is_next`` allows a change of column or page between them."""
    first, last = line.words[0].text, before.words[-1].text
    goes_on = first[0].islower() and last[-1] not in ".!?:;"
    if (is_near or is_above or goes_on) and _DIVIDED.search(f"{last}\n{first}"):
        return _OPEN
    if not is_near:  # another column, page or paragraph
        return "\n" if is_next and goes_on else "\n\n"
    if (line.pitch and before.pitch) or _ITEM.fullmatch(first):
        return "\n"
    return " " if _is_wrapped(before, line) else "\n"


def _is_wrapped(before: Line, line: Line) -> bool:
    """Return whether the first word of a line would not have fitted on the previous one, which has a similar indent."""
    first, last, size = line.words[0], before.words[-1], max(line.size, before.size)
    if before.is_rtl:
        room, indent = last.left - before.left, before.right - before.words[0].right
    else:
        room, indent = before.right - last.right, first.left - before.words[0].left
    is_hanging = any(abs(word.left - first.left) < 0.3 * size for word in before.words[1:4])
    is_full = room < first.right - first.left + 0.3 * size and (indent < 0.8 * size or is_hanging)
    return is_full and abs(line.size - before.size) < 0.15 * size


def _levels(pages: list[_Page], body: float) -> dict[int, int]:
    """Return the levels of headings by size, or none if much of the document is in large letters."""
    sizes: Counter[int] = Counter()
    length = 0
    for page in pages:
        length += sum(map(len, page.texts))
        for number in np.flatnonzero(page.numbers[:, SIZE] >= HEADING * body).tolist():
            if any(map(str.isalpha, page.texts[number])):
                sizes[round(float(page.numbers[number, SIZE]))] += len(page.texts[number])
    if 4 * sizes.total() > length:
        return {}
    return {size: min(level, 6) for level, size in enumerate(sorted(sizes, reverse=True), start=1)}


def _joined(text: str) -> tuple[str, Indices]:
    """Join hyphenated words where that is safe. Return the text and the places of removed characters."""
    words = Counter(re.findall("[a-zà-ÿ]+(?:-[a-zà-ÿ]+)*", _HYPHENATED.sub(" ", text)))
    gone = []

    def joined(halves: re.Match[str]) -> str:
        first, second = halves[1], halves[2]
        # Halves that are words, such as well and known, may be written with a hyphen.
        is_compound = first in _FIRSTS or (words[first] > 0 and words[second] > 0)
        is_divided = words[f"{first}-{second}"] == 0 and not is_compound
        if words[first + second] > 0 or is_divided:
            gone.append(halves.end(1))
            return first + second
        return f"{first}-{second}"

    return _HYPHENATED.sub(joined, text).replace(_OPEN, "-"), np.array(gone, np.int64)
