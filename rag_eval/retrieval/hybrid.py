"""Several retrievers as one, by reciprocal rank fusion.

G. V. Cormack, C. L. A. Clarke, S. Büttcher, *Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning
Methods*, 2009: the score of a chunk is Σ over the retrievers of 1 / (60 + its rank there).
"""

from collections.abc import Sequence
from typing import Generic

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.base import C, Hit, Reranker, Retriever, candidates_for
from rag_eval.retrieval.vector import rerank_hits
from rag_eval.types.chunk import Chunk, PositionAwareChunk
from rag_eval.types.document import Corpus
from rag_eval.types.ground_truth import Query

RANK_CONSTANT = 60


class HybridRetriever(Generic[C]):
    """Fuses what its retrievers find, each asked for ``fetch_k`` chunks (ten times k and at least 50 unless said).

    A chunk is the same for all when its place is. Raises ``ConfigurationError`` with fewer than two retrievers.
    """

    def __init__(
        self, retrievers: Sequence[Retriever[C]], reranker: Reranker | None = None, *, fetch_k: int | None = None
    ) -> None:
        if len(retrievers) < 2:
            raise ConfigurationError(f"a hybrid needs two retrievers or more, it was given {len(retrievers)}")
        self._retrievers: tuple[Retriever[C], ...] = tuple(retrievers)
        self._reranker = reranker
        self._fetch_k = fetch_k

    @property
    def name(self) -> str:
        """The names of the parts."""
        reranker = f" + {self._reranker.name}" if self._reranker else ""
        return f"RRF({'; '.join(retriever.name for retriever in self._retrievers)}){reranker}"

    def index(self, corpus: Corpus) -> None:
        """Index a corpus in every part."""
        for retriever in self._retrievers:
            retriever.index(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """For each query the k best chunks of the fused ranking, reranked where there is a reranker."""
        depth = candidates_for(k, self._fetch_k)
        found = [retriever.retrieve(queries, depth) for retriever in self._retrievers]
        fused = [fuse([hits[number] for hits in found]) for number in range(len(queries))]
        if self._reranker is None:
            return [hits[:k] for hits in fused]
        return [
            rerank_hits(self._reranker, query.text, hits[:depth], k) for query, hits in zip(queries, fused, strict=True)
        ]


def fuse(rankings: Sequence[Sequence[Hit[C]]]) -> list[Hit[C]]:
    """The rankings as one, best first, equal scores by place."""
    scores: dict[tuple[str, int, int], float] = {}
    chunks: dict[tuple[str, int, int], C] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, start=1):
            place = place_of(hit.chunk)
            scores[place] = scores.get(place, 0.0) + 1 / (RANK_CONSTANT + rank)
            chunks.setdefault(place, hit.chunk)
    return [Hit(chunks[place], scores[place]) for place in sorted(scores, key=lambda place: (-scores[place], place))]


def place_of(chunk: Chunk | PositionAwareChunk) -> tuple[str, int, int]:
    """What makes a chunk that chunk and no other: its place, or its number within its document."""
    if isinstance(chunk, PositionAwareChunk):
        return chunk.doc_id, chunk.start, chunk.end
    ordinal = chunk.metadata.get("ordinal")
    if not isinstance(ordinal, int):
        raise ConfigurationError(f"chunk {chunk.id} of {chunk.doc_id!r} has no ordinal in its metadata: number it")
    return chunk.doc_id, ordinal, ordinal
