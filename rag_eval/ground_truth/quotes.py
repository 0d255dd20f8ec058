"""Locate spans without offsets: quoted text of a document, of a page or another named place, or a whole place."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any

from rapidfuzz import fuzz, process

from rag_eval.chunking.markdown import Block, Outline
from rag_eval.chunking.sentence import trim
from rag_eval.errors import GroundTruthError, preview
from rag_eval.formatting import closest
from rag_eval.ground_truth.folding import folded_words, places_of
from rag_eval.ground_truth.locating import HOWS, Hint, Located, Locator, Rejected
from rag_eval.types.documents import Document, DocumentsById
from rag_eval.types.ids import DocumentId

LEAST_SIMILAR_ID = 60.0
MOST_COMPARED_PLACES = 1_000


class KnownIds:
    """The ids of the documents of a corpus, to suggest one for an unknown id."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids = list(dict.fromkeys(ids))
        self._known = frozenset(self._ids)
        self._absence = ids.absence if isinstance(ids, DocumentsById) else lambda _: None
        self._similar: dict[str, str | None] = {}

    @cached_property
    def _stems(self) -> list[str]:
        return [_stem(name) for name in self._ids]  # a suffix that all ids share does not make them similar

    def path_inside(self, written: str) -> str | None:
        """Return the id that is the end of a path, for example of one that starts with the corpus folder."""
        parts = written.removeprefix("./").split("/")
        return next((name for cut in range(len(parts)) if (name := "/".join(parts[cut:])) in self._known), None)

    def similar(self, written: str) -> str | None:
        """Return the most similar id; None if none is similar."""
        if written not in self._similar:
            best = process.extractOne(_stem(written), self._stems, scorer=fuzz.ratio, score_cutoff=LEAST_SIMILAR_ID)
            self._similar[written] = self._ids[best[2]] if best else None
        return self._similar[written]

    def fault(self, written: str) -> str:
        """Explain that no document has this id, and what to do."""
        if (reason := self._absence(written)) is not None:
            return f"it has a span in {written!r}, which {reason}"
        if (meant := self.path_inside(written)) is not None:
            advice = f"write {meant!r}, the path inside the corpus folder"
        else:
            meant = self.similar(written)
            question = f"did you mean {meant!r}? Else " if meant is not None else ""
            advice = f"{question}check the id, the corpus folder and its glob"
        return f"it has a span in {written!r}, which is not in the corpus: {advice}"


def _stem(name: str) -> str:
    return PurePath(name).with_suffix("").as_posix() if name else ""


CorpusDocuments = Callable[[], Mapping[DocumentId, Document] | Mapping[str, Document]]
"""Returns the documents of a corpus by id; called only if they are needed."""

Window = tuple[int, int]
NAMES = ("page", "place")
"""Keys of a span that name its place instead of ``start`` and ``end``."""

_OFFSETS = {"start", "end"}
_MOST_PREPARED = 100


@dataclass(frozen=True)
class NamedPlace:
    """A place in a document: its title, after the titles of the sections around it."""

    titles: Sequence[str]
    window: Window

    @cached_property
    def path(self) -> list[str]:
        return [folded_words(title) for title in self.titles]


class _PreparedDocument:
    def __init__(self, document: Document) -> None:
        self.document = document

    @cached_property
    def locator(self) -> Locator:
        return Locator([self.document])

    @cached_property
    def sections(self) -> list[NamedPlace]:
        """The places named by the loader, else the sections of the headings."""
        length, places = len(self.document.content), self.document.places
        if places:
            ends = [*(start for start, _ in places[1:]), length]
            return [NamedPlace([name], (start, end)) for (start, name), end in zip(places, ends, strict=True)]
        headings = Outline(self.document).headings
        sections, above = list[NamedPlace](), list[Block]()
        for number, heading in enumerate(headings):
            later = (other.start for other in headings[number + 1 :] if other.level <= heading.level)
            above = [*(block for block in above if block.level < heading.level), heading]
            sections.append(NamedPlace([block.title for block in above], (heading.start, next(later, length))))
        return sections

    def windows(self, place: str) -> list[Window]:
        """Return the windows of the sections with this title, or with the titles of ``Above > Title``."""
        path = [folded_words(title) for title in place.split(" > ")]
        return [section.window for section in self.sections if section.path[-len(path) :] == path]


class Quotes:
    """Finds the offsets of spans that have neither start nor end.

    A place is one that the loader names (``page 12``, ``cell 3``), else the section of a heading (``Fares``,
    ``Tickets > Fares``). A quote is located in its place, which it may exceed, or else in the whole document.
    A place without a quote stands for all its text.
    """

    def __init__(self, documents: CorpusDocuments | None) -> None:
        """Store the documents; without them, spans without offsets are faults."""
        self._documents = documents and cache(documents)
        self._known: KnownIds | None = None
        self._prepared: dict[str, _PreparedDocument] = {}
        self.differing: list[str] = []
        """A sentence for each quote that differs from its document."""

    def placed(self, line: Any) -> Any:
        """Return the data of a query with offsets and texts in all spans; other data is returned unchanged.

        Raises:
            GroundTruthError: If a span has no offsets and cannot be found.
        """
        if not isinstance(line, dict) or not isinstance(line.get("relevant_spans"), list):
            return line
        return {**line, "relevant_spans": [self._placed_group(span) for span in line["relevant_spans"]]}

    def _placed_group(self, span: Any) -> Any:
        others = span.get("alternatives") if isinstance(span, dict) else None
        if isinstance(others, list):
            span = {**span, "alternatives": [self._placed_span(other) for other in others]}
        return self._placed_span(span)

    def _placed_span(self, span: Any) -> Any:
        keys = span.keys() if isinstance(span, dict) else set[str]()
        has_place = not keys.isdisjoint(NAMES)
        if keys & _OFFSETS:
            if has_place:
                raise GroundTruthError("a span has start or end, and page or place: give one or the other")
            return span
        if not has_place and "text" not in keys:
            return span
        doc_id, text, place = span.get("doc_id"), span.get("text", ""), _place_name(span)
        if not isinstance(doc_id, str) or not isinstance(text, str) or not (text.strip() or place):
            raise GroundTruthError(f"the span {preview(repr(span))} needs a doc_id and a text: write both")
        prepared = self._prepare(doc_id, place)
        start, end = self._find(prepared, place, text.strip())
        others = {key: value for key, value in span.items() if key not in ("text", *NAMES)}
        return {**others, "start": start, "end": end, "text": prepared.document.content[start:end]}

    def _prepare(self, doc_id: str, place: str) -> _PreparedDocument:
        if self._documents is None:
            raise GroundTruthError(
                f"{_in(place, doc_id)} is given without start and end: write them with rag-eval truth check --fix, "
                "which needs the folder of the documents as --corpus"
            )
        documents = self._documents()
        document = documents.get(DocumentId(doc_id))
        if document is None:
            self._known = self._known or KnownIds(documents)
            raise GroundTruthError(self._known.fault(doc_id))
        if doc_id not in self._prepared or self._prepared[doc_id].document is not document:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            self._prepared[doc_id] = _PreparedDocument(document)
        return self._prepared[doc_id]

    def _find(self, prepared: _PreparedDocument, place: str, text: str) -> Window:
        """Return the position of the text in a place; without a text, the whole place."""
        document = prepared.document
        windows = prepared.windows(place) if place else [(0, len(document.content))]
        if not windows:
            raise GroundTruthError(_no_such_place(prepared, place))
        if not text:
            return _whole(document, windows, _in(place, document.id))
        exact = [(at, at + len(text)) for window in windows for at in places_of(text, document.content, 2, *window)]
        found = list(dict.fromkeys(exact or self._locate(prepared, text, windows)))
        if len(found) != 1:
            raise GroundTruthError(_not_once(document, place, text, found))
        return found[0]

    def _locate(self, prepared: _PreparedDocument, text: str, windows: Sequence[Window]) -> list[Window]:
        length = len(prepared.document.content)
        for beyond in (0, 2 * len(text)):  # a quote may continue on the next page
            found = list[Located]()
            for begin, stop in windows:
                location = prepared.locator.locate(text, hint=Hint(window=(begin, min(length, stop + beyond))))
                if isinstance(location, Rejected):
                    if location.candidates:
                        return [(span.start, span.end) for span in location.candidates]
                elif location.span.start < stop:
                    found.append(location)
            if found:
                return self._nearest(prepared.document, text, found)
        return []

    def _nearest(self, document: Document, text: str, found: Sequence[Located]) -> list[Window]:
        how = min((location.how for location in found), key=HOWS.index)
        nearest = [location.span for location in found if location.how == how]
        if how == "fuzzy":
            self.differing += [
                f"{document.id!r} has {preview(span.text)} at [{span.start}, {span.end}), not {preview(text)}"
                for span in nearest
            ]
        return [(span.start, span.end) for span in nearest]


def _whole(document: Document, windows: Sequence[Window], where: str) -> Window:
    trimmed = [trim(document.content, *window) for window in windows]
    filled = [(start, end) for start, end in trimmed if start < end]
    if len(filled) != 1:
        count = f"occurs {len(filled)} times" if filled else "has no text"
        raise GroundTruthError(f"{where} {count}: quote the intended text")
    return filled[0]


def _not_once(document: Document, place: str, text: str, found: Sequence[Window]) -> str:
    where = _in(place, document.id)
    if found:
        places = " and ".join(f"[{start}, {end})" for start, end in found[:2])
        return f"{preview(text)} is more than once in {where}, at {places}: quote more, or give start and end"
    elsewhere = next((document.place_at(at) for at in places_of(text, document.content, 1)), None)
    if place and elsewhere:
        return f"{preview(text)} is not in {where}, it is in {elsewhere}: write {elsewhere}"
    return f"{preview(text)} is not in {where}: copy the text as the document has it"


def _place_name(span: Mapping[str, Any]) -> str:
    page, place = span.get("page"), span.get("place")
    if page is not None and place is not None:
        raise GroundTruthError("a span has page and place: give one of them")
    if page is not None:
        if type(page) is not int or page < 1:
            raise GroundTruthError(f"the page of a span is {preview(repr(page))}: give its number, the first is 1")
        return f"page {page}"
    if place is not None and not (isinstance(place, str) and place.strip()):
        raise GroundTruthError(f"the place of a span is {preview(repr(place))}: give a name such as 'cell 3'")
    return place or ""


def _in(place: str, doc_id: str) -> str:
    return f"{place if place.isprintable() else preview(place)} of {doc_id!r}" if place else repr(doc_id)


def _no_such_place(prepared: _PreparedDocument, place: str) -> str:
    name = repr(prepared.document.id)
    titles = [section.titles[-1] for section in prepared.sections if section.titles[-1]]
    is_page = place.startswith("page ") and place.removeprefix("page ").isdecimal()
    if is_page and not prepared.document.places:
        return f"{name} has no pages: remove {preview(place)}, and quote the text"
    if not titles:
        return f"{name} has neither pages nor headings: remove {preview(place)}, and quote the text"
    if not is_page and (close := closest(place, titles[:MOST_COMPARED_PLACES])) is not None:
        return f"{name} has no {preview(place)}: did you mean {preview(close)}? Else quote the text alone"
    names = f"{preview(titles[0])} to {preview(titles[-1])}" if len(titles) > 1 else preview(titles[0])
    return f"{name} has no {preview(place)}, it has {names}: name one of them, or quote the text alone"
