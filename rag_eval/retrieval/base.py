"""What a retriever and a reranker are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from rag_eval.errors import ConfigurationError
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query

C = TypeVar("C", Chunk, PositionAwareChunk)
C_co = TypeVar("C_co", bound=Chunk | PositionAwareChunk, covariant=True)


@dataclass(frozen=True, slots=True)
class Hit(Generic[C_co]):
    """A retrieved chunk and the score that put it at its rank; scores of different retrievers do not compare."""

    chunk: C_co
    score: float


@runtime_checkable
class Retriever(Protocol[C_co]):
    """Finds chunks for queries.

    A retriever of ``PositionAwareChunk`` serves token-level evaluation, one of ``Chunk`` chunk-level evaluation. A
    ``Chunk`` must have ``metadata["ordinal"]``, its number within its document from 0, which tells it from a chunk of
    the same text elsewhere.
    """

    @property
    def name(self) -> str:
        """The retriever and its settings."""

    def index(self, corpus: Corpus) -> None:
        """Make a corpus searchable, in place of any before."""

    def retrieve(self, queries: Sequence[Query], k: int) -> Sequence[Sequence[Hit[C_co]]]:
        """For each query its k best chunks, best first; fewer where there are fewer."""


@runtime_checkable
class Reranker(Protocol):
    """Puts candidates into a better order."""

    @property
    def name(self) -> str:
        """The reranker and its settings."""

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first; all of them where they are fewer."""


DEEPER = 10
LEAST_CANDIDATES = 50


def candidates_for(k: int, fetch_k: int | None) -> int:
    """How many candidates to fetch for a final k: ``fetch_k``, else ten times k and at least 50; never below k."""
    return max(k, DEEPER * k, LEAST_CANDIDATES) if fetch_k is None else max(k, fetch_k)


def place_of(chunk: Chunk | PositionAwareChunk) -> tuple[str, int, int]:
    """What makes a chunk that chunk and no other: its place, or its number within its document.

    Raises ``ConfigurationError`` on a ``Chunk`` without ``metadata["ordinal"]``.
    """
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    ordinal = chunk.metadata.get("ordinal")
    if not isinstance(ordinal, int):
        raise ConfigurationError(
            f"chunk {chunk.id} of {chunk.doc_id!r} has no ordinal in its metadata: number the chunks of a document "
            "from 0, as metadata['ordinal']"
        )
    return chunk.doc_id, ordinal, ordinal
