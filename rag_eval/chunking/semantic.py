"""Chunks that end where the meaning turns."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.base import BuiltInChunker, Cut
from rag_eval.chunking.cutting import cut_to_size, pack
from rag_eval.chunking.sentence import sentence_cuts
from rag_eval.chunking.similarity import UnitVectors, check_embedder, unit_vectors
from rag_eval.chunking.sizes import check_at_least
from rag_eval.embedding.base import Embedder
from rag_eval.errors import ConfigurationError

# Below this, a difference between two distances is the noise of floating-point sums, not meaning.
_DECIMALS = 6


@dataclass(frozen=True)
class SemanticChunker(BuiltInChunker):
    """Sentences grouped until the text turns to something else.

    Each sentence is embedded together with ``window`` sentences on either side. The distance between neighbours is
    1 - cosine similarity; a chunk ends after every sentence whose distance to the next is above the
    ``breakpoint_percentile``-th percentile of all distances of the text (linear interpolation).
    A zero vector has distance 1 to any other and 0 to another zero vector.

    There is no size limit unless ``max_chunk_size`` (characters) is given; then a longer group is cut between
    sentences, and a longer sentence as ``SentenceChunker`` does. Texts of one sentence are not embedded.
    Raises ``ConfigurationError`` on a percentile outside 0 to 100, a window below 0, a size below 1 or no embedder.
    """

    embedder: Embedder
    breakpoint_percentile: float = 95.0
    window: int = 1
    max_chunk_size: int | None = None

    def __post_init__(self) -> None:
        check_embedder(self.embedder)
        percentile = self.breakpoint_percentile
        if isinstance(percentile, bool) or not isinstance(percentile, int | float) or not 0 <= percentile <= 100:
            raise ConfigurationError(f"breakpoint_percentile is {percentile!r}: give a number from 0 to 100")
        # 95 and 95.0 are one setting and must give one name.
        object.__setattr__(self, "breakpoint_percentile", float(percentile))
        check_at_least("window", self.window, 0)
        if self.max_chunk_size is not None:
            check_at_least("max_chunk_size", self.max_chunk_size, 1)

    def cuts(self, text: str) -> list[Cut]:
        """Where the chunks stand: starts strictly increasing, no cut empty."""
        sentences = sentence_cuts(text)
        groups = [sentences[first:after] for first, after in self._groups(text, sentences)]
        if self.max_chunk_size is None:
            return [(group[0][0], group[-1][1]) for group in groups]
        size = self.max_chunk_size
        return [
            cut
            for group in groups
            for cut in pack([piece for sentence in group for piece in cut_to_size(text, *sentence, size)], size)
        ]

    def _groups(self, text: str, sentences: list[Cut]) -> list[tuple[int, int]]:
        if len(sentences) < 2:
            return [(0, 1)] if sentences else []
        last = len(sentences) - 1
        windows = [
            (sentences[max(0, i - self.window)][0], sentences[min(last, i + self.window)][1]) for i in range(last + 1)
        ]
        distances = neighbour_distances(unit_vectors(self.embedder, text, windows))
        threshold = np.percentile(distances, self.breakpoint_percentile)
        borders = [0, *(np.flatnonzero(distances > threshold) + 1).tolist(), len(sentences)]
        return list(pairwise(borders))


def neighbour_distances(vectors: UnitVectors) -> NDArray[np.float64]:
    """1 - cosine similarity of each row to the next; 1 beside one zero vector, 0 between two."""
    distances: NDArray[np.float64] = 1.0 - np.einsum("ij,ij->i", vectors[:-1], vectors[1:])
    is_zero = np.all(vectors == 0.0, axis=1)
    distances[is_zero[:-1] & is_zero[1:]] = 0.0
    return distances.round(_DECIMALS)
