"""Chunk by meaning: group sentences by the similarity of their embeddings."""

from dataclasses import field
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictFloat

from rag_eval.chunking.chunker import BuiltInChunker, Cut
from rag_eval.chunking.sentence import cut_to_size, pack, sentence_cuts
from rag_eval.embedding import EMBEDDER
from rag_eval.embedding.embedder import Embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.errors import ConfigurationError
from rag_eval.parts import PartOf, Shown, part
from rag_eval.parts.part_settings import Count, OptionalCount, Whole

UnitVectors = NDArray[np.float64]
"""A matrix with one vector of length 1 per row; length 0 if the embedder returned zeros."""


Judge = Annotated[Embedder, PartOf(EMBEDDER), Field(description="Embedder that compares the texts.")]


def unit_vectors(embedder: Embedder, text: str, pieces: list[Cut]) -> UnitVectors:
    """Return the vectors of the pieces, scaled to length 1. Zero vectors stay as they are.

    The dot product of two rows is their cosine similarity, 0 for a zero vector.
    """
    vectors: UnitVectors = np.asarray(embedder.embed([text[start:end] for start, end in pieces]), dtype=np.float64)
    # Scale by the largest number first, so that squares do not underflow or overflow.
    peaks = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    vectors = np.divide(vectors, peaks, out=np.zeros_like(vectors), where=peaks > 0)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    return vectors


# Below this, a difference between two distances is the noise of floating-point sums, not meaning.
_DECIMALS = 6


@part
class SemanticChunker(BuiltInChunker):
    """Group sentences until the topic changes.

    Each sentence is embedded together with ``window`` sentences on either side. The distance between neighbours is 1 -
    cosine similarity. A chunk ends after every sentence whose distance to the next exceeds the
    ``breakpoint_percentile``-th percentile of all distances in the text, linearly interpolated. A zero vector has
    distance 1 to other vectors and 0 to another zero vector.

    Without ``max_chunk_size`` (in characters) there is no size limit. With it, longer groups are cut between sentences,
    and longer sentences as by ``SentenceChunker``. A text of one sentence is not embedded.
    """

    embedder: Judge = field(default_factory=LocalEmbedder)
    breakpoint_percentile: Annotated[
        StrictFloat,
        Shown,
        Field(ge=0, le=100, description="Percentile of the distances above which a chunk ends."),
    ] = 95.0
    window: Annotated[
        Whole, Field(description="Number of sentences on either side that are embedded with each sentence.")
    ] = 1
    max_chunk_size: Annotated[
        OptionalCount, Field(description="Maximum number of characters per chunk; null: no limit.")
    ] = None

    def cuts(self, text: str) -> list[Cut]:
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
    """Return 1 - cosine similarity of each row to the next; 1 if one of them is zero, 0 if both are."""
    distances: NDArray[np.float64] = 1.0 - np.einsum("ij,ij->i", vectors[:-1], vectors[1:])
    is_zero = np.all(vectors == 0.0, axis=1)
    distances[is_zero[:-1] & is_zero[1:]] = 0.0
    return distances.round(_DECIMALS)


# Floating-point sums are imprecise: groupings within this difference count as equally good.
_TOLERANCE = 1e-9


@part
class ClusterSemanticChunker(BuiltInChunker):
    """Group consecutive pieces so that the pieces of a chunk are as similar as possible.

    The text is cut into pieces of at most ``piece_size`` characters, in whole sentences where they fit. Consecutive
    pieces are grouped into chunks of at most ``max_chunk_size`` characters so that the sum, over all pairs of pieces in
    a chunk, of

        cosine similarity of the pair - mean cosine similarity of all pairs of the text

    is as large as possible. Of equally good groupings, the one with the longest last chunks is chosen. A token has
    about four characters in English. The memory grows linearly with the number of pieces.

    Published in B. Smith, A. Troynikov: Evaluating Chunking Strategies for Retrieval, Chroma, 2024
    (https://research.trychroma.com/evaluating-chunking), with pieces of 50 tokens and chunks of 200 or 400.
    """

    embedder: Judge = field(default_factory=LocalEmbedder)
    max_chunk_size: Annotated[Count, Shown, Field(description="Maximum number of characters per chunk.")] = 1000
    piece_size: Annotated[
        OptionalCount,
        Field(description="Maximum number of characters per piece; null: a fifth of max_chunk_size."),
    ] = None

    def __post_init__(self) -> None:
        if self._piece_size > self.max_chunk_size:
            raise ConfigurationError(
                f"piece_size is {self.piece_size} and max_chunk_size {self.max_chunk_size}: "
                "a piece must not be larger than a chunk"
            )

    @property
    def name(self) -> str:
        """The class and its settings, always with the size of the pieces."""
        sizes = f"max_chunk_size={self.max_chunk_size}, piece_size={self._piece_size}"
        return f"ClusterSemanticChunker(embedder={self.embedder.name}, {sizes})"

    def cuts(self, text: str) -> list[Cut]:
        size = self._piece_size
        parts = [part for start, end in sentence_cuts(text) for part in cut_to_size(text, start, end, size)]
        pieces = list(pack(parts, size))
        if len(pieces) < 2:
            return pieces
        groups = best_grouping(unit_vectors(self.embedder, text, pieces), pieces, self.max_chunk_size)
        return [(pieces[first][0], pieces[after - 1][1]) for first, after in groups]

    @property
    def _piece_size(self) -> int:
        return self.piece_size or max(1, self.max_chunk_size // 5)


def mean_similarity(vectors: UnitVectors) -> float:
    """Return the mean dot product of all pairs of different rows, 0 for fewer than two rows.

    The sum over all pairs is |sum of rows|² - sum of |row|², so no matrix of pairs is needed.
    """
    count = len(vectors)
    if count < 2:
        return 0.0
    total = vectors.sum(axis=0)
    return float((total @ total - np.einsum("ij,ij->", vectors, vectors)) / (count * (count - 1)))


def best_grouping(vectors: UnitVectors, pieces: list[Cut], max_size: int) -> list[tuple[int, int]]:
    """Return the groups ``[first, after)`` of consecutive pieces with the largest total value, none above ``max_size``.

    The value of a group is the sum of (similarity - mean similarity) over its pairs, 0 for a single piece. With best(j)
    as the largest total value of the first j pieces,

        best(j) = max over i of best(i) + worth(i, j) worth(i, j) = worth(i, j - 1) + sum over i <= a < j - 1 of
        (similarity(a, j - 1) - mean)

    for all i for which the pieces i to j fit the size. The time is O(pieces × pieces in a group). A single piece is
    always allowed, even if it is larger than ``max_size``.
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
        # worth[a] is the worth of the pieces from lowest + a to this one; the last entry is this piece alone.
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
