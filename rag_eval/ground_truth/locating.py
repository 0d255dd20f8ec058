"""Find excerpts, which may have been altered, in the documents that they were taken from."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, get_args

from rapidfuzz.distance import Levenshtein, Postfix, Prefix

from rag_eval.chunking.alignment import aligned_form
from rag_eval.ground_truth.folding import MOST_PLACES, FoldedDocuments, Seed, folded_form, places_of
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

How = Literal["exact", "normalised", "fuzzy"]
"""Exactly; ignoring whitespace, Unicode form, case, quotes, dashes and emphasis; or with a few typos."""
HOWS: tuple[How, ...] = get_args(How)

Reason = Literal["empty", "too-short", "ambiguous", "not-found", "unknown-document"]
"""``too-short``: no exact match, and too short for a fuzzy one. ``ambiguous``: several places fit the hint."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known about the place of an excerpt.

    The excerpt must be inside ``window``, ``[start, end)`` of its document. ``before``, the text before the excerpt,
    and ``position``, its approximate start, only decide between several places.
    """

    before: str = ""
    position: int | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Located:
    """The place of an excerpt, with the text of the document, and how it was found."""

    span: CharacterSpan
    how: How


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why an excerpt could not be located; ``candidates`` are some of the places of an ambiguous one."""

    reason: Reason
    candidates: tuple[CharacterSpan, ...] = ()


Location = Located | Rejected

_CONTEXT = 400
_LEAST_SIMILAR_CONTEXT = 0.6


def _clearly_nearest(distances: Iterable[tuple[float, CharacterSpan]], factor: float) -> CharacterSpan | None:
    """Return the nearest span, or None unless the next one is further away by the factor."""
    nearest = sorted(distances, key=itemgetter(0))[:2]
    if len(nearest) == 2 and (nearest[1][0] <= nearest[0][0] or nearest[1][0] < factor * nearest[0][0]):
        return None
    return nearest[0][1] if nearest else None


_MOST_PLACES_A_RUN = 64
_MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Extent:
    """``[start, end)`` of a text, and its edit distance from the needle."""

    start: int
    end: int
    edits: int

    def similarity(self, needle: str) -> float:
        """Return 1 - edits / length of the longer text."""
        return 1 - self.edits / max(len(needle), self.end - self.start)


def nearest_extents(documents: FoldedDocuments, needle: str, begin: int, stop: int, threshold: float) -> list[Extent]:
    """Find the extents in ``[begin, stop)`` of the folded text that are similar enough, fewest edits first.

    Candidates come from runs of characters that the needle and the text share. The longest match of each is extended on
    both sides to the lowest edit distance; ties prefer a word border, then the needle's length. Extents do not overlap,
    and each is in one document.
    """
    text, slack = documents.text, 2 + int(len(needle) * (1 - threshold))
    found: list[Extent] = []
    for seeds in _clusters(documents.seeds(needle, begin, stop, _MOST_PLACES_A_RUN), slack):
        lowest, highest = documents.document_range(seeds[0][1])
        lowest, highest = max(lowest, begin), min(highest, stop)
        offset, start, length = _longest_match(text, needle, seeds, lowest, highest)
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
    """Group the seeds that could belong to one copy of the needle, those with the most runs first."""
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
    """Return the offset, place and length of the longest match around a seed."""
    longest = (0, 0, 0)
    for offset, place in seeds:
        back = Postfix.similarity(needle[:offset], text[max(begin, place - offset) : place])
        length = back + Prefix.similarity(needle[offset:], text[place : min(stop, place + len(needle) - offset)])
        if length > longest[2]:
            longest = (offset - back, place - back, length)
    return longest


def _reach(flank: str, beyond: str, is_border: Callable[[int], bool], place: int, direction: int) -> tuple[int, int]:
    """Return the length and the edits of the prefix of ``beyond`` that is closest to the flank."""
    fewest = len(flank) + len(beyond)
    equals: list[int] = []
    # A difference in length is a lower bound of the edits, so try similar lengths first.
    for length in sorted(range(len(beyond) + 1), key=lambda length: abs(length - len(flank))):
        if abs(length - len(flank)) > fewest:
            break
        edits = Levenshtein.distance(flank, beyond[:length], score_cutoff=fewest)
        if edits < fewest:
            fewest, equals = edits, []
        if edits == fewest:
            equals.append(length)
    return min(equals, key=lambda length: (not is_border(place + direction * length), abs(length - len(flank)))), fewest


SIMILARITY = 0.85
"""Minimum similarity of a fuzzy match: about one edit in seven characters."""

LEAST_CHARACTERS = 16
"""Minimum length of a fuzzy match in characters other than whitespace: shorter texts are too similar."""

_CANDIDATES_SHOWN = 5
_FRAME = re.compile(r"^(?:'|\.\.\.(?!\.))+|(?:'|(?<!\.)\.\.\.)+$")


class Locator:
    """The documents, prepared once to locate any number of excerpts.

    An excerpt, stripped of outer whitespace, is searched for

    1. exactly;
    2. ignoring whitespace, Unicode form, case, kinds of quotes and dashes, emphasis and invisible characters, and
       quotes or an ellipsis around it;
    3. fuzzily: the text with the fewest edits, of at least ``SIMILARITY``.

    The first search that finds something decides. The hint decides between several places; else the excerpt is
    rejected as ambiguous.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self._folded = FoldedDocuments(documents)

    def locate(self, excerpt: str, doc_id: DocumentId | None = None, hint: Hint | None = None) -> Location:
        """Locate an excerpt in one document or in any; if it has no place, return the reason."""
        hint = hint or Hint()
        if doc_id is not None and doc_id not in self._folded.documents:
            return Rejected("unknown-document")
        text = excerpt.strip()
        form = folded_form(text)
        if not form:
            return Rejected("empty")
        if spans := self._exact(text, doc_id, hint):
            return self._resolved(spans, "exact", hint)
        spans, core = self._normalised(form, doc_id, hint), _FRAME.sub("", form)
        if not spans and core != form:
            spans = self._normalised(core, doc_id, hint)
        if spans:
            aligned = aligned_form(text)
            same_case = [span for span in spans if aligned_form(span.text) == aligned]
            return self._resolved(same_case or spans, "normalised", hint)
        if len(core) < LEAST_CHARACTERS:
            return Rejected("too-short")
        spans = self._fuzzy(core.encode("utf-8", "replace").decode(), doc_id, hint)  # no document has lone surrogates
        return self._resolved(spans, "fuzzy", hint) if spans else Rejected("not-found")

    def _exact(self, text: str, doc_id: DocumentId | None, hint: Hint) -> list[CharacterSpan]:
        documents = self._folded.documents
        begin, stop = hint.window or (0, None)
        return [
            document.span(start, start + len(text))
            for document in (documents.values() if doc_id is None else [documents[doc_id]])
            for start in places_of(text, document.content, MOST_PLACES, begin, stop)
        ]

    def _normalised(self, form: str, doc_id: DocumentId | None, hint: Hint) -> list[CharacterSpan]:
        spans = [
            self._folded.span(start, start + len(form))
            for begin, stop in self._folded.ranges(doc_id, hint.window)
            for start in places_of(form, self._folded.text, MOST_PLACES, begin, stop)
            if self._folded.has_clean_borders(start, start + len(form))
        ]
        return [span for span in spans if _is_inside(span, hint)]

    def _fuzzy(self, form: str, doc_id: DocumentId | None, hint: Hint) -> list[CharacterSpan]:
        extents = [
            (extent.edits, self._folded.span(extent.start, extent.end))
            for begin, stop in self._folded.ranges(doc_id, hint.window)
            for extent in nearest_extents(self._folded, form, begin, stop, SIMILARITY)
        ]
        inside = [(edits, span) for edits, span in extents if _is_inside(span, hint)]
        fewest = min((edits for edits, _ in inside), default=0)
        return [span for edits, span in inside if edits == fewest]

    def _resolved(self, spans: Sequence[CharacterSpan], how: How, hint: Hint) -> Location:
        """Return the only span, or the one that the hint favours: by the text before it, else by its position."""
        if len(spans) == 1:
            return Located(spans[0], how)
        chosen, position = None, hint.position
        if before := folded_form(hint.before[-2 * _CONTEXT :])[-_CONTEXT:]:
            edits = ((Levenshtein.distance(before, self._form_before(span, len(before))), span) for span in spans)
            most = (1 - _LEAST_SIMILAR_CONTEXT) * len(before)
            chosen = _clearly_nearest((pair for pair in edits if pair[0] <= most), factor=1.5)
        if chosen is None and position is not None:
            chosen = _clearly_nearest(((abs(span.start - position), span) for span in spans), factor=2)
        return Located(chosen, how) if chosen else Rejected("ambiguous", tuple(spans[:_CANDIDATES_SHOWN]))

    def _form_before(self, span: CharacterSpan, length: int) -> str:
        content = self._folded.documents[span.doc_id].content
        return folded_form(content[max(0, span.start - 2 * _CONTEXT) : span.start])[-length:]


def _is_inside(span: CharacterSpan, hint: Hint) -> bool:
    return hint.window is None or (hint.window[0] <= span.start and span.end <= hint.window[1])
