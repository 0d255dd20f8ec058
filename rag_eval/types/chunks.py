"""Chunks: pieces of documents, with or without a place."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rag_eval.errors import InvalidSpanError, preview
from rag_eval.types.ids import ChunkId, DocumentId, PositionAwareChunkId

OffsetUnit = Literal["code points", "UTF-8 byte offsets", "UTF-16 unit offsets", "offsets that count CRLF as one"]
FOREIGN_UNITS: tuple[OffsetUnit, ...] = (
    "UTF-8 byte offsets",
    "UTF-16 unit offsets",
    "offsets that count CRLF as one",
)


@dataclass(frozen=True, slots=True)
class FittingUnit:
    """A unit in which the numbers fit the text, and the place in code points."""

    unit: OffsetUnit
    start: int
    end: int

    def __str__(self) -> str:
        """As a message says it."""
        return f"these are {self.unit}, count code points: [{self.start}, {self.end})"


def length_unit(text: str, length: int) -> OffsetUnit | None:
    """The unit in which a text has this length, None where none of them fits; code points are not tried."""
    lengths = _lengths(text)
    return next((unit for unit in FOREIGN_UNITS if lengths[unit] == length != len(text)), None)


def fitting_unit(content: str, start: int, end: int | None, text: str) -> FittingUnit | None:
    """The foreign unit in which ``content`` has ``text`` at ``[start, end)``; None when it has it in none.

    Without ``end`` the text's length in that unit decides. In the last unit line ends are compared translated, as the
    source saw them.
    """
    lengths = _lengths(text)
    for unit in FOREIGN_UNITS:
        place = to_code_points(content, start, start + lengths[unit] if end is None else end, unit)
        if place is None:
            continue
        found = content[place[0] : place[1]]
        if found == text or (unit == "offsets that count CRLF as one" and translated(found) == translated(text)):
            return FittingUnit(unit, *place)
    return None


def to_code_points(content: str, start: int, end: int, unit: OffsetUnit) -> tuple[int, int] | None:
    """A place given in a unit, in code points; None where it lies outside the text or inside a character."""
    if not 0 <= start < end:
        return None
    if unit == "code points":
        return (start, end) if end <= len(content) else None
    if unit == "offsets that count CRLF as one":
        return _from_translated(content, start, end)
    encoding, size = ("utf-8", 1) if unit == "UTF-8 byte offsets" else ("utf-16-le", 2)
    data = content.encode(encoding)
    if end * size > len(data):
        return None
    try:
        before = len(data[: start * size].decode(encoding))
        return before, before + len(data[start * size : end * size].decode(encoding))
    except UnicodeDecodeError:
        return None


def _lengths(text: str) -> dict[OffsetUnit, int]:
    return {
        "UTF-8 byte offsets": len(text.encode("utf-8", "surrogatepass")),
        "UTF-16 unit offsets": len(text.encode("utf-16-le", "surrogatepass")) // 2,
        "offsets that count CRLF as one": len(text) - text.count("\r\n"),
    }


def translated(text: str) -> str:
    """The text as Python's text mode gives it: every line end is LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _from_translated(content: str, start: int, end: int) -> tuple[int, int] | None:
    # Each CRLF by the place of its LF in the translated text: what stands after it lies one further in the source.
    ends: list[int] = []
    place = content.find("\r\n")
    while place >= 0:
        ends.append(place - len(ends))
        place = content.find("\r\n", place + 2)
    if end > len(content) - len(ends):
        return None
    return start + bisect_left(ends, start), end + bisect_left(ends, end)


@dataclass(frozen=True, slots=True)
class CharacterSpan:
    """``[start, end)`` of one document and the text that stands there.

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
            raise InvalidSpanError(length_fault(self.doc_id, self.start, self.end, self.text))

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
    """What to say of bounds that are not ``0 <= start < end``."""
    return f"the span [{start}, {end}) of {doc_id!r} holds no character: start must be 0 or more and below end"


def length_fault(doc_id: str, start: int, end: int, text: str) -> str:
    """What to say of a text that is not as long as its span, and of what was counted where that can be told."""
    unit = length_unit(text, end - start)
    advice = f"these are {unit}, count code points" if unit else "correct the numbers or the text"
    return (
        f"the span [{start}, {end}) of {doc_id!r} is {end - start} characters long, "
        f"its text {preview(text)} is {len(text)}: {advice}"
    )


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
        """The chunk's place and text; raises ``InvalidSpanError`` when the two disagree."""
        return CharacterSpan(self.doc_id, self.start, self.end, self.content)
