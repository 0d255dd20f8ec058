"""Chunkers from other libraries: what they give, read as pieces of text with the places they claim.

Objects are told apart by what they can do; no chunking library is imported.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from rag_eval.chunking.chunker import BuiltInChunker, Chunker
from rag_eval.errors import ConfigurationError, preview

ACCEPTED = (
    "an object with name and chunk(text), a LangChain text splitter (split_text), a chonkie chunker (chunk) "
    "or a function from a text to a list of strings"
)
_SIZES = ("chunk_size", "chunk_overlap", "max_chunk_size", "tokens_per_chunk", "size", "overlap")


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that a chunker gave, and the place that it claims for it, if any."""

    text: str
    claimed_start: int | None = None
    claimed_end: int | None = None

    @property
    def has_claim(self) -> bool:
        """Whether a place is claimed at all."""
        return self.claimed_start is not None

    def claim_holds(self, source: str) -> bool:
        """Whether the source has this text at exactly the claimed place."""
        start, end = self.claimed_start, self.claimed_end
        if start is None or start < 0 or not self.text or (end is not None and end - start != len(self.text)):
            return False
        return source.startswith(self.text, start)


@dataclass(frozen=True)
class ForeignChunker:
    """A chunker of another library as one of ours: with a name, and strings as its chunks.

    The name is its class with its sizes and, where it has more settings, a digest of them:
    ``TokenChunker(chunk_size=400, chunk_overlap=0, settings=1f0c9a7e)``. A function is named by its module and its own
    name; give ``label`` where that does not tell two apart (lambdas, closures).
    """

    source: object
    label: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.source, type) or _call(self.source) is None:
            raise ConfigurationError(f"{preview(repr(self.source))} is not a chunker: give {ACCEPTED}")

    @property
    def name(self) -> str:
        """The label, or what the source calls itself, or its class and settings."""
        own = getattr(self.source, "name", None)
        return self.label or (own if isinstance(own, str) and own else foreign_name(self.source))

    def chunk(self, text: str) -> list[str]:
        """Return the texts of the pieces in the order given."""
        return [piece.text for piece in self.pieces(text)]

    def pieces(self, text: str) -> list[Piece]:
        """Return what the chunker gives for the text; raises ``ConfigurationError`` unless that is a list of chunks."""
        call = _call(self.source)
        given = call(text) if call else None
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise ConfigurationError(f"{self.name} gave {preview(repr(given))}: a chunker must give a list of chunks")
        return [self._read(item) for item in given]

    def _read(self, item: object) -> Piece:
        if isinstance(item, str):
            return Piece(item)
        for text_field in ("text", "page_content", "content"):
            text = getattr(item, text_field, None)
            if isinstance(text, str):
                metadata = getattr(item, "metadata", None)
                recorded = metadata.get("start_index") if isinstance(metadata, dict) else None
                start = getattr(item, "start_index", recorded)
                end = getattr(item, "end_index", None)
                return Piece(text, start, end if _is_place(end) else None) if _is_place(start) else Piece(text)
        raise ConfigurationError(
            f"{self.name} gave {preview(repr(item))}: a chunk must be a string or have text or page_content"
        )


def as_chunker(source: object, name: str | None = None) -> Chunker:
    """Return the object as a ``Chunker``: itself where it is one, else a ``ForeignChunker`` around it.

    Accepted are objects with ``name`` and ``chunk(text)``, LangChain text splitters, chonkie chunkers and functions
    from a text to a list of strings. ``name`` replaces the name found.
    Raises ``ConfigurationError`` for anything else.
    """
    return source if name is None and isinstance(source, BuiltInChunker) else foreign_chunker(source, name)


def foreign_chunker(source: object, name: str | None = None) -> ForeignChunker:
    """Wrap an object as a ``ForeignChunker``; one that is wrapped already keeps its places and takes the name.

    Raises ``ConfigurationError`` when the object is not a chunker.
    """
    if isinstance(source, ForeignChunker):
        return source if name is None else replace(source, label=name)
    return ForeignChunker(source, name)


def foreign_name(source: object) -> str:
    """Name an object by its class and settings, or a function by its module and name."""
    if isinstance(source, functools.partial):
        bound = [repr(value) for value in source.args] + [f"{key}={value!r}" for key, value in source.keywords.items()]
        return f"{foreign_name(source.func)}({', '.join(bound)})"
    owner = getattr(source, "__self__", None)
    if owner is not None and hasattr(owner, "__dict__") and hasattr(source, "__name__"):
        return f"{foreign_name(owner)}.{source.__name__}"
    if hasattr(source, "__qualname__"):
        module = getattr(source, "__module__", None)
        return f"{module}.{source.__qualname__}" if module else str(source.__qualname__)
    settings = {key.lstrip("_"): value for key, value in sorted(getattr(source, "__dict__", {}).items())}
    shown = [f"{key}={settings.pop(key)}" for key in _SIZES if isinstance(settings.get(key), int | float)]
    described = [f"{key}={text}" for key, value in settings.items() if (text := _describe(value))]
    if described:
        shown.append(f"settings={hashlib.sha256('; '.join(described).encode('utf-8', 'replace')).hexdigest()[:8]}")
    return f"{type(source).__name__}({', '.join(shown)})"


def _describe(value: object) -> str:
    """Return a setting as text that is the same in every process; empty where there is no such text."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{getattr(value, '__module__', '')}.{value.__qualname__}"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text or isinstance(value, set | frozenset) else text


def _call(source: object) -> Callable[[str], object] | None:
    """How the object is asked for its pieces; with places where it can give them."""
    ways: tuple[Any, ...] = (getattr(source, "split_text", None), getattr(source, "chunk", None), source)
    if callable(ways[0]) and getattr(source, "_add_start_index", False):
        create_documents: Any = getattr(source, "create_documents", None)
        if callable(create_documents):
            return lambda text: create_documents([text])
    return next(filter(callable, ways), None)


def _is_place(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
