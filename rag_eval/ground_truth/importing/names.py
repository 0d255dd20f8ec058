"""Document ids of other people as file names."""

import unicodedata

from rag_eval.errors import GroundTruthError, preview
from rag_eval.ground_truth.importing.result import ImportNotes
from rag_eval.types.ids import DocumentId, text_sha256

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

    def name_for(self, doc_id: str) -> DocumentId:
        """The name of a document's file; raises ``GroundTruthError`` on an id that leads out of the folder."""
        refuse_traversal(doc_id)
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
