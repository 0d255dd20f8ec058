"""Fold texts for searching: remove case, whitespace and typography, and map the result back to the source."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rag_eval.chunking.alignment import AlignedText, aligned_form, code_points
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

MOST_PLACES = 1000
"""Maximum number of occurrences of a text that a search returns."""


def places_of(text: str, content: str, most: float = MOST_PLACES, begin: int = 0, stop: int | None = None) -> list[int]:
    """Return the first ``most`` positions of the text in ``content[begin:stop]``, including overlapping ones."""
    places: list[int] = []
    place = content.find(text, begin, stop) if text else -1
    while place >= 0 and len(places) < most:
        places.append(place)
        place = content.find(text, place + 1, stop)
    return places


def folded_words(text: str) -> str:
    """Return a text in folded case with single spaces."""
    return " ".join(text.casefold().split())


def starts_of(patterns: Collection[str], content: str) -> list[int]:
    """Return the indexes of the code points at which one of the patterns starts, including overlapping matches."""
    found = pl.Series([content]).str.find_many(list(patterns), overlapping=True)[0].to_numpy()
    if content.isascii():
        return sorted(found.tolist())
    utf8 = np.frombuffer(content.encode(), np.uint8)
    points = np.flatnonzero(utf8 & 0xC0 != 0x80)  # the first byte of every code point
    return sorted(np.searchsorted(points, found).tolist())


GAP = "\n"
"""Separates the forms of documents. No form contains it, because forms have no whitespace."""

_QUOTES = "'\"`‘’‚‛“”„‟«»‹›′″"
_DASHES = re.compile("--+")


class _Folding(dict[int, str]):
    """Table for ``str.translate`` that maps each character to one character, so that positions stay.

    ``GAP`` marks characters to drop.
    """

    def __missing__(self, code: int) -> str:
        self[code] = _folded(chr(code))
        return self[code]


def _folded(char: str) -> str:
    category = unicodedata.category(char)
    if char in _QUOTES:
        return "'"
    if category == "Pd" or char == "\N{MINUS SIGN}":
        return "-"
    if char in "*_" or category == "Cf":
        # Quoting Markdown loses emphasis marks; copying loses soft hyphens and zero-width characters.
        return GAP
    folded = char.casefold()
    return folded if len(folded) == 1 else char


_FOLDING = _Folding()


def folded_form(text: str) -> str:
    """Return the aligned form (NFKD, no whitespace) without case and emphasis marks, with one kind of quote and dash.

    A run of dashes becomes one dash.
    """
    return _DASHES.sub("-", aligned_form(text).translate(_FOLDING).replace(GAP, ""))


@dataclass(frozen=True, slots=True)
class FoldedText:
    """The folded form of a source; ``source_index`` maps each of its characters to its index in the source."""

    form: str
    source_index: NDArray[np.int32]

    @classmethod
    def of(cls, source: str) -> "FoldedText":
        """Fold a source: ``FoldedText.of(source).form == folded_form(source)``."""
        aligned = AlignedText.of(source)
        codes = code_points(aligned.form.translate(_FOLDING))
        kept = np.flatnonzero(codes != ord(GAP))
        dashes = codes[kept] == ord("-")
        kept = kept[~(dashes & np.concatenate(([False], dashes[:-1])))]
        form = codes[kept].tobytes().decode("utf-32-le", "surrogatepass")
        return cls(form, aligned.source_index[kept].astype(np.int32))


Range = tuple[int, int]
Seed = tuple[int, int]
"""A position in the excerpt and one in the folded text where the same run starts."""

RUN = 8
"""Length of a run in characters: short enough to fit between two typos, long enough to be rare."""

_OUTSIDE = np.array([-1], np.int32)


class FoldedDocuments:
    """The folded forms of several documents as one text, with a gap before, between and after them."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = {document.id: document for document in documents}
        folded = [FoldedText.of(document.content) for document in self.documents.values()]
        self.text = GAP + "".join(f"{document.form}{GAP}" for document in folded)
        indexes = (part for document in folded for part in (document.source_index, _OUTSIDE))
        self._source_index = np.concatenate([_OUTSIDE, *indexes])
        self._begins = np.cumsum([1, *(len(document.form) + 1 for document in folded)]).tolist()
        self._ids = list(self.documents)
        self._numbers = {doc_id: number for number, doc_id in enumerate(self._ids)}

    def seeds(self, needle: str, begin: int, stop: int, most: int) -> list[Seed]:
        """Find the runs of the needle in ``text[begin:stop]``.

        Runs with more than ``most`` occurrences are skipped; if all have more, the rarest is used.
        """
        text = self.text[begin:stop]
        places: dict[str, list[int]] = {}
        for start in starts_of({needle[offset : offset + RUN] for offset in range(len(needle) - RUN + 1)}, text):
            places.setdefault(text[start : start + RUN], []).append(begin + start)
        rare = {run for run, found in places.items() if len(found) <= most}
        if not rare and (rarest := min(places, key=lambda run: len(places[run]), default="")):
            rare = {rarest} if len(places[rarest]) <= MOST_PLACES else set()
        runs = ((offset, needle[offset : offset + RUN]) for offset in range(len(needle) - RUN + 1))
        return [(offset, place) for offset, run in runs if run in rare for place in places[run]]

    def ranges(self, doc_id: DocumentId | None, window: Range | None) -> list[Range]:
        """Return the ranges of ``text`` to search: all of it, one document, or the window of each document."""
        if doc_id is None and window is None:
            return [(0, len(self.text))]
        numbers = range(len(self._ids)) if doc_id is None else [self._numbers[doc_id]]
        ranges = []
        for number in numbers:
            begin, stop = self._range(number)
            if window is not None:
                first, after = np.searchsorted(self._source_index[begin:stop], window).tolist()
                begin, stop = begin + first, begin + after
            ranges.append((begin, stop))
        return ranges

    def document_range(self, place: int) -> Range:
        """Return the range of ``text`` that belongs to the document at a position."""
        return self._range(self._number(place))

    def span(self, start: int, end: int) -> CharacterSpan:
        """Return the span of a document, in whole characters, from which ``text[start:end]`` was made."""
        places = self._source_index[start:end]
        document = self.documents[self._ids[self._number(start)]]
        return document.span(int(places.min()), int(places.max()) + 1)

    def has_clean_borders(self, start: int, end: int) -> bool:
        """Return whether ``text[start:end]`` neither cuts a character of the source nor separates a combining mark."""
        index = self._source_index
        is_cut = index[start - 1] == index[start] or index[end - 1] == index[end]
        return not is_cut and not unicodedata.combining(self.text[end])

    def is_border(self, place: int) -> bool:
        """Return whether a word may start or end here."""
        if not (self.text[place - 1].isalnum() and self.text[place].isalnum()):
            return True
        return bool(self._source_index[place] - self._source_index[place - 1] > 1)

    def _range(self, number: int) -> Range:
        return self._begins[number], self._begins[number + 1] - 1

    def _number(self, place: int) -> int:
        return min(bisect_right(self._begins, place), len(self._ids)) - 1
