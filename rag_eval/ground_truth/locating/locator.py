"""Finding excerpts, perhaps altered on their way, in the documents they were taken from."""

import re
from collections.abc import Iterable, Sequence

from rag_eval.chunking.alignment import aligned_form
from rag_eval.errors import ConfigurationError
from rag_eval.ground_truth.locating.context import clearly_nearest, context_edits, context_forms
from rag_eval.ground_truth.locating.extent import nearest_extents
from rag_eval.ground_truth.locating.folding import folded_form
from rag_eval.ground_truth.locating.prepared import Place, PreparedDocuments
from rag_eval.ground_truth.locating.results import Hint, How, Located, Location, Rejected
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId

SIMILARITY = 0.85
"""The least similarity of a fuzzy place: about one edit in seven characters."""

LEAST_CHARACTERS = 16
"""What is shorter, whitespace not counted, is not looked for fuzzily: too much comes near it."""

_NO_HINT = Hint()
_FRAME = re.compile(r"^(?:'|\.\.\.(?!\.))+|(?:'|(?<!\.)\.\.\.)+$")
_CANDIDATES_SHOWN = 5


class Locator:
    """The documents, prepared once, and the places of any number of excerpts in them.

    An excerpt, stripped of outer whitespace, is looked for

    1. to the letter;
    2. but for whitespace, Unicode form, case, kinds of quotes and dashes, emphasis and invisible marks, and quotes or
       an ellipsis put around it;
    3. fuzzily: the stretch that takes the fewest edits, of a similarity of ``threshold`` at least.

    The first way that finds something decides. Several places are told apart by the hint, or the excerpt is rejected
    as ambiguous. A place is exact code points of the source, whatever way it was found.
    Raises ``ConfigurationError`` when the threshold is not above 0.5 and at most 1.
    """

    def __init__(self, documents: Iterable[Document], threshold: float = SIMILARITY) -> None:
        if not 0.5 < threshold <= 1:
            raise ConfigurationError(f"the threshold is {threshold}: it must be above 0.5 and at most 1")
        self._documents = PreparedDocuments(documents)
        self._threshold = threshold

    def locate(self, excerpt: str, doc_id: DocumentId | None = None, hint: Hint | None = None) -> Location:
        """The place of an excerpt in one document, or in any of them; or the reason why it has none.

        Raises nothing, whatever the excerpt holds.
        """
        hint = hint or _NO_HINT
        if doc_id is not None and doc_id not in self._documents.numbers:
            return Rejected(excerpt, "unknown-document")
        text = excerpt.strip()
        form = folded_form(text)
        if not form:
            return Rejected(excerpt, "empty")
        places, how = self._copies(text, form, doc_id, hint)
        if places:
            return self._resolved(excerpt, places, how, 1.0, hint)
        core = _FRAME.sub("", form)
        if len(core) < LEAST_CHARACTERS:
            return Rejected(excerpt, "too-short")
        return self._fuzzy(excerpt, core, doc_id, hint)

    def _copies(self, text: str, form: str, doc_id: DocumentId | None, hint: Hint) -> tuple[list[Place], How]:
        """Where the text stands to the letter, or else where its form does."""
        places = self._form_places(form, doc_id, hint)
        last = _last_with_a_form(text)
        exact = [found for place in places if (found := self._documents.exact_place(place, text, last))]
        reordered = self._documents.reordered_places(doc_id, text)
        known = {(place.number, place.start) for place in exact}
        exact += [place for place in reordered if (place.number, place.start) not in known]
        if exact := _inside(exact, hint):
            return exact, "exact"
        clean = self._clean(places, hint)
        if not clean and (core := _FRAME.sub("", form)) not in ("", form):
            clean = self._clean(self._form_places(core, doc_id, hint), hint)
        aligned = aligned_form(text)
        same_case = [place for place in clean if aligned_form(self._documents.span(place).text) == aligned]
        return same_case or clean, "normalised"

    def _form_places(self, form: str, doc_id: DocumentId | None, hint: Hint) -> list[Place]:
        ranges = self._documents.ranges(doc_id, hint.window)
        starts = [start for begin, stop in ranges for start in self._documents.index.occurrences(form, begin, stop)]
        return [self._documents.place(start, start + len(form)) for start in starts]

    def _clean(self, places: Iterable[Place], hint: Hint) -> list[Place]:
        return _inside([place for place in places if self._documents.has_clean_borders(place)], hint)

    def _fuzzy(self, excerpt: str, form: str, doc_id: DocumentId | None, hint: Hint) -> Location:
        documents = self._documents
        extents = [
            extent
            for begin, stop in documents.ranges(doc_id, hint.window)
            for extent in nearest_extents(documents, form, begin, stop, self._threshold)
        ]
        found = [(extent, documents.place(extent.start, extent.end)) for extent in extents]
        found = [(extent, place) for extent, place in found if _inside([place], hint)]
        if not found:
            return Rejected(excerpt, "not-found")
        fewest = min(extent.edits for extent, _ in found)
        best = [(extent, place) for extent, place in found if extent.edits == fewest]
        places = [place for _, place in best]
        return self._resolved(excerpt, places, "fuzzy", best[0][0].similarity(form), hint)

    def _resolved(self, excerpt: str, places: Sequence[Place], how: How, similarity: float, hint: Hint) -> Location:
        chosen = places[0] if len(places) == 1 else self._told_apart(places, hint)
        if chosen is None:
            return Rejected(excerpt, "ambiguous", tuple(map(self._documents.span, places[:_CANDIDATES_SHOWN])))
        return Located(self._documents.span(chosen), how, similarity)

    def _told_apart(self, places: Sequence[Place], hint: Hint) -> Place | None:
        """The one place that the hint speaks for, by its surroundings or else by where it is."""
        before, after = context_forms(hint.before, hint.after)
        chosen = clearly_nearest(
            places,
            lambda place: context_edits(
                before,
                after,
                self._documents.index.text,
                (place.form_start, place.form_end),
                self._documents.document_range(place.form_start),
            ),
            factor=1.5,
        )
        position = hint.position
        if chosen is None and position is not None:
            chosen = clearly_nearest(places, lambda place: abs(place.start - position), factor=2)
        return chosen


def _inside(places: list[Place], hint: Hint) -> list[Place]:
    if hint.window is None:
        return places
    begin, stop = hint.window
    return [place for place in places if begin <= place.start and place.end <= stop]


def _last_with_a_form(text: str) -> int:
    """The place of the character that the last one of the text's form was made of; a run of dashes is its first."""
    last = len(text) - 1
    while not folded_form(text[last]):
        last -= 1
    if folded_form(text[last]) != "-":
        return last
    for place in range(last - 1, -1, -1):
        form = folded_form(text[place])
        if form and form != "-":
            break
        last = place if form else last
    return last
