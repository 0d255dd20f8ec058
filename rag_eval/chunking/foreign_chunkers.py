"""Use chunkers of users and of other libraries.

Objects are recognised by their methods. No chunking library is imported before one of its objects is used.
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
    """A text that a chunker returned, and the position that it claims for it, if any."""

    text: str
    claimed_start: int | None = None
    claimed_end: int | None = None

    def claim_holds(self, source: str) -> bool:
        """Return whether the source has this text at the claimed position."""
        start, end = self.claimed_start, self.claimed_end
        if start is None or start < 0 or not self.text or (end is not None and end - start != len(self.text)):
            return False
        return source.startswith(self.text, start)


def _has(*methods: str) -> Callable[[object], bool]:
    return lambda source: all(callable(getattr(source, method, None)) for method in methods)


def _adds_start_index(source: object) -> bool:
    return bool(getattr(source, "_add_start_index", False)) and _has("split_text", "create_documents")(source)


def _takes_offsets(source: object) -> bool:
    signature = signature_of(source) if callable(source) else None
    return signature is not None and "offsets" in signature.parameters


def _llama_index_nodes(source: Any, text: str) -> list[str]:
    """Return the texts only, because LlamaIndex states the wrong position if a text repeats."""
    document = importlib.import_module("llama_index.core.schema").Document(text=text)
    return [node.text for node in source.get_nodes_from_documents([document])]


def _haystack_documents(source: Any, text: str) -> Any:
    if callable(getattr(source, "warm_up", None)):
        source.warm_up()
    document = importlib.import_module("haystack").Document(content=text)
    return source.run(documents=[document])["documents"]


def _semchunk_pieces(source: Any, text: str) -> list[Piece]:
    return [Piece(piece, *offsets) for piece, offsets in zip(*source(text, offsets=True), strict=True)]


SHAPES: tuple[tuple[Callable[[object], bool], Callable[[Any, str], Any]], ...] = (
    (_has("get_nodes_from_documents"), _llama_index_nodes),
    (_adds_start_index, lambda source, text: source.create_documents([text])),  # LangChain
    (_has("split_text"), lambda source, text: source.split_text(text)),  # LangChain
    (lambda source: hasattr(source, "__haystack_input__"), _haystack_documents),
    (_has("chunk"), lambda source, text: source.chunk(text)),  # chonkie, and users' objects
    (_takes_offsets, _semchunk_pieces),
    (callable, lambda source, text: source(text)),
)
"""How to recognise an object, and how to get chunks from it. The first match applies."""

_RECORDED = ("start_index", "split_idx_start")
"""The metadata keys in which LangChain and Haystack record the start of a chunk."""


class ForeignChunker(Foreign):
    """A chunker that is not built in, as a part.

    Objects are named by their class and settings, and functions by their module and name. Pass ``name`` for lambdas and
    closures. Raises ``ConfigurationError`` if the object is not a chunker.
    """

    kind = "chunker"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        shape = None if inspect.isclass(source) else next((call for fits, call in SHAPES if fits(source)), None)
        if shape is None:
            raise ConfigurationError(f"{preview(repr(source))} is not a chunker: give {ACCEPTED}")
        self._call = shape

    def chunk(self, text: str) -> list[str]:
        """Return the texts of the pieces in the order of the chunker."""
        return [piece.text for piece in self.pieces(text)]

    def pieces(self, text: str) -> list[Piece]:
        """Return the pieces of a text. Raises ``ConfigurationError`` if the chunker returns no list of chunks."""
        chunks = self.ask(self._call, self.source, text)
        if isinstance(chunks, str | bytes) or not isinstance(chunks, Iterable):
            raise ConfigurationError(
                f"{self.name} returned {preview(repr(chunks))}: a chunker must return a list of chunks"
            )
        return [self._piece(chunk) for chunk in chunks]

    def _piece(self, chunk: object) -> Piece:
        if isinstance(chunk, str | Piece):
            return Piece(chunk) if isinstance(chunk, str) else chunk
        for text_field in ("text", "page_content", "content"):
            text = getattr(chunk, text_field, None)
            if isinstance(text, str):
                records = [getattr(chunk, name, None) for name in ("metadata", "meta")]
                claims = [record.get(key) for record in records if isinstance(record, Mapping) for key in _RECORDED]
                start = next(filter(_is_offset, [getattr(chunk, "start_index", None), *claims]), None)
                end = getattr(chunk, "end_index", None)
                return Piece(text, start, end if _is_offset(end) and start is not None else None)
        raise ConfigurationError(
            f"{self.name} returned {preview(repr(chunk))}: a chunk must be a string or have text or page_content"
        )


def _is_offset(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


class ForeignPositionAwareChunker(Foreign):
    """A chunker that is not built in and returns chunks with positions, which are checked."""

    kind = "chunker"

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks.

        Raises:
            ConfigurationError: The chunker returns something else.
            SpanMismatchError: The document has a different text at the position of a chunk.
        """
        returned = self.ask(self.source.chunk_with_positions, doc)
        chunks = list(returned) if isinstance(returned, Iterable) else [returned]
        for chunk in chunks:
            if not isinstance(chunk, PositionAwareChunk):
                raise ConfigurationError(
                    f"{self.name} returned {preview(repr(chunk))}: return a list of PositionAwareChunk"
                )
            doc.check_span(chunk.to_span())
        return chunks


def take_chunker(source: Any, origin: Origin | None = None) -> Foreign:
    """Return an object as a chunker part. Raises ``ConfigurationError`` if it is not a chunker."""
    if not inspect.isclass(source) and callable(getattr(source, "chunk_with_positions", None)):
        return ForeignPositionAwareChunker(source, origin)
    return ForeignChunker(source, origin)


def as_chunker(source: object, name: str | None = None) -> Chunker:
    r"""Return an object as a ``Chunker``. Built-in chunkers are returned unchanged.

    ::

        as_chunker(str.splitlines).chunk("one\ntwo")  # ['one', 'two']

    Args:
        source: An object with ``chunk(text)``, a splitter of LangChain, LlamaIndex, Haystack, chonkie or semchunk, or a
            function from a text to a list of strings.
        name: Replaces the name of the object.

    Raises:
        ConfigurationError: The object is not a chunker.
    """
    return source if name is None and isinstance(source, BuiltInChunker) else foreign_chunker(source, name)


def foreign_chunker(source: object, name: str | None = None) -> ForeignChunker:
    """Return an object as a ``ForeignChunker``. Raises ``ConfigurationError`` if it is not a chunker."""
    if isinstance(source, ForeignChunker):
        return source if name is None else ForeignChunker(source.source, source.origin, name)
    return ForeignChunker(source, None, name)
