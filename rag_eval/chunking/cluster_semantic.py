"""Chunks that hold together best: the optimal grouping of small pieces by similarity."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.base import BuiltInChunker, Cut
from rag_eval.chunking.cutting import cut_to_size, pack
from rag_eval.chunking.sentence import sentence_cuts
from rag_eval.chunking.similarity import UnitVectors, check_embedder, unit_vectors
from rag_eval.chunking.sizes import check_at_least
from rag_eval.embedding.base import Embedder
from rag_eval.errors import ConfigurationError

# Two groupings closer than this are equally good: the difference is the noise of floating-point sums.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ClusterSemanticChunker(BuiltInChunker):
    """Consecutive pieces grouped so that what is in one chunk is as similar as can be.

    The text is cut into pieces of at most ``piece_size`` characters (whole sentences where they fit; a fifth of
    ``max_chunk_size`` unless given). Of all ways to group consecutive pieces into chunks of at most ``max_chunk_size``
    characters, the one is taken with the largest sum, over all pairs of pieces in one chunk, of

        cosine similarity of the pair - mean cosine similarity of all pairs of the text

    and of equally good ones the one whose last chunks are the longest. Both sizes are in characters (code points), as
    in ``SentenceChunker``; a token has about four in English. Memory grows with the number of pieces, not its square.

    The idea is published in B. Smith, A. Troynikov: Evaluating Chunking Strategies for Retrieval, Chroma, 2024
    (https://research.trychroma.com/evaluating-chunking), there with pieces of 50 tokens and chunks of 200 or 400.
    Raises ``ConfigurationError`` on a size below 1, pieces larger than chunks, or no embedder.
    """

    embedder: Embedder
    max_chunk_size: int = 1000
    piece_size: int | None = None

    def __post_init__(self) -> None:
        check_embedder(self.embedder)
        check_at_least("max_chunk_size", self.max_chunk_size, 1)
        if self.piece_size is None:
            object.__setattr__(self, "piece_size", max(1, self.max_chunk_size // 5))
        check_at_least("piece_size", self.piece_size, 1)
        if self._piece_size > self.max_chunk_size:
            raise ConfigurationError(
                f"piece_size is {self.piece_size} and max_chunk_size {self.max_chunk_size}: "
                "a piece must not be larger than a chunk"
            )

    def cuts(self, text: str) -> list[Cut]:
        """Where the chunks stand: starts strictly increasing, no cut empty."""
        size = self._piece_size
        parts = [part for start, end in sentence_cuts(text) for part in cut_to_size(text, start, end, size)]
        pieces = list(pack(parts, size))
        if len(pieces) < 2:
            return pieces
        groups = best_grouping(unit_vectors(self.embedder, text, pieces), pieces, self.max_chunk_size)
        return [(pieces[first][0], pieces[after - 1][1]) for first, after in groups]

    @property
    def _piece_size(self) -> int:
        return self.piece_size or 1


def mean_similarity(vectors: UnitVectors) -> float:
    """The mean dot product of all pairs of different rows; 0 for fewer than two rows.

    All pairs together are |sum of rows|² - sum of |row|², so that no matrix of pairs is needed.
    """
    count = len(vectors)
    if count < 2:
        return 0.0
    total = vectors.sum(axis=0)
    return float((total @ total - np.einsum("ij,ij->", vectors, vectors)) / (count * (count - 1)))


def best_grouping(vectors: UnitVectors, pieces: list[Cut], max_size: int) -> list[tuple[int, int]]:
    """The groups ``[first, after)`` of consecutive pieces, none over ``max_size``, with the largest worth together.

    The worth of a group is the sum of (similarity - mean similarity) over its pairs; a piece alone is worth 0.
    With best(j) the largest worth of the first j pieces,

        best(j) = max over i of best(i) + worth(i, j)
        worth(i, j) = worth(i, j - 1) + sum over i <= a < j - 1 of (similarity(a, j - 1) - mean)

    for all i from which the pieces up to j fit the size: O(pieces × pieces a group) time.
    A single piece is always allowed, even if it is larger than ``max_size``.
    """
    mean = mean_similarity(vectors)
    best = np.zeros(len(pieces) + 1)
    first_of = np.zeros(len(pieces) + 1, dtype=np.int64)
    worth: NDArray[np.float64] = np.zeros(0)
    lowest = 0
    for last, (_, end) in enumerate(pieces):
        was_lowest = lowest
        while lowest < last and end - pieces[lowest][0] > max_size:
            lowest += 1
        gains = vectors[lowest:last] @ vectors[last] - mean
        # worth[a] is that of the group from piece lowest + a up to this one; the last entry is this piece alone.
        worth = np.append(worth[lowest - was_lowest :] + np.cumsum(gains[::-1])[::-1], 0.0)
        totals = best[lowest : last + 1] + worth
        choice = int(np.argmax(totals >= totals.max() - _TOLERANCE))
        best[last + 1] = totals[choice]
        first_of[last + 1] = lowest + choice
    groups = []
    after = len(pieces)
    while after:
        first = int(first_of[after])
        groups.append((first, after))
        after = first
    return groups[::-1]
