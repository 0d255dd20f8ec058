"""Rankings: what the stages of a retrieval find, as numbers of chunks, and how a reranker reorders them.

Search, fusion and reranking work on rankings; tables of hits and lists of ``Hit`` are made from them at the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, preview
from rag_eval.retrieval.retriever import C, Hit, Reranker, place_of
from rag_eval.types.chunks import Chunk, PositionAwareChunk

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """The chunks found by every search, best first: row i says that search ``searches[i]`` found ``chunks[i]``.

    Rows are in the order of the searches, and within one from the best hit to the worst. Chunks are numbered in the
    order of their places, which decides between equal scores.
    """

    searches: Numbers
    chunks: Numbers
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, found: Iterable[tuple[Numbers, NDArray[np.floating]]]) -> "Ranking":
        """Join the chunks and scores that each search found, in the order of the searches."""
        pairs = list(found)
        none = [(np.empty(0, np.int64), np.empty(0))]
        chunks, scores = (np.concatenate(column) for column in zip(*(pairs or none), strict=True))
        searches = np.repeat(np.arange(len(pairs)), [len(numbers) for numbers, _ in pairs])
        return cls(searches, chunks.astype(np.int64), scores.astype(np.float64))

    @property
    def ranks(self) -> Numbers:
        """The rank of each row within its search, from 1."""
        return np.arange(1, len(self.searches) + 1) - np.searchsorted(self.searches, self.searches)

    def first(self, depth: int) -> "Ranking":
        """The first ``depth`` hits of each search."""
        kept = self.ranks <= depth
        return self if kept.all() else Ranking(self.searches[kept], self.chunks[kept], self.scores[kept])

    def by_search(self, searches: int) -> list[Numbers]:
        """The chunks of each of so many searches."""
        return np.split(self.chunks, np.searchsorted(self.searches, np.arange(1, searches)))

    def hits(self, chunks: Sequence[C], searches: int) -> list[list[Hit[C]]]:
        """The hits of each of so many searches, whose chunks are numbered as in the sequence."""
        found: list[list[Hit[C]]] = [[] for _ in range(searches)]
        for search, chunk, score in zip(
            self.searches.tolist(), self.chunks.tolist(), self.scores.tolist(), strict=True
        ):
            found[search].append(Hit(chunks[chunk], score))
        return found


def rerank(
    ranking: Ranking, reranker: Reranker, texts: Sequence[str], chunks: Mapping[int, C] | Sequence[C]
) -> Ranking:
    """Put all hits of every search into the reranker's order; a hit's score becomes 1 / rank.

    ``texts`` are those of the searches, ``chunks`` has the chunk of each number. Raises as ``reranked`` does.
    """
    found = []
    for text, numbers in zip(texts, ranking.by_search(len(texts)), strict=True):
        order = reranked(reranker, text, [chunks[number] for number in numbers.tolist()])
        found.append((numbers[order], 1 / np.arange(1, len(order) + 1)))
    return Ranking.of(found)


def reranked(reranker: Reranker, query: str, chunks: Sequence[C]) -> list[int]:
    """The positions of all chunks in the order that a reranker gives them.

    Raises ``ConfigurationError``, naming the reranker, when it does not give all of them, each once.
    """
    if not chunks:
        return []
    wanted = len(chunks)
    given: object = reranker.rerank(query, chunks, wanted)
    kept = list(islice(given, wanted)) if isinstance(given, Iterable) else []
    positions = {place_of(chunk): position for position, chunk in enumerate(chunks)}
    order = [
        positions[place]
        for place in dict.fromkeys(place_of(chunk) for chunk in kept if isinstance(chunk, Chunk | PositionAwareChunk))
        if place in positions
    ]
    if len(kept) != wanted or len(order) != wanted:
        raise ConfigurationError(
            f"{reranker.name} gave {preview(repr(given))} for {wanted} chunks and top_k = {wanted}: "
            f"a reranker must give {wanted} different ones of the chunks that it was given"
        )
    return order
