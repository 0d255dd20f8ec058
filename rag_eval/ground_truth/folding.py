"""Fold texts for comparison: one form without case, whitespace and typography, and the way back to the sources."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.alignment import AlignedText, aligned_form, code_points
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

MOST_PLACES = 1000
"""Further places of one text are not looked for: so many cannot be told apart anyway."""


def places_of(text: str, content: str, most: float = MOST_PLACES, begin: int = 0, stop: int | None = None) -> list[int]:
    """Return the first ``most`` places where a text begins in ``content[begin:stop]``; an empty one begins nowhere."""
    places: list[int] = []
    place = content.find(text, begin, stop) if text else -1
    while place >= 0 and len(places) < most:
        places.append(place)
        place = content.find(text, place + 1, stop)
    return places


GAP = "\n"
"""Between two forms; in none of them, because forms have no whitespace."""

_QUOTES = "'\"`‘’‚‛“”„‟«»‹›′″"
_DASHES = re.compile("--+")


class _Folding(dict[int, str]):
    """How ``str.translate`` folds a character, one for one so that places stay; what is left out becomes a gap."""

    def __missing__(self, code: int) -> str:
        self[code] = _folded(chr(code))
        return self[code]


def _folded(char: str) -> str:
    category = unicodedata.category(char)
    if char in _QUOTES:
        # Which quote a writer uses, and whether code is in backticks, is a matter of taste.
        return "'"
    if category == "Pd" or char == "\N{MINUS SIGN}":
        return "-"
    if char in "*_" or category == "Cf":
        # Emphasis marks are lost when markdown is quoted, soft hyphens and zero-width marks in any copy.
        return GAP
    folded = char.casefold()
    return folded if len(folded) == 1 else char


_FOLDING = _Folding()


def folded_form(text: str) -> str:
    """Fold a text: the aligned form (NFKD, no whitespace), no case, one kind of quote and dash, no emphasis marks.

    A run of dashes is one dash. Two texts that differ only in these have the same form.
    """
    return _DASHES.sub("-", aligned_form(text).translate(_FOLDING).replace(GAP, ""))


@dataclass(frozen=True, slots=True)
class FoldedText:
    """The folded form of a source, and where each of its characters comes from."""

    form: str
    source_index: NDArray[np.int32]
    """For each character of the form, the place in the source of the character that it was made of."""
    in_order: bool
    """Whether those places only rise: combining marks that NFKD puts into another order make them fall."""

    @classmethod
    def of(cls, source: str) -> "FoldedText":
        """Return the folded form of the source: ``FoldedText.of(source).form == folded_form(source)``."""
        aligned = AlignedText.of(source)
        codes = code_points(aligned.form.translate(_FOLDING))
        kept = np.flatnonzero(codes != ord(GAP))
        dashes = codes[kept] == ord("-")
        kept = kept[~(dashes & np.concatenate(([False], dashes[:-1])))]
        source_index = aligned.source_index[kept].astype(np.int32)
        form = codes[kept].tobytes().decode("utf-32-le", "surrogatepass")
        return cls(form, source_index, bool(np.all(source_index[1:] >= source_index[:-1])))


Range = tuple[int, int]
Seed = tuple[int, int]
"""A place in an excerpt and one in the folded text from which both have the same run."""

RUN = 8
"""Characters of a run: few enough to be intact between two typos, enough to be rare."""

_WEIGHTS = np.array([pow(0x9E3779B97F4A7C15, power, 1 << 64) for power in range(RUN)], np.uint64)


def _run_keys(text: str) -> NDArray[np.uint64]:
    """Return a number for each run of a text, the same for the same run."""
    if len(text) < RUN:
        return _WEIGHTS[:0]
    return np.correlate(code_points(text).astype(np.uint64), _WEIGHTS, "valid")


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A stretch of one document, in its source and in the folded text of all documents."""

    number: int
    start: int
    end: int
    form_start: int
    form_end: int


class PreparedDocuments:
    """The folded forms of all documents on one line, with a gap between them."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = tuple(documents)
        self.numbers = {document.id: number for number, document in enumerate(self.documents)}
        self._folded = [FoldedText.of(document.content) for document in self.documents]
        lengths = [len(folded.form) + len(GAP) for folded in self._folded]
        self._begins = [0, *np.cumsum(lengths).tolist()]
        self.text = GAP.join(folded.form for folded in self._folded)

    @cached_property
    def _runs(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The keys of all runs of the folded text, sorted, and their places."""
        keys = _run_keys(self.text)
        places = np.argsort(keys, kind="stable")
        return keys[places], places

    def seeds(self, needle: str, begin: int, stop: int, most: int) -> list[Seed]:
        """Find the runs of the needle in ``[begin, stop)`` of the folded text; now and then a run of the same key too.

        Runs with more than ``most`` places say little about where and are passed over; when all have more, the rarest
        is taken, unless it is everywhere.
        """
        keys, places = self._runs
        sought = _run_keys(needle)
        firsts, afters = (np.searchsorted(keys, sought, side).tolist() for side in ("left", "right"))
        found: dict[int, NDArray[np.int64]] = {}
        for offset, (first, after) in enumerate(zip(firsts, afters, strict=True)):
            low, high = (bisect_left(places, end, first, after) for end in (begin, max(begin, stop - RUN + 1)))
            if low < high:
                found[offset] = places[low:high]
        rare = [offset for offset, some in found.items() if len(some) <= most]
        rarest = min(found, key=lambda offset: len(found[offset]), default=None)
        if not rare and rarest is not None and len(found[rarest]) <= MOST_PLACES:
            rare = [rarest]
        return [(offset, place) for offset in rare for place in found[offset].tolist()]

    def ranges(self, doc_id: DocumentId | None, window: Range | None) -> list[Range]:
        """Return the stretches of the folded text to search: everything, one document, or the window of each."""
        if doc_id is None and window is None:
            return [(0, len(self.text))]
        numbers = range(len(self.documents)) if doc_id is None else [self.numbers[doc_id]]
        return [self._window(number, window) for number in numbers]

    def document_range(self, form_place: int) -> Range:
        """Return the stretch of the folded text that is the document around a place."""
        number = self._number(form_place)
        return self._begins[number], self._begins[number + 1] - len(GAP)

    def place(self, form_start: int, form_end: int) -> Occurrence:
        """Find the stretch of a source, in whole characters, from which a stretch of the folded text was made."""
        number = self._number(form_start)
        begin = self._begins[number]
        places = self._folded[number].source_index[form_start - begin : form_end - begin]
        return Occurrence(number, int(places.min()), int(places.max()) + 1, form_start, form_end)

    def exact_place(self, place: Occurrence, text: str, last: int) -> Occurrence | None:
        """Find where the source has the very text; ``last`` is the text's last character with a form."""
        content = self.documents[place.number].content
        start = self._source(place.number, place.form_end - 1) - last
        if start < 0 or not content.startswith(text, start):
            return None
        return Occurrence(place.number, start, start + len(text), place.form_start, place.form_end)

    def reordered_places(self, doc_id: DocumentId | None, text: str) -> list[Occurrence]:
        """Find the very text in documents whose forms have another order than their sources."""
        numbers = range(len(self.documents)) if doc_id is None else [self.numbers[doc_id]]
        return [
            Occurrence(number, start, start + len(text), *self._window(number, (start, start + len(text))))
            for number in numbers
            if not self._folded[number].in_order
            for start in places_of(text, self.documents[number].content)
        ]

    def has_clean_borders(self, place: Occurrence) -> bool:
        """Whether a place starts and ends between characters of its source, and its last one has no further mark."""
        begin, stop = self.document_range(place.form_start)
        first, after = place.form_start, place.form_end
        if first > begin and self._source(place.number, first - 1) == self._source(place.number, first):
            return False
        if after == stop:
            return True
        is_cut = self._source(place.number, after - 1) == self._source(place.number, after)
        return not is_cut and not unicodedata.combining(self.text[after])

    def is_border(self, form_place: int) -> bool:
        """Whether a word may start or end here."""
        number = self._number(form_place)
        begin, stop = self._begins[number], self._begins[number + 1] - len(GAP)
        if not begin < form_place < stop:
            return True
        left, right = self._source(number, form_place - 1), self._source(number, form_place)
        text = self.text
        return right - left > 1 or not (text[form_place - 1].isalnum() and text[form_place].isalnum())

    def span(self, place: Occurrence) -> CharacterSpan:
        return self.documents[place.number].span(place.start, place.end)

    def _source(self, number: int, form_place: int) -> int:
        return int(self._folded[number].source_index[form_place - self._begins[number]])

    def _number(self, form_place: int) -> int:
        return min(bisect_right(self._begins, form_place), len(self.documents)) - 1

    def _window(self, number: int, window: Range | None) -> Range:
        begin, stop = self._begins[number], self._begins[number + 1] - len(GAP)
        if window is None:
            return begin, stop
        first, after = np.searchsorted(self._folded[number].source_index, window).tolist()
        return begin + first, begin + after
