"""The text of a PDF as a reader sees it, and where on its pages each word is.

A PDF draws glyphs at places, in any order. Of the boxes of the glyphs words are made here, of words the lines, columns
and tables of a page in ``rag_eval.documents.reading_order``, which says in what order they are read. What is the same
for all pages is found over all of them: the size of the body, whose larger neighbours are headings, and the lines that
run along the top and the bottom.
"""

import ctypes
import re
import struct
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_eval.distribution import install_command
from rag_eval.documents.boxes import pack
from rag_eval.documents.loaders import LoadedText
from rag_eval.documents.reading_order import Line, Word, in_clusters, is_right_to_left, lines_in_order
from rag_eval.errors import ConfigurationError, UnreadableDocumentError
from rag_eval.parts import part

MOST_PAGES = 5_000
MARGIN = 0.12
"""Running lines are in this share of a page, at its top or its bottom."""
RUNNING = 3
"""On so many pages a line must come again at its height to be one that runs along them."""
HEADING = 1.15
"""So much larger than the body a heading is, at least."""
MOST_PIXELS = 4_000

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@part
class PdfLoader:
    """The text layer of a PDF in the order in which it is read, with where each word is on its page."""

    running_lines: bool = False
    """Whether headers, footers and page numbers that run along the pages stay in the text."""

    def load(self, data: bytes) -> LoadedText:
        """Return the text, where each page begins, and the boxes of its words.

        Raises ``UnreadableDocumentError`` on one that is broken, encrypted, has no text layer or too many pages, and
        ``ConfigurationError`` without pypdfium2.
        """
        with _opened(data) as document:
            if len(document) > MOST_PAGES:
                raise UnreadableDocumentError(f"has {len(document):,} pages, more than {MOST_PAGES:,}: divide it")
            pages = [_page(document, number) for number in range(len(document))]
        if not any(page.texts for page in pages):
            raise UnreadableDocumentError("has no text layer: it is scanned, have its text recognised first")
        if not self.running_lines:
            pages = _without_running_lines(pages)
        return _written([lines_in_order(page.words()) for page in pages], [page.size for page in pages])


def page_picture(data: bytes, page: int, width: int = 800) -> bytes:
    """Return a page of a PDF, which counts from 1, as a PNG of this width; raises as ``PdfLoader.load``."""
    with _opened(data) as document:
        if not 1 <= page <= len(document):
            raise UnreadableDocumentError(f"has {len(document):,} pages, and page {page:,} was asked for")
        across, down = document[page - 1].get_size()
        scale = min(width, MOST_PIXELS) / max(across, 1.0)
        scale = min(scale, MOST_PIXELS / max(down, 1.0))
        bitmap = document[page - 1].render(scale=scale, rev_byteorder=True, maybe_alpha=False)
        pixels = np.asarray(bitmap.to_numpy())[:, :, :3]
    high, wide, _ = pixels.shape
    rows = np.zeros((high, 1 + 3 * wide), np.uint8)  # each begins with its filter, which is none
    rows[:, 1:] = pixels.reshape(high, -1)
    told = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", told), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_part(kind, one) for kind, one in parts)


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
        told = "is encrypted: remove its password" if is_locked else f"is no PDF that can be read ({error})"
        raise UnreadableDocumentError(told) from None


# Glyphs and words.

_BLANKS = np.array([0xA0, 0xFEFF, 0xFFFF], np.uint32)
_HYPHENS = str.maketrans(dict.fromkeys("\x02\ufffe\u00ad\u2010", "-"))
"""A hyphen that pdfium takes for one of a line end is U+0002 or U+FFFE."""
_FORMS = re.compile("[\ufb00-\ufdff\ufe70-\ufefc]+")
"""Ligatures and the shapes of Arabic letters, which stand for letters."""


class _Page(NamedTuple):
    """The words of a page, in the order in which its file draws them: texts, and what ``Word`` has besides."""

    texts: list[str]
    numbers: NDArray[np.float32]
    size: tuple[float, float]

    def words(self) -> list[Word]:
        return [Word(text, *row) for text, row in zip(self.texts, self.numbers.tolist(), strict=True)]


def _page(document: Any, number: int) -> _Page:
    import pypdfium2

    texts, rows, size = list[str](), list[tuple[float, ...]](), (1.0, 1.0)
    try:
        page = document[number]
        size = page.get_size()
        text = page.get_textpage()
        for told, *row in _words(page, text) if text.count_chars() else ():
            texts.append(told)
            rows.append(tuple(row))
        text.close()
        page.close()
    except pypdfium2.PdfiumError:
        pass  # a page that is broken has no text; the others have theirs
    return _Page(texts, np.array(rows, np.float32).reshape(-1, len(Word._fields) - 1), size)


def _words(page: Any, text: Any) -> Iterator[Word]:
    from pypdfium2 import raw

    count, handle = text.count_chars(), text.raw
    rectangles = (raw.FS_RECTF * count)()
    # A call a glyph: by map that is a fraction of what a loop costs.
    codes = np.fromiter(map(raw.FPDFText_GetUnicode, repeat(handle), range(count)), np.uint32, count)
    is_known = np.fromiter(map(raw.FPDFText_GetLooseCharBox, repeat(handle), range(count), rectangles), bool, count)
    boxes = np.frombuffer(rectangles, np.float32).reshape(-1, 4).astype(np.float64)
    size, turn = _shown(page)
    corners = boxes[:, [0, 1]] @ turn[:2] + turn[2], boxes[:, [2, 3]] @ turn[:2] + turn[2]
    low, high = np.minimum(*corners), np.maximum(*corners)
    is_seen = is_known & (codes < 0x110000) & ((high >= 0) & (low <= size)).all(axis=1)
    is_seen &= ((codes > 32) | (codes == 2)) & ~np.isin(codes, _BLANKS) & ((codes & 0x1FF800) != 0xD800)
    seen = np.flatnonzero(is_seen)
    if not len(seen):
        return
    matrix, x, y = raw.FS_MATRIX(), ctypes.c_double(), ctypes.c_double()
    for run in np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1):
        first = int(run[0])
        raw.FPDFText_GetMatrix(handle, first, matrix)
        along, up = np.array([[matrix.a, matrix.b], [matrix.c, matrix.d]]) @ turn[:2]
        points = float(raw.FPDFText_GetFontSize(handle, first) * np.hypot(*up))
        is_turned = abs(along[1]) > 0.2 * abs(along[0])
        for word in [run] if is_turned else _divided(run, codes, low, high, points):
            raw.FPDFText_GetCharOrigin(handle, int(word[0]), x, y)
            baseline = float((np.array([x.value, y.value]) @ turn[:2] + turn[2])[1])
            yield _word(word, codes, low, high, points, baseline, is_turned)


def _shown(page: Any) -> tuple[Floats, Floats]:
    """The size of a page in points, and the matrix from its own coordinates to those as shown, turned and cropped."""
    from pypdfium2 import raw

    size, fine = np.array(page.get_size()), 2**20
    x, y = ctypes.c_int(), ctypes.c_int()
    found = []
    for point in ((0.0, 0.0), (1000.0, 0.0), (0.0, 1000.0)):
        raw.FPDF_PageToDevice(page.raw, 0, 0, fine, fine, 0, *point, x, y)
        found.append(np.array([x.value, y.value]) / fine * size)
    return size, np.array([(found[1] - found[0]) / 1000, (found[2] - found[0]) / 1000, found[0]])


def _divided(run: Indices, codes: NDArray[np.uint32], low: Floats, high: Floats, points: float) -> list[Indices]:
    """Glyphs without a blank between them as words: one that is far from the last begins another."""
    if len(run) == 1:
        return [run]
    left, right = low[run, 0], high[run, 0]
    middle = (low[run, 1] + high[run, 1]) / 2
    ahead, back = left[1:] - right[:-1], left[:-1] - right[1:]  # the gap, where text runs right, and left
    is_near = (np.minimum(np.abs(ahead), np.abs(back)) < 0.35 * points) | ((ahead < 0) & (back < 0))
    is_far = ~is_near | (np.abs(np.diff(middle)) > 0.6 * points)
    return np.split(run, np.flatnonzero(is_far) + 1) if is_far.any() else [run]


def _word(
    glyphs: Indices,
    codes: NDArray[np.uint32],
    low: Floats,
    high: Floats,
    points: float,
    baseline: float,
    is_turned: bool,
) -> Word:
    letters = [*map(chr, codes[glyphs].tolist())]
    is_rtl = is_right_to_left(letters)
    if is_rtl and len(glyphs) > 1 and low[glyphs[-1], 0] > low[glyphs[0], 0]:
        letters = in_clusters(letters)[::-1]  # drawn from left to right
    text = "".join(letters).translate(_HYPHENS)
    text = _FORMS.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    widths = high[glyphs, 0] - low[glyphs, 0]
    is_fixed = len(glyphs) > 1 and bool(np.ptp(widths) < 0.02 * points)
    left, right = float(low[glyphs, 0].min()), float(high[glyphs, 0].max())
    top, bottom = float(low[glyphs, 1].min()), float(high[glyphs, 1].max())
    if not is_turned:  # the boxes of some fonts are much higher than their letters
        top, bottom = max(top, baseline - 1.1 * points), min(bottom, baseline + 0.4 * points)
    pitch = float(widths.mean()) if is_fixed else 0.0
    return Word(text, left, min(top, bottom), right, max(top, bottom), points, baseline, pitch, is_rtl, is_turned)


# What is the same for all pages.


def _without_running_lines(pages: list[_Page]) -> list[_Page]:
    return pages


# Text.

_OPEN = "\0"
"""Stands for a hyphen at a line end until all words are known; a PDF has no such character."""
_HYPHENATED = re.compile(f"([a-zà-ÿ]+){_OPEN}([a-zà-ÿ]+)")


def _written(pages: list[list[Line]], sizes: list[tuple[float, float]]) -> LoadedText:
    """The text of all lines, where each page begins, and where each word is."""
    pieces, places, runs, length, last = list[str](), list[tuple[int, str]](), list[tuple[float, ...]](), 0, ""

    def add(text: str) -> None:
        nonlocal length
        pieces.append(text)
        length += len(text)

    for number, (lines, (across, down)) in enumerate(zip(pages, sizes, strict=True), start=1):
        add("\n\n" if length and lines else "")
        places.append((length, f"page {number}"))
        for place, line in enumerate(lines):
            if place and re.search("[a-zà-ÿ]-$", last) and re.match("[a-zà-ÿ]", line.words[0].text):
                pieces[-1] = f"{last[:-1]}{_OPEN}"
            elif place:
                add("\n")
            top, bottom = min(one.top for one in line.words) / down, max(one.bottom for one in line.words) / down
            for count, word in enumerate(line.words):
                add(" " if count else "")
                begin, end = (word.right, word.left) if word.is_rtl else (word.left, word.right)
                runs.append((length, length + len(word.text), number, begin / across, top, end / across, bottom))
                add(word.text)
            last = line.words[-1].text
    text, gone = _joined("".join(pieces))
    found = np.array(runs)
    found[:, :2] -= np.searchsorted(gone, found[:, :2])
    starts = [start - int(np.searchsorted(gone, start)) for start, _ in places]
    return LoadedText(f"{text}\n", [(one, name) for one, (_, name) in zip(starts, places, strict=True)], pack(found))


def _joined(text: str) -> tuple[str, Indices]:
    """The text with the words that line ends divide joined where that is sure, and where characters went for it."""
    words = Counter(re.findall("[a-zà-ÿ]+(?:-[a-zà-ÿ]+)*", text))
    gone = []

    def joined(found: re.Match[str]) -> str:
        first, second = found[1], found[2]
        # Halves that are words of their own, such as well and known, may be written with a hyphen.
        is_divided = words[f"{first}-{second}"] == 0 and words[first] < 2 and words[second] < 2
        if words[first + second] > 0 or is_divided:
            gone.append(found.end(1))
            return first + second
        return f"{first}-{second}"

    return _HYPHENATED.sub(joined, text).replace(_OPEN, "-"), np.array(gone, np.int64)
