"""What a chunker is, and what the chunkers of this library share."""

from abc import ABC, abstractmethod
from typing import Annotated, Protocol, runtime_checkable

from pydantic import Field

from rag_eval.errors import ConfigurationError
from rag_eval.parts.definition import fields_of
from rag_eval.parts.live import object_name
from rag_eval.parts.part_settings import Name
from rag_eval.types.chunks import PositionAwareChunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import generate_pa_chunk_id

Cut = tuple[int, int]
"""``[start, end)`` of one chunk, in code points of the text."""


class _Named(Protocol):
    @property
    def name(self) -> str:
        """The chunker and its settings: two chunkers that cut differently have different names.

        Unless a class that derives from this one has its own, that is the class and its attributes.
        """
        return object_name(self)


@runtime_checkable
class Chunker(_Named, Protocol):
    """Cuts a text into pieces; enough for chunk-level evaluation."""

    def chunk(self, text: str) -> list[str]:
        """Return the pieces in reading order; none for an empty text."""


@runtime_checkable
class PositionAwareChunker(_Named, Protocol):
    """Cuts a document into pieces that know their place; needed for token-level evaluation."""

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks in reading order, with ``doc.content[chunk.start:chunk.end] == chunk.content`` for each."""


class BuiltInChunker(ABC):
    """A chunker that decides where to cut and slices the source there, so that a place can never be wrong.

    Subclasses are parts: their fields are their settings, and make the name.
    """

    @property
    def name(self) -> str:
        """The class and its settings, leaving out lists that were not changed."""
        settings = {name: (getattr(self, name), setting.default) for name, setting in fields_of(type(self)).items()}
        shown = [
            f"{name}={getattr(value, 'name', value)}"
            for name, (value, default) in settings.items()
            if not isinstance(value, tuple) or value != default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @abstractmethod
    def cuts(self, text: str) -> list[Cut]:
        """Return the places of the chunks: starts strictly increasing, no cut empty."""

    def chunk(self, text: str) -> list[str]:
        """Return the chunks' texts in reading order."""
        return [text[start:end] for start, end in self.cuts(text)]

    def chunk_with_positions(self, doc: Document) -> list[PositionAwareChunk]:
        """Return the chunks in reading order with their places."""
        content, doc_id, chunks = doc.content, doc.id, []
        for start, end in self.cuts(content):  # a million times: Document.chunk_at would cost a tenth more
            piece = content[start:end]
            chunks.append(PositionAwareChunk(generate_pa_chunk_id(piece), piece, doc_id, start, end))
        return chunks


Encoding = Annotated[Name, Field(description="The tiktoken encoding that counts tokens.")]


def check_overlap(size_name: str, size: int, overlap: int) -> None:
    """Raise ``ConfigurationError`` unless the overlap is smaller than the size."""
    if overlap >= size:
        raise ConfigurationError(
            f"chunk_overlap is {overlap} and {size_name} is {size}: the overlap must be smaller, or no chunk gets ahead"
        )
