"""Chunkers of other libraries and of users: what they give, read as pieces of text with the places they claim.

Objects are told apart by what they can do; no chunking library is imported.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from rag_eval.chunking.chunker import BuiltInChunker, Chunker
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin, signature_of
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document

ACCEPTED = (
    "an object with chunk(text) or chunk_with_positions(document), a LangChain text splitter (split_text), "
    "a LlamaIndex node parser (get_nodes_from_documents), a Haystack splitter (run), a chonkie chunker (chunk) "
    "or a function from a text to a list of strings"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that a chunker gave, and the place that it claims for it, if any."""

    text: str
    claimed_start: int | None = None
    claimed_end: int | None = None

    @property
    def has_claim(self) -> bool:
        return self.claimed_start is not None

    def claim_holds(self, source: str) -> bool:
        """Whether the source has this text at exactly the claimed place."""
        start, end = self.claimed_start, self.claimed_end
        if start is None or start < 0 or not self.text or (end is not None and end - start != len(self.text)):
            return False
        return source.startswith(self.text, start)


class ForeignChunker(Foreign):
    """A chunker that is not built in, as one of ours: with a name, and strings as its chunks.

    Without a name of its own it is called by its class and settings, a function by its module and its own name; give
    ``name`` where that does not tell two apart (lambdas, closures). Raises ``ConfigurationError`` when the object is no
    chunker.
    """

    kind = "chunker"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        call = None if inspect.isclass(source) else _call(source)
        if call is None:
            raise ConfigurationError(f"{preview(repr(source))} is not a chunker: give {ACCEPTED}")
        self._call: Callable[[str], Any] = call

    def chunk(self, text: str) -> list[str]:
        """Return the texts of the pieces in the order given."""
        return [piece.text for piece in self.pieces(text)]

    def pieces(self, text: str) -> list[Piece]:
        """Return what the chunker gives for the text; raises ``ConfigurationError`` unless that is a list of chunks."""
        given = self.ask(self._call, text)
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ConfigurationError(f"{self.name} gave {preview(repr(given))}: a chunker must give a list of chunks")
        return [self._read(item) for item in given]

    def _read(self, item: object) -> Piece:
        if isinstance(item, str | Piece):
            return Piece(item) if isinstance(item, str) else item
        for text_field in ("text", "page_content", "content"):
            text = getattr(item, text_field, None)
            if isinstance(text, str):
                recorded = [getattr(item, name, None) for name in ("metadata", "meta")]
                claims = [one.get(key) for one in recorded if isinstance(one, Mapping) for key in _RECORDED]
                start = next(filter(_is_place, [getattr(item, "start_index", None), *claims]), None)
                end = getattr(item, "end_index", None)
                return Piece(text, start, end if _is_place(end) else None) if _is_place(start) else Piece(text)
        raise ConfigurationError(
            f"{self.name} gave {preview(repr(item))}: a chunk must be a string or have text or page_content"
        )


class ForeignPositionAwareChunker(Foreign):
    """A chunker that is not built in and knows where its chunks are, which is checked."""

    kind = "chunker"

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks; raises ``ConfigurationError`` on anything else, ``SpanMismatchError`` on a wrong place."""
        given = self.ask(self.source.chunk_with_positions, doc)
        chunks = list(given) if isinstance(given, Iterable) else [given]
        for chunk in chunks:
            if not isinstance(chunk, PositionAwareChunk):
                raise ConfigurationError(f"{self.name} gave {preview(repr(chunk))}: give a list of PositionAwareChunk")
            doc.check_span(chunk.to_span())
        return chunks


def take_chunker(source: Any, origin: Origin | None = None) -> Foreign:
    """Return an object as a chunker part; raises ``ConfigurationError`` when it is no chunker."""
    if not inspect.isclass(source) and callable(getattr(source, "chunk_with_positions", None)):
        return ForeignPositionAwareChunker(source, origin)
    return ForeignChunker(source, origin)


def as_chunker(source: object, name: str | None = None) -> Chunker:
    """Return the object as a ``Chunker``: itself where it is one, else a ``ForeignChunker`` around it.

    Accepted are objects with ``chunk(text)``, splitters of LangChain, LlamaIndex, Haystack, chonkie and semchunk, and
    functions from a text to a list of strings. ``name`` replaces the name found.
    Raises ``ConfigurationError`` for anything else.
    """
    return source if name is None and isinstance(source, BuiltInChunker) else foreign_chunker(source, name)


def foreign_chunker(source: object, name: str | None = None) -> ForeignChunker:
    """Wrap an object as a ``ForeignChunker``, or give a wrapped one the name; raises ``ConfigurationError``."""
    if isinstance(source, ForeignChunker):
        return source if name is None else ForeignChunker(source.source, source.origin, name)
    return ForeignChunker(source, None, name)


_RECORDED = ("start_index", "split_idx_start")
"""Where the metadata of LangChain and of Haystack has the start of a chunk."""


def _call(source: Any) -> Callable[[str], Any] | None:
    """How the object is asked for its pieces; with places where it can give them and they can be trusted."""
    if callable(getattr(source, "get_nodes_from_documents", None)):
        return lambda text: _llama_index_nodes(source, text)
    if callable(getattr(source, "split_text", None)):
        if getattr(source, "_add_start_index", False) and callable(getattr(source, "create_documents", None)):
            return lambda text: source.create_documents([text])
        return source.split_text  # type: ignore[no-any-return]  # a method of another library
    if hasattr(source, "__haystack_input__"):
        return lambda text: _haystack_documents(source, text)
    if callable(getattr(source, "chunk", None)):
        return source.chunk  # type: ignore[no-any-return]  # a method of another library
    if not callable(source):
        return None
    signature = signature_of(source)
    if signature is not None and "offsets" in signature.parameters:  # semchunk
        return lambda text: [Piece(one, *place) for one, place in zip(*source(text, offsets=True), strict=True)]
    return source  # type: ignore[no-any-return]  # a function


def _llama_index_nodes(source: Any, text: str) -> list[str]:
    """The texts alone: the places that LlamaIndex claims are those of another copy where a text repeats."""
    document = importlib.import_module("llama_index.core.schema").Document(text=text)
    return [node.text for node in source.get_nodes_from_documents([document])]


def _haystack_documents(source: Any, text: str) -> Any:
    if callable(getattr(source, "warm_up", None)):
        source.warm_up()
    document = importlib.import_module("haystack").Document(content=text)
    return source.run(documents=[document])["documents"]


def _is_place(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
