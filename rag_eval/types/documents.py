"""Define documents and the corpus that they form."""

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from rag_eval.documents import PLACES
from rag_eval.errors import ConfigurationError, DuplicateDocumentError, EmptyCorpusError, SpanMismatchError, preview
from rag_eval.storage.files import matching_files
from rag_eval.types.chunks import CharacterSpan, PositionAwareChunk, check_bounds, content_fault
from rag_eval.types.ids import DocumentId, encode_utf8, generate_pa_chunk_id
from rag_eval.types.offsets import fitting_unit

if TYPE_CHECKING:
    from rag_eval.documents.boxes import Box
    from rag_eval.documents.reading import Load


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id. The content is kept exactly as read.

    ::

        document = Document("guide.md", "The ferry leaves at nine.")
        document.span(4, 9).text  # 'ferry'

    Args:
        id: The id, for files their path in the corpus folder.
        content: The text.
        metadata: Anything else, copied one level deep.
        path: The file that it was read from. Ignored by comparisons.
        box_map: The positions of words on their pages, as packed by ``rag_eval.documents.boxes.pack``, or a function
            that returns them. Ignored by comparisons.

    Raises:
        ConfigurationError: The id or the content is not a str.
        TextEncodingError: The id or the content cannot be encoded as UTF-8.
    """

    id: DocumentId
    content: str
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    path: Path | None = field(default=None, compare=False)
    box_map: bytes | Callable[[], bytes] = field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise ConfigurationError(f"a document has the id {preview(repr(self.id))}: use a str, such as 'guide.md'")
        if not isinstance(self.content, str):
            raise content_fault(f"document {self.id!r}", self.content)
        encode_utf8(self.id, f"the document id {self.id!r}", "rename the file, its name is not UTF-8")
        encode_utf8(self.content, f"document {self.id!r}")
        object.__setattr__(self, "metadata", dict(self.metadata))

    def span(self, start: int, end: int) -> CharacterSpan:
        """Return the span ``[start, end)`` with its text.

        Raises:
            InvalidSpanError: The bounds are not integers with ``0 <= start < end``.
            SpanMismatchError: The span exceeds the document.
        """
        check_bounds(self.id, start, end)
        if end > len(self.content):
            raise SpanMismatchError(
                f"the span [{start}, {end}) reaches past the end of {self.id!r}, "
                f"which has {len(self.content)} characters"
            )
        return CharacterSpan(self.id, start, end, self.content[start:end])

    @property
    def places(self) -> list[tuple[int, str]]:
        """Offsets and names of pages, cells or other elements, in order. Empty if the loader gave none."""
        stated = self.metadata.get(PLACES)
        # User metadata may have the same key.
        pairs = stated if isinstance(stated, list | tuple) else ()
        return [
            (pair[0], str(pair[1]))
            for pair in pairs
            if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], int)
        ]

    def place_at(self, character: int) -> str | None:
        """Return the name of the page, cell or other element that contains a character, or None."""
        places = self.places
        number = bisect_right(places, character, key=itemgetter(0)) - 1
        return places[number][1] if number >= 0 else None

    def place_of(self, start: int, end: int) -> str | None:
        """Return the name of the element that contains ``[start, end)``, or of the first and the last one, or None."""
        first, last = self.place_at(start), self.place_at(max(start, end - 1))
        return first if first == last else f"{first} to {last}"

    def boxes(self, start: int, end: int) -> "list[Box]":
        """Return where the text at ``[start, end)`` is on its pages: one box for each line. Empty if unknown."""
        from rag_eval.documents.boxes import boxes_at

        packed = self.box_map if isinstance(self.box_map, bytes) else self.box_map()
        try:
            return boxes_at(packed, start, end) if packed else []
        except ValueError:
            return []  # a damaged map

    def chunk_at(self, start: int, end: int, metadata: Mapping[str, object] | None = None) -> PositionAwareChunk:
        """Return the chunk at ``[start, end)``, without checking the bounds against the document."""
        content = self.content[start:end]
        return PositionAwareChunk(generate_pa_chunk_id(content), content, self.id, start, end, metadata or {})

    def check_span(self, span: CharacterSpan) -> None:
        """Raise ``SpanMismatchError`` if a span is not in this document, or the document has another text there."""
        if span.doc_id != self.id:
            raise SpanMismatchError(
                f"the span [{span.start}, {span.end}) is of {span.doc_id!r}, this document is {self.id!r}"
            )
        if not span.text:
            self.span(span.start, span.end)
            return
        text = self.content[span.start : span.end]
        if text != span.text:
            found = preview(text) if text else f"{len(self.content)} characters and nothing"
            unit = fitting_unit(self.content, span.start, span.end, span.text)
            raise SpanMismatchError(
                f"{self.id!r} has {found} at [{span.start}, {span.end}), the span says {preview(span.text)}: "
                f"{unit or 'the document or the span has changed'}"
            )


class LeftOutWarning(UserWarning):
    """Files of a corpus were left out because no text can be read from them."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of an evaluation, in a fixed order.

    ::

        corpus = Corpus.from_folder("docs", glob=["**/*.md", "**/*.pdf"])

    Args:
        documents: The documents.
        metadata: Anything else, copied one level deep.
        base_path: The folder that they were read from. Ignored by comparisons.
        left_out: The reasons why files were left out, by name. Ignored by comparisons.

    Raises:
        ConfigurationError: An item is not a ``Document``.
        EmptyCorpusError: There are no documents.
        DuplicateDocumentError: Two documents have the same id.
    """

    documents: Sequence[Document]
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    base_path: Path | None = field(default=None, compare=False)
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", tuple(self.documents))
        object.__setattr__(self, "metadata", dict(self.metadata))
        if not self.documents:
            raise EmptyCorpusError("the corpus has no documents: add at least one")
        seen: set[DocumentId] = set()
        for document in self.documents:
            if not isinstance(document, Document):
                raise ConfigurationError(f"the corpus has {preview(repr(document))} as a document: use Document(…)")
            if document.id in seen:
                raise DuplicateDocumentError(f"two documents have the id {document.id!r}: use unique ids")
            seen.add(document.id)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        glob: str | Sequence[str] = "**/*.md",
        loaders: Mapping[str, object] | None = None,
        *,
        load: "Load | None" = None,
    ) -> "Corpus":
        """Read the files of a folder, sorted by id.

        The id of a document is its POSIX path relative to the folder. HTML, Word, notebooks and PDF are converted to
        text; files that cannot be converted are left out with a ``LeftOutWarning``. Other files are read as UTF-8,
        without normalising line ends or a byte-order mark. Hidden files and folders match too. A link is read under its
        own path; if it leads out of the folder, it is an error unless ``RAG_EVAL_FOLLOW_LINKS`` is set. ``**`` does not
        enter linked folders.

        Args:
            folder: The folder.
            glob: The pattern, or several of which one must match.
            loaders: Loaders by suffix or pattern, such as ``{".pdf": MyLoader()}``, that replace the built-in ones.
            load: Runs a loader on the bytes of a file. By default files are always read again; pipelines cache them.

        Raises:
            CorpusFolderError: The folder does not exist.
            EmptyCorpusError: No file matches, or none can be read.
            TextEncodingError: A file is not UTF-8.
            CorpusError: A file or a folder cannot be read.
            ConfigurationError: A pattern or a loader is invalid.
        """
        from rag_eval.documents.reading import LeftOut, Loaders, load_file

        folder, left_out = Path(folder), LeftOut()
        documents = [
            Document(DocumentId(name), loaded.text, loaded.metadata, folder / name, loaded.boxes)
            for name, loaded in left_out.read(folder, matching_files(folder, glob), Loaders(loaders), load or load_file)
        ]
        if left_out and not documents:
            raise EmptyCorpusError(f"no document can be read, {left_out}")
        if left_out:
            warnings.warn(str(left_out), LeftOutWarning, stacklevel=2)
        patterns = glob if isinstance(glob, str) else list(glob)
        return cls(documents, {"folder": folder.name, "glob": patterns}, folder, left_out.sentences)

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)

    def by_id(self) -> "DocumentsById":
        """Return the documents by id."""
        return DocumentsById(self)


class DocumentsById(dict[DocumentId, Document]):
    """The documents of a corpus by id."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__((document.id, document) for document in corpus)
        self._corpus = corpus

    def absence(self, name: str) -> str | None:
        """Explain why a file of the corpus folder is not a document. Return None if there is no such file."""
        if (reason := self._corpus.left_out.get(name)) is not None:
            return f"was left out: {reason}"
        folder, path = self._corpus.base_path, PurePosixPath(name)
        with suppress(OSError, ValueError):  # invalid file names
            if folder and not path.is_absolute() and ".." not in path.parts and (folder / path).is_file():
                glob = self._corpus.metadata.get("glob")
                patterns = ", ".join(map(repr, glob)) if isinstance(glob, list) else repr(glob)
                return (
                    f"is in the corpus folder but does not match {patterns}: add its pattern to the glob of the "
                    "benchmark file, or use --glob; --corpus benchmark.yaml uses the glob of that file"
                )
        return None


Documents = Iterable[Document] | Mapping[str, Document]
"""Documents, or a mapping of ids to documents that may read each one on access."""


def by_id(documents: Documents) -> Mapping[str, Document]:
    """Return the documents by id."""
    return documents if isinstance(documents, Mapping) else {document.id: document for document in documents}


def check_corpus(corpus: object) -> None:
    """Raise ``ConfigurationError`` if the object is not a ``Corpus``."""
    if not isinstance(corpus, Corpus):
        raise ConfigurationError(f"the corpus is {preview(repr(corpus))}: use Corpus.from_folder(…) or Corpus(…)")
