"""The checks that chunkers make on their settings."""

from abc import ABC, abstractmethod
from dataclasses import MISSING, fields
from typing import Protocol, runtime_checkable

from rag_eval.errors import ConfigurationError
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import generate_pa_chunk_id

Cut = tuple[int, int]
"""``[start, end)`` of one chunk, in code points of the text."""


@runtime_checkable
class Chunker(Protocol):
    """Cuts a text into pieces; enough for chunk-level evaluation."""

    @property
    def name(self) -> str:
        """The chunker and its settings: two chunkers that cut differently have different names."""

    def chunk(self, text: str) -> list[str]:
        """The pieces in reading order; none for an empty text."""


@runtime_checkable
class PositionAwareChunker(Protocol):
    """Cuts a document into pieces that know their place; needed for token-level evaluation."""

    @property
    def name(self) -> str:
        """The chunker and its settings: two chunkers that cut differently have different names."""

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """The chunks in reading order, with ``doc.content[chunk.start:chunk.end] == chunk.content`` for each."""


class BuiltInChunker(ABC):
    """A chunker that decides where to cut and slices the source there, so that a place can never be wrong.

    Subclasses are frozen dataclasses: their fields are their settings, and make the name.
    """

    @property
    def name(self) -> str:
        """The class and its settings, leaving out lists that were not changed."""
        return f"{type(self).__name__}({', '.join(self._settings())})"

    @abstractmethod
    def cuts(self, text: str) -> list[Cut]:
        """Where the chunks stand: starts strictly increasing, no cut empty."""

    def chunk(self, text: str) -> list[str]:
        """The chunks' texts in reading order."""
        return [text[start:end] for start, end in self.cuts(text)]

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """The chunks in reading order with their places."""
        content, doc_id = doc.content, doc.id
        chunks = []
        for start, end in self.cuts(content):
            piece = content[start:end]
            chunks.append(PositionAwareChunk(generate_pa_chunk_id(piece), piece, doc_id, start, end))
        return chunks

    def _settings(self) -> list[str]:
        parts = []
        for setting in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            value = getattr(self, setting.name)
            unchanged = setting.default is not MISSING and value == setting.default
            if isinstance(value, tuple) and unchanged:
                continue
            parts.append(f"{setting.name}={getattr(value, 'name', value)}")
        return parts


def check_at_least(setting: str, value: object, minimum: int) -> None:
    """Raise ``ConfigurationError`` unless the value is a whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigurationError(f"{setting} is {value!r}: give a whole number of at least {minimum}")


def check_size_and_overlap(size_name: str, size: int, overlap: int) -> None:
    """Raise ``ConfigurationError`` unless both are integers, the size at least 1 and the overlap in [0, size)."""
    check_at_least(size_name, size, 1)
    check_at_least("chunk_overlap", overlap, 0)
    if overlap >= size:
        raise ConfigurationError(
            f"chunk_overlap is {overlap} and {size_name} is {size}: the overlap must be smaller, or no chunk gets ahead"
        )
