"""Spans that are given without numbers: by a quote, by a page or another place of their document, or by both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import PurePath
from typing import Any

from rag_eval.chunking.markdown import Block, Outline
from rag_eval.chunking.sentence import trim
from rag_eval.errors import GroundTruthError, preview
from rag_eval.formatting import closest
from rag_eval.ground_truth.folding import places_of
from rag_eval.ground_truth.locating import Hint, Located, Locator, Rejected
from rag_eval.types.documents import Document, DocumentsById
from rag_eval.types.ids import DocumentId

MOST_COMPARED_IDS = 200_000
MOST_COMPARED_PLACES = 1_000


class KnownIds:
    """The ids of a corpus's documents, and which of them somebody meant who wrote another.

    Together the searches for similar ids compare no more than ``MOST_COMPARED_IDS``.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self.ids = dict.fromkeys(ids)
        self._absence = ids.absence if isinstance(ids, DocumentsById) else lambda _: None
        self._left = MOST_COMPARED_IDS
        # An extension that all have makes no two names alike.
        self._stems = {PurePath(name).with_suffix("").as_posix(): name for name in self.ids}
        self._similar: dict[str, str | None] = {}

    def path_inside(self, written: str) -> str | None:
        """Return the id that a path ends in: people write it as they see it, with the corpus folder in front."""
        parts = written.removeprefix("./").split("/")
        return next((name for cut in range(len(parts)) if (name := "/".join(parts[cut:])) in self.ids), None)

    def similar(self, written: str) -> str | None:
        """Return the id that is most like the one written; None if none is, or too many were compared before."""
        if written not in self._similar and self._left >= len(self.ids):
            self._left -= len(self.ids)
            stem = closest(PurePath(written).with_suffix("").as_posix(), self._stems) if written else None
            self._similar[written] = self._stems[stem] if stem is not None else None
        return self._similar.get(written)

    def fault(self, written: str) -> str:
        """Say that no document has the id of a span, why if that is known, and what to do about it."""
        if (reason := self._absence(written)) is not None:
            return f"it has a span in {written!r}, which {reason}"
        return f"it has a span in {written!r}, which is not in the corpus: {self._advice(written)}"

    def _advice(self, written: str) -> str:
        if (meant := self.path_inside(written)) is not None:
            return f"write {meant!r}, the path inside the corpus folder"
        question = f"did you mean {meant!r}? Else " if (meant := self.similar(written)) is not None else ""
        return f"{question}check the id, the corpus folder and its glob"


CorpusDocuments = Callable[[], Mapping[DocumentId, Document] | Mapping[str, Document]]
"""What gives the documents of a corpus by id, asked when they are needed."""

Window = tuple[int, int]
NAMES = ("page", "place")
"""The keys of a span that name where it is, in place of its start and end."""

_SPAN_KEYS, _NUMBERS, _HOWS = ("relevant_spans", "relevantSpans"), {"start", "end"}, ("exact", "normalised", "fuzzy")
_MOST_PREPARED = 20_000_000  # characters of documents that stay prepared
_BELOW = " > "


class _Searched:
    """A document with what finding a place in it needs, made when that is needed."""

    def __init__(self, document: Document) -> None:
        self.document = document

    @cached_property
    def locator(self) -> Locator:
        return Locator([self.document])

    @cached_property
    def places(self) -> list[tuple[list[str], Window]]:
        """What the loader named, or else the sections of headings, with the titles above each."""
        length, told = len(self.document.content), self.document.places
        if told:
            ends = [*(start for start, _ in told[1:]), length]
            return [([name], (start, end)) for (start, name), end in zip(told, ends, strict=True)]
        headings = Outline(self.document).headings
        after, stops = dict.fromkeys(range(1, 7), length), list[int]()
        for heading in reversed(headings):
            stops.append(min(after[level] for level in range(1, heading.level + 1)))
            after[heading.level] = heading.start
        found, above = list[tuple[list[str], Window]](), list[Block]()
        for heading, stop in zip(headings, reversed(stops), strict=True):
            above = [*(one for one in above if one.level < heading.level), heading]
            found.append(([one.title for one in above], (heading.start, stop)))
        return found

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[list[str], Window]]]:
        found: dict[str, list[tuple[list[str], Window]]] = {}
        for titles, window in self.places:
            path = [_folded(title) for title in titles]
            found.setdefault(path[-1], []).append((path, window))
        return found

    def windows(self, place: str) -> list[Window]:
        """Where the places of a name are, of which a heading may be told with those above it."""
        path = [_folded(title) for title in place.split(_BELOW)]
        return [window for titles, window in self._by_name.get(path[-1], []) if titles[-len(path) :] == path]


class Quotes:
    """Places spans that have neither start nor end.

    A place is what a loader names (``page 12``, ``cell 3``), or else a heading (``Fares``, ``Tickets > Fares``), whose
    section it is. A quote is looked for in it as ``Locator`` does, and without a place in the whole document; it may
    go on beyond its place. Without a quote the whole place is meant.
    """

    def __init__(self, documents: CorpusDocuments | None) -> None:
        """Without documents, spans without numbers are faults."""
        self._documents = documents and cache(documents)
        self._known: KnownIds | None = None
        self._searched: dict[str, _Searched] = {}
        self.differing: list[str] = []
        """A sentence for each quote that its document has in other words."""

    def placed(self, line: Any) -> Any:
        """Return the plain data of a query's line with numbers and texts in its spans.

        What has no span without numbers is returned as it is, whatever it is. Raises ``GroundTruthError`` with what is
        wrong with the first span that has no place.
        """
        key = next((key for key in _SPAN_KEYS if key in line), None) if isinstance(line, dict) else None
        if key is None or not isinstance(line[key], list):
            return line
        return {**line, key: [self._placed_group(span) for span in line[key]]}

    def _placed_group(self, span: Any) -> Any:
        others = span.get("alternatives") if isinstance(span, dict) else None
        if isinstance(others, list):
            span = {**span, "alternatives": [self._placed_span(other) for other in others]}
        return self._placed_span(span)

    def _placed_span(self, span: Any) -> Any:
        given = set(span) if isinstance(span, dict) else set[str]()
        if not given & {"text", *NAMES} or (given & _NUMBERS and not given & {*NAMES}):
            return span
        if given & _NUMBERS:
            raise GroundTruthError("a span has start or end, and page or place: give one or the other")
        doc_id, text, place = span.get("doc_id", span.get("docId")), span.get("text", ""), _place_name(span)
        if not isinstance(doc_id, str) or not isinstance(text, str) or not (text.strip() or place):
            raise GroundTruthError(f"the span {preview(repr(span))} needs a doc_id and a text: write both")
        searched = self._of(doc_id, place)
        start, end = self._found(searched, place, text.strip())
        others = {key: value for key, value in span.items() if key not in ("text", *NAMES)}
        return {**others, "start": start, "end": end, "text": searched.document.content[start:end]}

    def _of(self, doc_id: str, place: str) -> _Searched:
        if self._documents is None:
            raise GroundTruthError(
                f"{_in(place, doc_id)} is given without start and end, which only the documents tell: "
                "rag-eval truth check --fix, with their folder as --corpus, writes them down"
            )
        documents = self._documents()
        document = documents.get(DocumentId(doc_id))
        if document is None:
            self._known = self._known or KnownIds(documents)
            raise GroundTruthError(self._known.fault(doc_id))
        if doc_id not in self._searched or self._searched[doc_id].document is not document:
            kept = self._searched
            while kept and sum(len(one.document.content) for one in kept.values()) > _MOST_PREPARED:
                del kept[next(iter(kept))]
            kept[doc_id] = _Searched(document)
        return self._searched[doc_id]

    def _found(self, searched: _Searched, place: str, text: str) -> Window:
        """Return where a quote is within a place; all of it where nothing is quoted."""
        document = searched.document
        windows = searched.windows(place) if place else [(0, len(document.content))]
        if not windows:
            raise GroundTruthError(_no_such_place(searched, place))
        if not text:
            filled = [one for window in windows if (one := trim(document.content, *window))[0] < one[1]]
            if len(filled) != 1:
                told = f"is there {len(filled)} times" if filled else "has no text"
                raise GroundTruthError(f"{_in(place, document.id)} {told}: quote the text that is meant")
            return filled[0]
        exact = [(at, at + len(text)) for window in windows for at in places_of(text, document.content, 2, *window)]
        found = list(dict.fromkeys(exact or self._located(searched, text, windows)))
        if len(found) == 1:
            return found[0]
        what, where = preview(text), _in(place, document.id)
        if found:
            told = " and ".join(f"[{start}, {end})" for start, end in found[:2])
            raise GroundTruthError(f"{what} is more than once in {where}, at {told}: quote more, or give start and end")
        elsewhere = [document.place_at(at) for at in places_of(text, document.content, 1)]
        if place and elsewhere and elsewhere[0]:
            raise GroundTruthError(f"{what} is not in {where}, it is in {elsewhere[0]}: write {elsewhere[0]}")
        raise GroundTruthError(f"{what} is not in {where}: copy the text as the document has it")

    def _located(self, searched: _Searched, text: str, windows: Sequence[Window]) -> list[Window]:
        document, found = searched.document, list[Located]()
        for beyond in (0, 2 * len(text)):  # a quote may go on at the next page
            for begin, stop in windows:
                window = begin, min(len(document.content), stop + beyond)
                one = searched.locator.locate(text, hint=Hint(window=window))
                if isinstance(one, Rejected) and one.candidates:
                    return [(span.start, span.end) for span in one.candidates]
                found += [one] if isinstance(one, Located) and one.span.start < stop else []
            if found:
                break
        best = min((_HOWS.index(one.how) for one in found), default=0)
        nearest = [one for one in found if one.how == _HOWS[best]]
        self.differing += [
            f"{document.id!r} has {preview(one.span.text)} at [{one.span.start}, {one.span.end}), not {preview(text)}"
            for one in nearest
            if one.how == "fuzzy"
        ]
        return [(one.span.start, one.span.end) for one in nearest]


def _place_name(span: Mapping[str, Any]) -> str:
    """The place that a span names; a page by its number."""
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


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())


def _no_such_place(searched: _Searched, place: str) -> str:
    name, told = repr(searched.document.id), [titles[-1] for titles, _ in searched.places if titles[-1]]
    is_page = place.startswith("page ") and place.removeprefix("page ").isdecimal()
    if is_page and not searched.document.places:
        return f"{name} has no pages, as its loader tells none: leave out {preview(place)}, and quote the text"
    if not told:
        return f"{name} has neither pages nor headings: leave out {preview(place)}, and quote the text"
    if not is_page and (close := closest(place, told[:MOST_COMPARED_PLACES])) is not None:
        return f"{name} has no {preview(place)}: did you mean {preview(close)}? Else quote the text alone"
    names = f"{preview(told[0])} to {preview(told[-1])}" if len(told) > 1 else preview(told[0])
    return f"{name} has no {preview(place)}, it has {names}: name one of them, or quote the text alone"
