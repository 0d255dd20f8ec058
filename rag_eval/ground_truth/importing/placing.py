"""Putting what a source says about a place onto the document's own text."""

from rag_eval.errors import preview
from rag_eval.ground_truth.importing.result import ImportNotes
from rag_eval.ground_truth.locating import Hint, Located, Locator
from rag_eval.types.document import Document
from rag_eval.types.offset_units import fitting_unit

Place = tuple[int, int]
WHY_NOT = {
    "not-found": "text that is not in its document",
    "too-short": "text that is not in its document, and too short to be searched for in other words",
    "ambiguous": "text that stands at several places of its document, none of them the one named",
}
"""What the reasons of the search mean to somebody who imports."""


class Placer:
    """Places texts: as the source says, else counted in another unit, else where a search finds them.

    All but the first is noted, and what cannot be placed is left out with the reason.
    """

    def __init__(self, notes: ImportNotes) -> None:
        self._notes = notes
        self._prepared: tuple[Document, Locator] | None = None

    def place(self, document: Document, start: object, end: object, text: object, where: str) -> Place | None:
        """Where the text stands in the document, in code points; None when that cannot be said.

        ``start``, ``end`` and ``text`` are what the source says, of whatever type that is; ``end`` may be None, then
        the text's length decides.
        """
        if type(start) is not int or (end is not None and type(end) is not int) or not isinstance(text, str):
            self._notes.leave_out("place that is not numbers and a text", where)
            return None
        if not text.strip():
            self._notes.leave_out("empty text", where)
            return None
        after = start + len(text) if end is None else end
        if start >= 0 and document.content[start:after] == text:
            return start, after
        fitting = fitting_unit(document.content, start, end, text)
        if fitting is not None:
            told = f"{where}: [{start}, {after}) is [{fitting.start}, {fitting.end})"
            self._notes.mend(f"{fitting.unit}, turned into code points", told)
            return fitting.start, fitting.end
        return self._searched(document, (start, after), text, where)

    def _searched(self, document: Document, said: Place, text: str, where: str) -> Place | None:
        found = self._locator(document).locate(text, doc_id=document.id, hint=Hint(position=max(0, said[0])))
        if not isinstance(found, Located):
            told = f"{where}: {preview(text)} at [{said[0]}, {said[1]}) of {document.id!r}"
            self._notes.leave_out(WHY_NOT.get(found.reason, found.reason), told)
            return None
        kind = "text found at another place" if found.how == "exact" else "text found in other words or spacing"
        self._notes.mend(kind, f"{where}: [{said[0]}, {said[1]}) is [{found.span.start}, {found.span.end})")
        return found.span.start, found.span.end

    def _locator(self, document: Document) -> Locator:
        # References of one document mostly stand together in a source, and preparing a document is what costs.
        if self._prepared is None or self._prepared[0] is not document:
            self._prepared = document, Locator([document])
        return self._prepared[1]
