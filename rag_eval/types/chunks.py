"""Spans and chunks: places in documents, and pieces of them with or without a place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rag_eval.errors import ConfigurationError, InvalidSpanError, preview
from rag_eval.types.ids import ChunkId, DocumentId, PositionAwareChunkId
from rag_eval.types.offsets import length_unit


@dataclass(frozen=True, slots=True)
class CharacterSpan:
    """``[start, end)`` of one document and the text there; an empty text says that it is not known.

    An evaluation fills a text that is not known from its corpus. Raises ``InvalidSpanError`` when the span is empty,
    reversed or negative, when its text has another length, or when start and end are not integers.
    """

    doc_id: DocumentId
    start: int
    end: int
    text: str = ""

    def __post_init__(self) -> None:
        check_bounds(self.doc_id, self.start, self.end)
        if type(self.text) is not str:
            raise InvalidSpanError(
                f"the span [{self.start}, {self.end}) of {self.doc_id!r} has the text {preview(repr(self.text))}: "
                "give a str, or leave it out"
            )
        if self.text and len(self.text) != self.end - self.start:
            unit = length_unit(self.text, self.end - self.start)
            advice = f"these are {unit}, count code points" if unit else "correct the numbers or the text"
            raise InvalidSpanError(
                f"the span [{self.start}, {self.end}) of {self.doc_id!r} is {self.length} characters long, "
                f"its text {preview(self.text)} is {len(self.text)}: {advice}"
            )

    @property
    def length(self) -> int:
        """The number of characters (code points)."""
        return self.end - self.start

    def overlaps(self, other: "CharacterSpan") -> bool:
        """Return whether the two share a character; spans that only touch do not."""
        return self.overlap_chars(other) > 0

    def overlap_chars(self, other: "CharacterSpan") -> int:
        """Count the characters that the two share; 0 in different documents."""
        if self.doc_id != other.doc_id:
            return 0
        return max(0, min(self.end, other.end) - max(self.start, other.start))


def check_bounds(doc_id: str, start: int, end: int) -> None:
    """Raise ``InvalidSpanError`` unless both are integers and ``0 <= start < end``."""
    # A type is compared faster than an instance is checked; numpy's integers and bool are other types.
    if type(start) is not int or type(end) is not int:
        raise InvalidSpanError(
            f"the span [{start!r}, {end!r}) of {doc_id!r} has bounds that are not Python integers: use int(…)"
        )
    if not 0 <= start < end:
        raise InvalidSpanError(bounds_fault(doc_id, start, end))


def bounds_fault(doc_id: str, start: int, end: int) -> str:
    """Return what to say of bounds that are not ``0 <= start < end``."""
    return f"the span [{start}, {end}) of {doc_id!r} holds no character: start must be 0 or more and below end"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that does not know its place; used in chunk-level evaluation.

    The metadata is copied, one level deep. Raises ``ConfigurationError`` when the content is not a str.
    """

    id: ChunkId
    content: str
    doc_id: DocumentId
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if type(self.content) is not str:
            raise content_fault(f"chunk {self.id!r} of {self.doc_id!r}", self.content)
        object.__setattr__(self, "metadata", dict(self.metadata))


@dataclass(frozen=True, slots=True)
class PositionAwareChunk:
    """A piece of a document at ``[start, end)``; used in token-level evaluation.

    The id names the text; the place is (doc_id, start, end). The metadata is copied, one level deep.
    Raises ``InvalidSpanError`` unless ``0 <= start < end``, ``ConfigurationError`` when the content is not a str.
    """

    id: PositionAwareChunkId
    content: str
    doc_id: DocumentId
    start: int
    end: int
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # The bounds are compared here, without a call, because chunkers make millions of chunks.
        if type(self.start) is not int or type(self.end) is not int or not 0 <= self.start < self.end:
            check_bounds(self.doc_id, self.start, self.end)
        if type(self.content) is not str:
            raise content_fault(f"chunk {self.id!r} of {self.doc_id!r}", self.content)
        object.__setattr__(self, "metadata", dict(self.metadata))

    def to_span(self) -> CharacterSpan:
        """Return the chunk's place and text; raises ``InvalidSpanError`` when the two disagree."""
        return CharacterSpan(self.doc_id, self.start, self.end, self.content)


def content_fault(what: str, content: object) -> ConfigurationError:
    """Return the error for a content that is no text."""
    return ConfigurationError(f"the content of {what} is {preview(repr(content))}: give its text, a str")


def span_of(record: Mapping[str, Any]) -> CharacterSpan:
    """Return the span of a record, which may have ``docId`` for ``doc_id``; raises ``InvalidSpanError``."""
    doc_id = record.get("doc_id", record.get("docId"))
    if not isinstance(doc_id, str) or not {"start", "end"} <= record.keys():
        raise InvalidSpanError(
            f"a span needs doc_id, start and end, this one has {preview(', '.join(map(str, record)))}"
        )
    return CharacterSpan(DocumentId(doc_id), record["start"], record["end"], record.get("text") or "")


def span_length(span: CharacterSpan) -> int:
    """Return the number of characters (code points) of a span."""
    return span.length


# The same as functions, for those who write them so.
span_overlaps = CharacterSpan.overlaps
span_overlap_chars = CharacterSpan.overlap_chars
position_aware_chunk_to_span = PositionAwareChunk.to_span
