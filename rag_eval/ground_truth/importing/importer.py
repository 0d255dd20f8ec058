"""Shared code of importers: notes on what was left out or changed, records, file names, and locating texts."""

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from rag_eval.errors import GroundTruthError, TextEncodingError, preview
from rag_eval.ground_truth.locating import Hint, Located, Locator
from rag_eval.ground_truth.records import EncodableText, JsonObject, line_faults, parsed_line
from rag_eval.ground_truth.truth_files import read_truth_text
from rag_eval.types.chunks import CharacterSpan
from rag_eval.types.documents import Document
from rag_eval.types.evidence import ChunkLevelGroundTruth, Query, TokenLevelGroundTruth
from rag_eval.types.ids import DocumentId, encode_utf8, text_sha256
from rag_eval.types.offsets import fitting_unit


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


NotBlank = Annotated[EncodableText, AfterValidator(_not_blank)]
Filled = Annotated[str, Field(min_length=1)]


class SourceModel(BaseModel):
    """A record of a source; other keys are ignored."""

    model_config = ConfigDict(strict=True)


Model = TypeVar("Model", bound=SourceModel)


@dataclass(frozen=True, slots=True)
class ImportNotes:
    """What was left out or changed, by kind; each entry names its place in the source."""

    left_out: dict[str, list[str]] = field(default_factory=dict)
    mended: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, kind: str, where: str) -> None:
        self.left_out.setdefault(kind, []).append(where)

    def mend(self, kind: str, where: str) -> None:
        self.mended.setdefault(kind, []).append(where)

    def parsed(self, model: type[Model], record: object, kind: str, where: str) -> Model | None:
        """Parse a record; if it does not fit the model, note it as left out and return None."""
        try:
            return model.model_validate(record)
        except (ValidationError, TextEncodingError) as error:
            self.leave_out(kind, f"{where}: {line_faults(error)[0]}")
            return None


@dataclass(frozen=True, slots=True)
class ImportedTruth:
    """Ground truth with its documents, if the source has them; raises ``GroundTruthError`` if it is empty."""

    truth: Sequence[TokenLevelGroundTruth] | Sequence[ChunkLevelGroundTruth]
    notes: ImportNotes
    documents: Sequence[Document] = ()
    corpus_folder: Path | None = None
    """The folder of the documents; None if the source has their texts, or no documents."""

    def __post_init__(self) -> None:
        if not self.truth:
            left_out = self.notes.left_out.items()
            reasons = "; ".join(f"{kind}: {len(where)}, first {where[0]}" for kind, where in left_out)
            raise GroundTruthError(f"no query could be imported ({reasons or 'there is none'}): check the source")


SUFFIX = ".md"
LONGEST_NAME = 200
"""Longest file name in bytes; file systems allow 255."""


def refuse_traversal(doc_id: str) -> None:
    """Raise ``GroundTruthError`` on an id that leads out of its folder."""
    if ".." in doc_id.replace("\\", "/").split("/"):
        raise GroundTruthError(
            f"the document id {preview(doc_id)} leads out of its folder: remove it from the source, it is not imported"
        )


class FileNames:
    """Unique file names for document ids, with special characters escaped like ``%2F``; changed names are noted.

    The names also differ on file systems that ignore case.
    """

    def __init__(self, notes: ImportNotes) -> None:
        self._notes = notes
        self._taken: set[str] = set()

    def document(self, doc_id: str, content: str, where: str) -> Document | None:
        """Return a document with its file name as id; None, noted as left out, if no file can have it."""
        try:
            return Document(self.name_for(doc_id), content)
        except (GroundTruthError, TextEncodingError) as error:
            self._notes.leave_out("document that cannot be written to a file", f"{where}: {error}")
            return None

    def name_for(self, doc_id: str) -> DocumentId:
        """Return the file name of a document; raise on an id that leads out of the folder or is not UTF-8."""
        refuse_traversal(doc_id)
        encode_utf8(doc_id, "the document id")
        stem = _escaped(doc_id)
        marked = f"{stem.encode()[:LONGEST_NAME].decode(errors='ignore')}~{text_sha256(doc_id)[:8]}"
        is_long = len(stem.encode()) > LONGEST_NAME
        name = marked if is_long or stem.casefold() in self._taken else stem
        self._taken.add(name.casefold())
        if name != doc_id:
            self._notes.mend("document id that is not a file name, escaped", f"{preview(doc_id)} is {name + SUFFIX!r}")
        return DocumentId(name + SUFFIX)


def _escaped(doc_id: str) -> str:
    # Keep only ASCII in names that some file systems would normalise.
    is_stable = unicodedata.normalize("NFC", doc_id) == doc_id

    def is_kept(place: int, character: str) -> bool:
        if character in ". ":  # a leading dot hides the file, and outer spaces can be lost
            return 0 < place < len(doc_id) - (character == " ")
        return character in "_-" or (character.isalnum() and (is_stable or character.isascii()))

    return "".join(
        character if is_kept(place, character) else "".join(f"%{byte:02X}" for byte in character.encode("utf-8"))
        for place, character in enumerate(doc_id)
    )


def json_list(path: Path, key: str, format_name: str) -> list[JsonValue]:
    """Return the list under a key of a JSON file; raise ``GroundTruthError`` if there is none."""
    try:
        content: JsonValue = json.loads(read_truth_text(path, "file"))
    except (ValueError, RecursionError) as error:
        raise GroundTruthError(f"{str(path)!r} is not JSON ({error}): check that it is whole") from None
    records = content.get(key) if isinstance(content, dict) else None
    if not isinstance(records, list):
        raise GroundTruthError(f"{str(path)!r} has no list {key!r}: check that it is {format_name}")
    return records


def json_lines(path: Path, notes: ImportNotes) -> Iterator[tuple[str, JsonObject]]:
    """Read the objects of a JSON-lines file, each with its line; other lines are noted as left out."""
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
    """Return the given folder, or the first usual folder that exists; raise ``GroundTruthError`` if there is none."""
    if given is not None:
        return given
    for folder in usual:
        if folder.is_dir():
            return folder
    raise GroundTruthError(f"the documents are not in {str(usual[0])!r}: give their folder with --corpus")


def unique_questions(items: Iterable[TokenLevelGroundTruth], notes: ImportNotes) -> list[TokenLevelGroundTruth]:
    """Return the items with unique ids and spans; every change is noted.

    Items with the same id and question are joined. If different questions share an id, the first is kept. A question
    with several ids is kept unchanged.
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
            notes.mend("question asked more than once, merged", f"{query.id} {preview(query.text)}")
            by_id[query.id] = _with_places_once(earlier.query, earlier, item)
        else:
            notes.leave_out("query id used for another question", f"{query.id} {preview(query.text)}")
    return list(by_id.values())


def _with_places_once(query: Query, *items: TokenLevelGroundTruth) -> TokenLevelGroundTruth:
    spans = list(dict.fromkeys(span for item in items for span in item.relevant_spans))
    return TokenLevelGroundTruth(query, spans, unanswerable=not spans and all(item.unanswerable for item in items))


UNPLACED = {
    "not-found": "text that is not in its document",
    "too-short": "text that is not in its document, and too short for a fuzzy search",
    "ambiguous": "text that is at several places of its document, none of them the stated one",
}
"""The note for each reason of the locator."""


class Placer:
    """Locates texts at the stated place, else in another unit or by a search; notes changes and failures."""

    def __init__(self, notes: ImportNotes) -> None:
        self._notes = notes
        self._prepared: tuple[Document, Locator] | None = None

    def place(self, document: Document, start: object, end: object, text: object, where: str) -> CharacterSpan | None:
        """Locate a text in a document; return None if that is impossible.

        ``start``, ``end`` and ``text`` are values of the source, of any type. Without ``end``, the length of the text
        decides.
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
        if (fitting := fitting_unit(document.content, start, end, text)) is not None:
            change = f"{where}: [{start}, {after}) is [{fitting.start}, {fitting.end})"
            self._notes.mend(f"{fitting.unit}, converted to code points", change)
            return document.span(fitting.start, fitting.end)
        # Sources mostly list the references to a document together, and preparing a document is expensive.
        if self._prepared is None or self._prepared[0] is not document:
            self._prepared = document, Locator([document])
        found = self._prepared[1].locate(text, hint=Hint(position=max(0, start)))
        if not isinstance(found, Located):
            missing = f"{where}: {preview(text)} at [{start}, {after}) of {document.id!r}"
            self._notes.leave_out(UNPLACED.get(found.reason, found.reason), missing)
            return None
        kind = "text found at another place" if found.how == "exact" else "text found in other words or spacing"
        self._notes.mend(kind, f"{where}: [{start}, {after}) is [{found.span.start}, {found.span.end})")
        return found.span
