"""Finding excerpts, perhaps altered on their way, in the documents they were taken from."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from rapidfuzz.distance import Levenshtein, Postfix, Prefix

from rag_eval.chunking.alignment import aligned_form
from rag_eval.ground_truth.folding import MOST_PLACES, Occurrence, PreparedDocuments, Seed, folded_form, places_of
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

How = Literal["exact", "normalised", "fuzzy"]
"""To the letter; but for whitespace, Unicode form, case, quotes, dashes and emphasis marks; or nearly."""

Reason = Literal["empty", "too-short", "ambiguous", "not-found", "unknown-document"]
"""Nothing but whitespace; not there to the letter and too short to be looked for nearly; in several places that the
hint does not tell apart; nowhere; in a document that was not given."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known about where an excerpt comes from.

    ``window`` is a rule: the excerpt lies inside ``[start, end)`` of its document, other places do not count.
    ``before`` is the text before the excerpt and ``position`` is about where it starts; they decide between several
    places, and are not needed where there is one.
    """

    before: str = ""
    position: int | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """An excerpt that was found: its place with the document's own text, and how."""

    span: CharacterSpan
    how: How


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why an excerpt was not placed; ``candidates`` are some of the places of an ambiguous one."""

    reason: Reason
    candidates: tuple[CharacterSpan, ...] = ()


Location = Located | Rejected

T = TypeVar("T")

_CONTEXT = 400
_LEAST_SIMILARITY = 0.6


def clearly_nearest(candidates: Sequence[T], distance: Callable[[T], float | None], factor: float) -> T | None:
    """Return the candidate nearest by the factor at least, None if none is; a distance of None does not compete."""
    measured = [(found, candidate) for candidate in candidates if (found := distance(candidate)) is not None]
    if not measured:
        return None
    measured.sort(key=lambda pair: pair[0])
    nearest = measured[0]
    if len(measured) > 1 and (measured[1][0] <= nearest[0] or measured[1][0] < factor * nearest[0]):
        return None
    return nearest[1]


_MOST_PLACES_A_RUN = 64
_MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Extent:
    """``[start, end)`` of a text, and how many edits make the needle out of it."""

    start: int
    end: int
    edits: int

    def similarity(self, needle: str) -> float:
        """1 - edits / length of the longer."""
        return 1 - self.edits / max(len(needle), self.end - self.start)


def nearest_extents(documents: PreparedDocuments, needle: str, begin: int, stop: int, threshold: float) -> list[Extent]:
    """Find the stretches in ``[begin, stop)`` of the folded text that are similar enough, fewest edits first.

    Runs that needle and text share lead to the places. From the longest stretch that is the same there, the text is
    taken to both sides as far as it has the fewest edits; of equal choices the one at the border of a word, then the
    one nearest to the needle's own length. No two stretches overlap, and none goes over from one document to the next.
    """
    text, slack = documents.text, 2 + int(len(needle) * (1 - threshold))
    found: list[Extent] = []
    for seeds in _clusters(documents.seeds(needle, begin, stop, _MOST_PLACES_A_RUN), slack):
        lowest, highest = documents.document_range(seeds[0][1])
        lowest, highest = max(lowest, begin), min(highest, stop)
        offset, start, length = _longest_match(text, needle, seeds, lowest, highest)
        if not length:
            continue  # another run with the same key
        end = start + length
        head, tail = needle[:offset], needle[offset + length :]
        before = text[max(lowest, start - len(head) - slack) : start]
        after = text[end : min(highest, end + len(tail) + slack)]
        left, left_edits = _reach(head[::-1], before[::-1], documents.is_border, start, -1)
        right, right_edits = _reach(tail, after, documents.is_border, end, 1)
        extent = Extent(start - left, end + right, left_edits + right_edits)
        if extent.similarity(needle) >= threshold:
            found.append(extent)
    chosen: list[Extent] = []
    for extent in sorted(found, key=lambda extent: (extent.edits, extent.start)):
        if all(extent.end <= other.start or other.end <= extent.start for other in chosen):
            chosen.append(extent)
    return chosen


def _clusters(seeds: list[Seed], slack: int) -> list[list[Seed]]:
    """Group the seeds that could belong to one copy of the needle; those with the most runs come first."""
    clusters: list[list[Seed]] = []
    reached = -1
    for offset, place in sorted(seeds, key=lambda seed: (seed[1] - seed[0], seed[0])):
        if not clusters or place - offset - reached > slack:
            clusters.append([])
        clusters[-1].append((offset, place))
        reached = place - offset
    runs = [len({offset for offset, _ in cluster}) for cluster in clusters]
    order = sorted(range(len(clusters)), key=lambda number: -runs[number])[:_MOST_CANDIDATES]
    return [clusters[number] for number in order if 2 * runs[number] >= runs[order[0]]]


def _longest_match(text: str, needle: str, seeds: Iterable[Seed], begin: int, stop: int) -> tuple[int, int, int]:
    """Return offset, place and length of the longest stretch around a seed that needle and text share."""
    longest = (0, 0, 0)
    for offset, place in seeds:
        back = Postfix.similarity(needle[:offset], text[max(begin, place - offset) : place])
        length = back + Prefix.similarity(needle[offset:], text[place : min(stop, place + len(needle) - offset)])
        if length > longest[2]:
            longest = (offset - back, place - back, length)
    return longest


def _reach(flank: str, beyond: str, is_border: Callable[[int], bool], place: int, way: int) -> tuple[int, int]:
    """How much of ``beyond``, forwards or backwards from the place, is nearest to the flank, and in how many edits."""
    fewest = len(flank) + len(beyond)
    equals: list[int] = []
    # From the flank's own length outwards: so much longer or shorter cannot have fewer edits than that.
    for length in sorted(range(len(beyond) + 1), key=lambda length: abs(length - len(flank))):
        if abs(length - len(flank)) > fewest:
            break
        edits = Levenshtein.distance(flank, beyond[:length], score_cutoff=fewest)
        if edits < fewest:
            fewest, equals = edits, []
        if edits == fewest:
            equals.append(length)
    return min(equals, key=lambda length: (not is_border(place + way * length), abs(length - len(flank)))), fewest


SIMILARITY = 0.85
"""The least similarity of a fuzzy place: about one edit in seven characters."""

LEAST_CHARACTERS = 16
"""What is shorter, whitespace not counted, is not looked for fuzzily: too much comes near it."""

_NO_HINT = Hint()
_CANDIDATES_SHOWN = 5
_FRAME = re.compile(r"^(?:'|\.\.\.(?!\.))+|(?:'|(?<!\.)\.\.\.)+$")


class Locator:
    """The documents, prepared once, and the places of any number of excerpts in them.

    An excerpt, stripped of outer whitespace, is looked for

    1. to the letter;
    2. but for whitespace, Unicode form, case, kinds of quotes and dashes, emphasis and invisible marks, and quotes or
       an ellipsis put around it;
    3. fuzzily: the stretch that takes the fewest edits, of a similarity of ``SIMILARITY`` at least.

    The first way that finds something decides. Several places are told apart by the hint, or the excerpt is rejected
    as ambiguous. A place is exact code points of the source, whatever way it was found.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._documents = PreparedDocuments(documents)

    def locate(self, excerpt: str, doc_id: DocumentId | None = None, hint: Hint | None = None) -> Location:
        """Find the place of an excerpt in one document or any, or why it has none; raises nothing."""
        hint = hint or _NO_HINT
        if doc_id is not None and doc_id not in self._documents.numbers:
            return Rejected("unknown-document")
        text = excerpt.strip()
        form = folded_form(text)
        if not form:
            return Rejected("empty")
        places, how = self._copies(text, form, doc_id, hint)
        if places:
            return self._resolved(places, how, hint)
        core = _FRAME.sub("", form)
        if len(core) < LEAST_CHARACTERS:
            return Rejected("too-short")
        return self._fuzzy(core, doc_id, hint)

    def _copies(self, text: str, form: str, doc_id: DocumentId | None, hint: Hint) -> tuple[list[Occurrence], How]:
        """Find where the text is to the letter, or else where its form is."""
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

    def _form_places(self, form: str, doc_id: DocumentId | None, hint: Hint) -> list[Occurrence]:
        ranges = self._documents.ranges(doc_id, hint.window)
        starts = [
            start for begin, stop in ranges for start in places_of(form, self._documents.text, MOST_PLACES, begin, stop)
        ]
        return [self._documents.place(start, start + len(form)) for start in starts]

    def _clean(self, places: Iterable[Occurrence], hint: Hint) -> list[Occurrence]:
        return _inside([place for place in places if self._documents.has_clean_borders(place)], hint)

    def _fuzzy(self, form: str, doc_id: DocumentId | None, hint: Hint) -> Location:
        documents = self._documents
        extents = [
            extent
            for begin, stop in documents.ranges(doc_id, hint.window)
            for extent in nearest_extents(documents, form, begin, stop, SIMILARITY)
        ]
        found = [(extent, documents.place(extent.start, extent.end)) for extent in extents]
        found = [(extent, place) for extent, place in found if _inside([place], hint)]
        if not found:
            return Rejected("not-found")
        fewest = min(extent.edits for extent, _ in found)
        return self._resolved([place for extent, place in found if extent.edits == fewest], "fuzzy", hint)

    def _resolved(self, places: Sequence[Occurrence], how: How, hint: Hint) -> Location:
        chosen = places[0] if len(places) == 1 else self._told_apart(places, hint)
        if chosen is None:
            return Rejected("ambiguous", tuple(map(self._documents.span, places[:_CANDIDATES_SHOWN])))
        return Located(self._documents.span(chosen), how)

    def _told_apart(self, places: Sequence[Occurrence], hint: Hint) -> Occurrence | None:
        """Return the one place that the hint speaks for, by the text before it or else by where it is."""
        before = folded_form(hint.before[-2 * _CONTEXT :])[-_CONTEXT:]

        def edits(place: Occurrence) -> float | None:
            """How far the text before is from the given one; None when too far, or when none was given."""
            begin, _ = self._documents.document_range(place.form_start)
            found = self._documents.text[max(begin, place.form_start - len(before)) : place.form_start]
            count = Levenshtein.distance(before, found)
            return count if before and 1 - count / len(before) >= _LEAST_SIMILARITY else None

        chosen = clearly_nearest(places, edits, factor=1.5)
        position = hint.position
        if chosen is None and position is not None:
            chosen = clearly_nearest(places, lambda place: abs(place.start - position), factor=2)
        return chosen


def _inside(places: list[Occurrence], hint: Hint) -> list[Occurrence]:
    if hint.window is None:
        return places
    begin, stop = hint.window
    return [place for place in places if begin <= place.start and place.end <= stop]


def _last_with_a_form(text: str) -> int:
    """Return the character that the last one of the text's form was made of; a run of dashes is its first."""
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
