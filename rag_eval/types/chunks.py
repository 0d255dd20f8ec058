"""Spans and chunks: places in documents, and pieces of them with or without a place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag_eval.errors import InvalidSpanError, preview
from rag_eval.types.ids import ChunkId, DocumentId, PositionAwareChunkId
from rag_eval.types.offsets import length_unit


@dataclass(frozen=True, slots=True)
class CharacterSpan:
    """``[start, end)`` of one document and the text there.

    Raises ``InvalidSpanError`` when the span is empty, reversed or negative, when its text has another length, or when
    start and end are not integers.
    """

    doc_id: DocumentId
    start: int
    end: int
    text: str

    def __post_init__(self) -> None:
        check_bounds(self.doc_id, self.start, self.end)
        if len(self.text) != self.end - self.start:
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
        """Whether the two share a character: same document, and not merely touching."""
        return self.overlap_chars(other) > 0

    def overlap_chars(self, other: "CharacterSpan") -> int:
        """How many characters the two share; 0 in different documents."""
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

    The metadata is copied, one level deep.
    """

    id: ChunkId
    content: str
    doc_id: DocumentId
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))


@dataclass(frozen=True, slots=True)
class PositionAwareChunk:
    """A piece of a document at ``[start, end)``; used in token-level evaluation.

    The id names the text; the place is (doc_id, start, end). The metadata is copied, one level deep.
    """

    id: PositionAwareChunkId
    content: str
    doc_id: DocumentId
    start: int
    end: int
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", dict(self.metadata))

    def to_span(self) -> CharacterSpan:
        """Return the chunk's place and text; raises ``InvalidSpanError`` when the two disagree."""
        return CharacterSpan(self.doc_id, self.start, self.end, self.content)
