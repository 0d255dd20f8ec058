"""Define spans and chunks: places in documents, and pieces of documents with or without a place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag_eval.errors import ConfigurationError, InvalidSpanError, preview
from rag_eval.types.ids import ChunkId, DocumentId, PositionAwareChunkId
from rag_eval.types.offsets import length_unit


@dataclass(frozen=True, slots=True)
class CharacterSpan:
    """A half-open range ``[start, end)`` of a document, in code points.

    ::

        CharacterSpan("guide.md", 12, 18, "ferry.").length  # 6

    Args:
        doc_id: The document.
        start: The offset of the first character.
        end: The offset after the last character.
        text: The text in this range. An evaluation reads an empty text from its corpus.

    Raises:
        InvalidSpanError: The bounds are not integers with ``0 <= start < end``, or the text has another length.
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
                "use a str, or omit it"
            )
        if self.text and len(self.text) != self.length:
            raise InvalidSpanError(length_fault(self.doc_id, self.start, self.end, self.text))

    @property
    def length(self) -> int:
        """The number of characters (code points)."""
        return self.end - self.start

    def overlaps(self, other: "CharacterSpan") -> bool:
        """Return whether both spans share a character. Spans that only touch do not overlap."""
        return self.overlap_chars(other) > 0

    def overlap_chars(self, other: "CharacterSpan") -> int:
        """Return the number of characters that both spans share."""
        if self.doc_id != other.doc_id:
            return 0
        return max(0, min(self.end, other.end) - max(self.start, other.start))


def check_bounds(doc_id: str, start: int, end: int) -> None:
    """Raise ``InvalidSpanError`` unless both bounds are of type ``int`` and ``0 <= start < end``."""
    # numpy integers and bool are other types; comparing types is faster than isinstance.
    if type(start) is not int or type(end) is not int:
        raise InvalidSpanError(
            f"the span [{start!r}, {end!r}) of {doc_id!r} has bounds that are not Python integers: use int(…)"
        )
    if not 0 <= start < end:
        raise InvalidSpanError(bounds_fault(doc_id, start, end))


def bounds_fault(doc_id: str, start: int, end: int) -> str:
    """Return the message for bounds that violate ``0 <= start < end``."""
    return f"the span [{start}, {end}) of {doc_id!r} has no characters: start must be 0 or more and below end"


def length_fault(doc_id: str, start: int, end: int, text: str) -> str:
    """Return the message for a text that has another length than its span."""
    unit = length_unit(text, end - start)
    advice = f"these are {unit}, count code points" if unit else "correct the numbers or the text"
    return (
        f"the span [{start}, {end}) of {doc_id!r} is {end - start} characters long, "
        f"its text {preview(text)} is {len(text)}: {advice}"
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document without a position, for chunk-level evaluation.

    Args:
        id: The id of the content, from ``generate_chunk_id``.
        content: The text of the chunk.
        doc_id: The document.
        metadata: Anything else, copied one level deep.

    Raises:
        ConfigurationError: The content is not a str.
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
    """A piece of a document at ``[start, end)``, for token-level evaluation.

    Args:
        id: The id of the content, from ``generate_pa_chunk_id``. Chunks with equal texts share it.
        content: The text of the chunk, ``document.content[start:end]``.
        doc_id: The document.
        start: The offset of the first character.
        end: The offset after the last character.
        metadata: Anything else, copied one level deep.

    Raises:
        InvalidSpanError: The bounds are not integers with ``0 <= start < end``, or the content has another length.
        ConfigurationError: The content is not a str.
    """

    id: PositionAwareChunkId
    content: str
    doc_id: DocumentId
    start: int
    end: int
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # Compared here, without a call, because chunkers create millions of chunks.
        if type(self.start) is not int or type(self.end) is not int or not 0 <= self.start < self.end:
            check_bounds(self.doc_id, self.start, self.end)
        if type(self.content) is not str:
            raise content_fault(f"chunk {self.id!r} of {self.doc_id!r}", self.content)
        if len(self.content) != self.end - self.start:
            raise InvalidSpanError(length_fault(self.doc_id, self.start, self.end, self.content))
        object.__setattr__(self, "metadata", dict(self.metadata))

    def to_span(self) -> CharacterSpan:
        """Return the position and the text as a span."""
        return CharacterSpan(self.doc_id, self.start, self.end, self.content)


def content_fault(what: str, content: object) -> ConfigurationError:
    """Return the error for a content that is not a text."""
    return ConfigurationError(f"the content of {what} is {preview(repr(content))}: use a str")


def span_of(record: Mapping[str, object]) -> CharacterSpan:
    """Return the span of a record with ``doc_id`` (or ``docId``), ``start``, ``end`` and perhaps ``text``.

    Raises:
        InvalidSpanError: A key is missing, or its value is invalid.
    """
    doc_id, start, end = record.get("doc_id", record.get("docId")), record.get("start"), record.get("end")
    if not isinstance(doc_id, str) or not {"start", "end"} <= record.keys():
        raise InvalidSpanError(
            f"a span needs doc_id, start and end, this one has {preview(', '.join(map(str, record)))}"
        )
    return CharacterSpan(DocumentId(doc_id), start, end, record.get("text") or "")  # type: ignore[arg-type]  # checked by the class


def span_length(span: CharacterSpan) -> int:
    """Return the number of characters (code points) of a span."""
    return span.length


# The methods as functions.
span_overlaps = CharacterSpan.overlaps
span_overlap_chars = CharacterSpan.overlap_chars
position_aware_chunk_to_span = PositionAwareChunk.to_span
