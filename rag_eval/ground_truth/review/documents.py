"""The documents as they are on disk at this moment."""

from dataclasses import dataclass
from pathlib import Path

from rag_eval.errors import CorpusError
from rag_eval.files import matching_files, read_text
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId, text_sha256


@dataclass(frozen=True, slots=True)
class SeenDocument:
    """A document, and the sha256 that tells whether somebody else saw the same."""

    document: Document
    digest: str


class DocumentFolder:
    """The documents of a folder, by id; each is read again when its file has changed."""

    def __init__(self, folder: Path, glob: str) -> None:
        """List the files; raises what ``Corpus.from_folder`` raises for a folder that cannot be used."""
        self._paths = {DocumentId(path.relative_to(folder).as_posix()): path for path in matching_files(folder, glob)}
        self._seen: dict[DocumentId, tuple[tuple[int, int], SeenDocument]] = {}

    @property
    def ids(self) -> list[DocumentId]:
        """The ids, sorted."""
        return sorted(self._paths)

    def get(self, doc_id: str) -> SeenDocument | None:
        """The document as it is now; None when the folder has none of this id, or it cannot be read any more."""
        known = DocumentId(doc_id)
        path = self._paths.get(known)
        if path is None:
            return None
        try:
            status = path.stat()
            state = (status.st_mtime_ns, status.st_size)
            if known not in self._seen or self._seen[known][0] != state:
                text = read_text(path)
                self._seen[known] = state, SeenDocument(Document(known, text), text_sha256(text))
        except (OSError, CorpusError):
            return None
        return self._seen[known][1]
