"""Documents and the corpus they form."""

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

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
    """One text with its id; the content is kept exactly as read, the metadata is copied, one level deep.

    ``path`` is the file it was read from, if any, and ``box_map`` where its words are on its pages, as
    ``rag_eval.documents.boxes.pack`` gives it or a function that fetches it; neither counts for equality. Raises
    ``ConfigurationError`` when the id or the content is not a str, and ``TextEncodingError`` when one cannot be written
    as UTF-8.
    """

    id: DocumentId
    content: str
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    path: Path | None = field(default=None, compare=False)
    box_map: bytes | Callable[[], bytes] = field(default=b"", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise ConfigurationError(f"a document has the id {preview(repr(self.id))}: give a str, such as 'guide.md'")
        if not isinstance(self.content, str):
            raise content_fault(f"document {self.id!r}", self.content)
        encode_utf8(self.id, f"the document id {self.id!r}", "rename the file, its name is not UTF-8")
        encode_utf8(self.content, f"document {self.id!r}")
        object.__setattr__(self, "metadata", dict(self.metadata))

    def span(self, start: int, end: int) -> CharacterSpan:
        """Return a span with its text; raises ``InvalidSpanError``, past the end ``SpanMismatchError``."""
        check_bounds(self.id, start, end)
        if end > len(self.content):
            raise SpanMismatchError(
                f"the span [{start}, {end}) reaches past the end of {self.id!r}, "
                f"which has {len(self.content)} characters"
            )
        return CharacterSpan(self.id, start, end, self.content[start:end])

    @property
    def places(self) -> list[tuple[int, str]]:
        """Where pages, cells or other elements begin, and their names, in order; none where the loader told none."""
        stated = self.metadata.get(PLACES)
        # The key may be somebody's own.
        pairs = (
            [place for place in stated if isinstance(place, list | tuple)] if isinstance(stated, list | tuple) else []
        )
        return [(place[0], str(place[1])) for place in pairs if len(place) == 2 and isinstance(place[0], int)]

    def place_at(self, character: int) -> str | None:
        """Return the page, cell or other element that a character is in; None where the loader told none."""
        places = self.places
        number = bisect_right(places, character, key=itemgetter(0)) - 1
        return places[number][1] if number >= 0 else None

    def boxes(self, start: int, end: int) -> "list[Box]":
        """Return where on its pages the text at ``[start, end)`` is, a box for each line; none where none are known."""
        from rag_eval.documents.boxes import boxes_at

        packed = self.box_map if isinstance(self.box_map, bytes) else self.box_map()
        try:
            return boxes_at(packed, start, end) if packed else []
        except ValueError:
            return []  # whoever wrote it, it is no map

    def place_of(self, start: int, end: int) -> str | None:
        """Return the page, cell or other element that ``[start, end)`` is in, or the first and the last."""
        first, last = self.place_at(start), self.place_at(max(start, end - 1))
        return first if first == last else f"{first} to {last}"

    def chunk_at(self, start: int, end: int, metadata: Mapping[str, object] | None = None) -> PositionAwareChunk:
        """Return the chunk that is the text at ``[start, end)``; the place is not checked."""
        content = self.content[start:end]
        return PositionAwareChunk(generate_pa_chunk_id(content), content, self.id, start, end, metadata or {})

    def check_span(self, span: CharacterSpan) -> None:
        """Raise ``SpanMismatchError`` unless this document has the span, with its text where that is known."""
        if span.doc_id != self.id:
            raise SpanMismatchError(
                f"the span [{span.start}, {span.end}) is of {span.doc_id!r}, this document is {self.id!r}"
            )
        if not span.text:
            self.span(span.start, span.end)
            return
        text = self.content[span.start : span.end]
        if text != span.text:
            has = preview(text) if text else f"{len(self.content)} characters and nothing"
            fitting = fitting_unit(self.content, span.start, span.end, span.text)
            raise SpanMismatchError(
                f"{self.id!r} has {has} at [{span.start}, {span.end}), the span says {preview(span.text)}: "
                f"{fitting or 'the document or the span has changed'}"
            )


class LeftOutWarning(UserWarning):
    """Files of a corpus of which no text can be made were left out."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The documents of one evaluation, in a fixed order. The metadata is copied, one level deep.

    ``base_path`` is the folder they were read from, if any, and ``left_out`` says of files in it, by name, why no text
    could be made of them; neither counts for equality. Raises ``ConfigurationError`` on what is no ``Document``,
    ``EmptyCorpusError`` without documents and ``DuplicateDocumentError`` when two share an id.
    """

    documents: Sequence[Document]
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)
    base_path: Path | None = field(default=None, compare=False)
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "documents", tuple(self.documents))
        object.__setattr__(self, "metadata", dict(self.metadata))
        if not self.documents:
            raise EmptyCorpusError("the corpus has no documents: give it at least one")
        seen: set[DocumentId] = set()
        for document in self.documents:
            if not isinstance(document, Document):
                raise ConfigurationError(f"the corpus has {preview(repr(document))} as a document: give Document(…)")
            if document.id in seen:
                raise DuplicateDocumentError(f"two documents have the id {document.id!r}: give each its own")
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
        """Read every file that ``glob``, or one of several, matches below ``folder``, sorted by id.

        A document's id is its POSIX path relative to the folder. HTML, Word, notebooks and PDF are loaded as text, and
        left out with a ``LeftOutWarning`` where that cannot be; ``loaders`` by suffix or pattern, such as ``{".pdf":
        MyLoader()}``, take the place of the built-in ones, and ``load`` has one read a file, by default always anew.
        All others are read as UTF-8 and nothing is normalised: line ends and a byte-order mark stay as they are. ``*``
        and ``**`` match hidden files and folders too (``.git/notes.md``). A link to a file of the folder is read like a
        file, under the link's own path; one that leads out of it is refused, unless ``RAG_EVAL_FOLLOW_LINKS`` is set;
        ``**`` does not enter a folder that is a link. Raises ``CorpusFolderError``, ``EmptyCorpusError``,
        ``TextEncodingError``, ``CorpusError`` on a file or a folder that cannot be read, or ``ConfigurationError`` on a
        pattern that is none.
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
    """The documents of a corpus by id, which can tell why a file of its folder is none of them."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__((document.id, document) for document in corpus)
        self._corpus = corpus

    def absence(self, name: str) -> str | None:
        """Say why a file of the corpus folder is no document; None where the folder has no such file."""
        if (reason := self._corpus.left_out.get(name)) is not None:
            return f"was left out: {reason}"
        folder, path = self._corpus.base_path, PurePosixPath(name)
        with suppress(OSError, ValueError):  # names that no file can have
            if folder and not path.is_absolute() and ".." not in path.parts and (folder / path).is_file():
                glob: Any = self._corpus.metadata.get("glob")
                patterns = repr(glob) if isinstance(glob, str) else ", ".join(map(repr, glob or ()))
                return (
                    f"is in the corpus folder but does not match {patterns}: add its pattern to the glob of the "
                    "benchmark file, or give --glob; --corpus benchmark.yaml takes the glob of that file"
                )
        return None


Documents = Iterable[Document] | Mapping[str, Document]
"""Documents, or what has them by id, which may read each from the disk when it is asked for."""


def by_id(documents: Documents) -> Mapping[str, Document]:
    """Return the documents by id."""
    return documents if isinstance(documents, Mapping) else {document.id: document for document in documents}


def check_corpus(corpus: object) -> None:
    """Raise ``ConfigurationError`` unless it is a corpus."""
    if not isinstance(corpus, Corpus):
        raise ConfigurationError(f"the corpus is {preview(repr(corpus))}: give Corpus.from_folder(…), or a Corpus")
