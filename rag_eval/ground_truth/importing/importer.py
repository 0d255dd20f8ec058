"""What every importer needs: notes on what was left out or mended, file names, reading, and placing texts.

A text is placed where the source says; where the document has other text there, the place is counted in another unit
or searched for, and the change is noted.
"""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_eval.errors import GroundTruthError, TextEncodingError, preview
from rag_eval.ground_truth.locating import Hint, Located, Locator
from rag_eval.ground_truth.records import JsonObject, line_faults, parsed_line
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, encode_utf8, text_sha256
from rag_eval.types.offsets import fitting_unit


@dataclass(frozen=True, slots=True)
class ImportNotes:
    """What happened on the way, by kind; each entry says where."""

    left_out: dict[str, list[str]] = field(default_factory=dict)
    """What the source has and the ground truth has not."""
    mended: dict[str, list[str]] = field(default_factory=dict)
    """What was taken over otherwise than the source has it."""

    def leave_out(self, kind: str, where: str) -> None:
        self.left_out.setdefault(kind, []).append(where)

    def can_write(self, where: str, *texts: str) -> bool:
        """Tell whether UTF-8 can hold the texts of a query, which is noted as left out otherwise."""
        try:
            for text in texts:
                encode_utf8(text)
        except TextEncodingError as error:
            self.leave_out("query that UTF-8 cannot hold", f"{where}: {error}")
            return False
        return True

    def mend(self, kind: str, where: str) -> None:
        self.mended.setdefault(kind, []).append(where)


@dataclass(frozen=True, slots=True)
class ImportedTruth:
    """Ground truth of one type, and its documents if the source has them; raises ``GroundTruthError`` if empty."""

    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth]
    notes: ImportNotes
    documents: Sequence[Document] = ()
    corpus_folder: Path | None = None
    """Where the documents lie as files already; None when the source holds their texts itself, or has none."""

    def __post_init__(self) -> None:
        if not self.truth:
            left_out = self.notes.left_out.items()
            reasons = "; ".join(f"{kind}: {len(where)}, first {where[0]}" for kind, where in left_out)
            raise GroundTruthError(f"no query could be imported ({reasons or 'there is none'}): check the source")


SUFFIX = ".md"
LONGEST_NAME = 200
"""In bytes; file systems take 255."""


def refuse_traversal(doc_id: str) -> None:
    """Raise ``GroundTruthError`` on an id that would lead out of a folder."""
    if ".." in doc_id.replace("\\", "/").split("/"):
        raise GroundTruthError(
            f"the document id {preview(doc_id)} leads out of its folder: remove it from the source, it is not imported"
        )


class FileNames:
    """A file name for each document id: the id itself where it can be one, else its characters escaped as ``%2F``.

    No two ids get one name, on file systems that do not tell upper from lower case either. Changed names are noted.
    """

    def __init__(self, notes: ImportNotes) -> None:
        self._notes = notes
        self._taken: set[str] = set()

    def document(self, doc_id: str, content: str, where: str) -> Document | None:
        """Return a document under the name of its file; None, noted as left out, if it cannot be written to one."""
        try:
            return Document(self.name_for(doc_id), content)
        except (GroundTruthError, TextEncodingError) as error:
            self._notes.leave_out("document that cannot be written to a file", f"{where}: {error}")
            return None

    def name_for(self, doc_id: str) -> DocumentId:
        """Return the name of a document's file; raises on an id that leads out of the folder or is not UTF-8."""
        refuse_traversal(doc_id)
        encode_utf8(doc_id, "the document id")
        stem = _escaped(doc_id)
        marked = f"{stem.encode()[:LONGEST_NAME].decode(errors='ignore')}~{text_sha256(doc_id)[:8]}"
        is_long = len(stem.encode()) > LONGEST_NAME
        name = marked if is_long or stem.casefold() in self._taken else stem
        self._taken.add(name.casefold())
        if name != doc_id:
            self._notes.mend("document id that is no file name, escaped", f"{preview(doc_id)} is {name + SUFFIX!r}")
        return DocumentId(name + SUFFIX)


def _escaped(doc_id: str) -> str:
    # A name that some systems would compose anew keeps only its ASCII, so that the id is the same everywhere.
    is_stable = unicodedata.normalize("NFC", doc_id) == doc_id
    last = len(doc_id) - 1

    def kept(place: int, character: str) -> bool:
        if character == ".":
            return place > 0  # a leading dot hides the file
        if character == " ":
            return 0 < place < last
        return character in "_-" or (character.isalnum() and (is_stable or character.isascii()))

    return "".join(
        character if kept(place, character) else "".join(f"%{byte:02X}" for byte in character.encode("utf-8"))
        for place, character in enumerate(doc_id)
    )


def json_file(path: Path) -> Any:
    """Read a JSON file's content; raises ``GroundTruthError`` when it cannot be read or is not JSON."""
    try:
        return json.loads(read_truth_text(path, "file"))
    except json.JSONDecodeError as error:
        raise GroundTruthError(
            f"{str(path)!r} is not JSON ({error.msg} in line {error.lineno}): check that it is whole"
        ) from None
    except RecursionError:
        raise GroundTruthError(f"{str(path)!r} has objects too deep in each other: check the file") from None
    except ValueError:
        raise GroundTruthError(f"{str(path)!r} has a number of too many digits: check the file") from None


def json_lines(path: Path, notes: ImportNotes) -> Iterator[tuple[str, JsonObject]]:
    """Read the objects of a file with one a line, each with its place; lines that hold none are noted as left out."""
    for number, line in enumerate(read_truth_text(path, "file").split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path.name}, line {number}"
        try:
            data = parsed_line(line)
        except (ValueError, RecursionError) as error:
            notes.leave_out("broken line", f"{place}: {line_faults(error)[0]}")
            continue
        if isinstance(data, dict):
            yield place, data
        else:
            notes.leave_out("broken line", f"{place}: not an object")


def documents_folder(given: Path | None, usual: list[Path]) -> Path:
    """Return the folder given, or the first of the usual that is there; raises ``GroundTruthError`` without one."""
    if given is not None:
        return given
    found = next((folder for folder in usual if folder.is_dir()), None)
    if found is None:
        raise GroundTruthError(f"the documents are not in {str(usual[0])!r}: give their folder with --corpus")
    return found


def unique_questions(items: Iterable[TokenLevelGroundTruth], notes: ImportNotes) -> list[TokenLevelGroundTruth]:
    """Return the items with each query id once, in the order of their first appearance; a place is kept once a query.

    Where the same question has the same id, what is relevant to either is relevant to both, and they become one.
    Where one id is used for different questions, the first is kept. The same question under different ids stays, as
    in the source. All are noted.
    """
    by_id: dict[str, TokenLevelGroundTruth] = {}
    asked: dict[str, str] = {}
    for item in items:
        query = item.query
        earlier = by_id.get(query.id)
        if earlier is None:
            other = asked.setdefault(query.text, query.id)
            if other != query.id:
                notes.mend("question asked under several ids, kept", f"{other} and {query.id} {preview(query.text)}")
            by_id[query.id] = _with_places_once(query, item)
        elif earlier.query.text == query.text:
            notes.mend("question asked more than once, made one", f"{query.id} {preview(query.text)}")
            by_id[query.id] = _with_places_once(earlier.query, earlier, item)
        else:
            notes.leave_out("query id used for another question", f"{query.id} {preview(query.text)}")
    return list(by_id.values())


def _with_places_once(query: Query, *items: TokenLevelGroundTruth) -> TokenLevelGroundTruth:
    spans = list(dict.fromkeys(span for item in items for span in item.relevant_spans))
    return TokenLevelGroundTruth(query, spans, unanswerable=not spans and all(item.unanswerable for item in items))


WHY_NOT = {
    "not-found": "text that is not in its document",
    "too-short": "text that is not in its document, and too short to be searched for in other words",
    "ambiguous": "text that is at several places of its document, none of them the one named",
}
"""What the reasons of the search mean to somebody who imports."""


class Placer:
    """Places texts: as the source says, else by another unit or a search, which is noted; the rest is left out."""

    def __init__(self, notes: ImportNotes) -> None:
        self._notes = notes
        self._prepared: tuple[Document, Locator] | None = None

    def place(self, document: Document, start: object, end: object, text: object, where: str) -> CharacterSpan | None:
        """Find where the text is in the document; None when that cannot be said.

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
            return document.span(start, after)
        fitting = fitting_unit(document.content, start, end, text)
        if fitting is not None:
            told = f"{where}: [{start}, {after}) is [{fitting.start}, {fitting.end})"
            self._notes.mend(f"{fitting.unit}, turned into code points", told)
            return document.span(fitting.start, fitting.end)
        # References of one document mostly come together in a source, and preparing a document is what costs.
        if self._prepared is None or self._prepared[0] is not document:
            self._prepared = document, Locator([document])
        found = self._prepared[1].locate(text, hint=Hint(position=max(0, start)))
        if not isinstance(found, Located):
            told = f"{where}: {preview(text)} at [{start}, {after}) of {document.id!r}"
            self._notes.leave_out(WHY_NOT.get(found.reason, found.reason), told)
            return None
        kind = "text found at another place" if found.how == "exact" else "text found in other words or spacing"
        self._notes.mend(kind, f"{where}: [{start}, {after}) is [{found.span.start}, {found.span.end})")
        return found.span
