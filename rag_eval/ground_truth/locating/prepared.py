"""Documents made ready for being searched: one long folded text with an index, and the way back to the sources."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rag_eval.ground_truth.locating.folding import GAP, FoldedText
from rag_eval.ground_truth.locating.index import MOST_PLACES, RunIndex
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId
from rag_eval.types.span import CharacterSpan

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one document, in its source and in the folded text of all documents."""

    number: int
    start: int
    end: int
    form_start: int
    form_end: int


class PreparedDocuments:
    """The folded forms of all documents on one line, with a gap between them, and an index of it."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = tuple(documents)
        self.numbers = {document.id: number for number, document in enumerate(self.documents)}
        self._folded = [FoldedText.of(document.content) for document in self.documents]
        lengths = [len(folded.form) + len(GAP) for folded in self._folded]
        self._begins = [0, *np.cumsum(lengths).tolist()]
        self.index = RunIndex(GAP.join(folded.form for folded in self._folded))

    def ranges(self, doc_id: DocumentId | None, window: Range | None) -> list[Range]:
        """The stretches of the folded text to search: everything, one document, or the window of each."""
        if doc_id is None and window is None:
            return [(0, len(self.index.text))]
        numbers = range(len(self.documents)) if doc_id is None else [self.numbers[doc_id]]
        return [self._window(number, window) for number in numbers]

    def document_range(self, form_place: int) -> Range:
        """The stretch of the folded text that is the document around a place."""
        number = self._number(form_place)
        return self._begins[number], self._begins[number + 1] - len(GAP)

    def place(self, form_start: int, form_end: int) -> Place:
        """The stretch of a source, in whole characters, from which a stretch of the folded text was made."""
        number = self._number(form_start)
        begin = self._begins[number]
        places = self._folded[number].source_index[form_start - begin : form_end - begin]
        return Place(number, int(places.min()), int(places.max()) + 1, form_start, form_end)

    def exact_place(self, place: Place, text: str, last: int) -> Place | None:
        """The place where the source has the very text, ``last`` being the text's last character with a form."""
        content = self.documents[place.number].content
        start = self._source(place.number, place.form_end - 1) - last
        if start < 0 or not content.startswith(text, start):
            return None
        return Place(place.number, start, start + len(text), place.form_start, place.form_end)

    def reordered_places(self, doc_id: DocumentId | None, text: str) -> list[Place]:
        """Where the very text stands in documents whose forms have another order than their sources."""
        numbers = range(len(self.documents)) if doc_id is None else [self.numbers[doc_id]]
        found: list[Place] = []
        for number in numbers:
            if self._folded[number].in_order:
                continue
            content = self.documents[number].content
            start = content.find(text)
            while start >= 0 and len(found) < MOST_PLACES:
                end = start + len(text)
                found.append(Place(number, start, end, *self._window(number, (start, end))))
                start = content.find(text, end)
        return found

    def has_clean_borders(self, place: Place) -> bool:
        """Whether a place starts and ends between characters of its source, and its last one has no further mark."""
        begin, stop = self.document_range(place.form_start)
        first, after = place.form_start, place.form_end
        if first > begin and self._source(place.number, first - 1) == self._source(place.number, first):
            return False
        if after == stop:
            return True
        is_cut = self._source(place.number, after - 1) == self._source(place.number, after)
        return not is_cut and not unicodedata.combining(self.index.text[after])

    def is_border(self, form_place: int) -> bool:
        """Whether a word may start or end here."""
        number = self._number(form_place)
        begin, stop = self._begins[number], self._begins[number + 1] - len(GAP)
        if not begin < form_place < stop:
            return True
        left, right = self._source(number, form_place - 1), self._source(number, form_place)
        text = self.index.text
        return right - left > 1 or not (text[form_place - 1].isalnum() and text[form_place].isalnum())

    def span(self, place: Place) -> CharacterSpan:
        """The place with the document's text."""
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
