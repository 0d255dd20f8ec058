"""Chunks: pieces of documents, with or without a place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rag_eval.types.ids import ChunkId, DocumentId, PositionAwareChunkId
from rag_eval.types.span import CharacterSpan


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
