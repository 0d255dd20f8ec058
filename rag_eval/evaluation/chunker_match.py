"""Whether chunk-level ground truth and the chunks of a run belong together."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rag_eval.errors import GroundTruthError
from rag_eval.retrieval.hybrid import HybridRetriever
from rag_eval.types.chunk import Chunk
from rag_eval.types.ground_truth import ChunkLevelGroundTruth


@runtime_checkable
class HasChunks(Protocol):
    """A retriever that tells how its corpus was cut."""

    @property
    def chunker_name(self) -> str:
        """The chunker and its settings."""

    def indexed_chunks(self) -> Sequence[Chunk]:
        """All chunks of the indexed corpus."""


def parts_with_chunks(retriever: object) -> list[HasChunks]:
    """The retriever, or the parts of a hybrid, as far as they tell how their corpus was cut."""
    if isinstance(retriever, HybridRetriever):
        return [found for part in retriever.retrievers for found in parts_with_chunks(part)]
    return [retriever] if isinstance(retriever, HasChunks) else []


def check_chunker(truth: Sequence[ChunkLevelGroundTruth], chunker_name: str) -> None:
    """Raise ``GroundTruthError``, naming both, when the truth was made with another chunker."""
    for item in truth:
        if item.chunker is not None and item.chunker != chunker_name:
            raise GroundTruthError(
                f"the ground truth was made with {item.chunker} and this run uses {chunker_name}: chunk ids are true "
                "for one chunker only; run with that one, make new ground truth, or evaluate at token level"
            )


def check_chunk_ids(truth: Sequence[ChunkLevelGroundTruth], chunks: Sequence[Chunk]) -> None:
    """Raise ``GroundTruthError``, with the count, when the truth names chunks that the corpus does not have."""
    known = {chunk.id for chunk in chunks}
    named = {chunk_id for item in truth for chunk_id in item.relevant_chunk_ids}
    unknown = sorted(named - known)
    if unknown:
        raise GroundTruthError(
            f"{len(unknown)} of the {len(named)} chunk ids in the ground truth are not among the {len(known)} chunks "
            f"of this run, first {unknown[0]}: the documents or the chunker are not those that it was made with"
        )
