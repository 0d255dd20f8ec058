"""Vectors of a text's pieces, made ready for cosine similarity."""

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.base import Cut
from rag_eval.embedding.base import Embedder, is_embedder
from rag_eval.errors import ConfigurationError

UnitVectors = NDArray[np.float64]
"""One vector a row, of length 1, or of length 0 where the embedder gave only zeros."""


def check_embedder(embedder: object) -> None:
    """Raise ``ConfigurationError`` unless the object can embed and has a name."""
    if not is_embedder(embedder):
        raise ConfigurationError(
            f"{embedder!r} is not an embedder: give an object with name, dimension, embed and embed_query"
        )


def unit_vectors(embedder: Embedder, text: str, pieces: list[Cut]) -> UnitVectors:
    """The vectors of the pieces, scaled to length 1; a vector of zeros stays as it is.

    The dot product of two rows is their cosine similarity, 0 where one is a zero vector.
    Raises ``ConfigurationError`` when the embedder gives another number of vectors, or numbers that are not finite.
    """
    vectors: UnitVectors = np.asarray(embedder.embed([text[start:end] for start, end in pieces]), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(pieces):
        raise ConfigurationError(
            f"the embedder {embedder.name} gave an array of shape {vectors.shape} for {len(pieces)} texts: "
            "it must give one row for each"
        )
    if not np.isfinite(vectors).all():
        raise ConfigurationError(f"the embedder {embedder.name} gave vectors with NaN or infinite numbers")
    # Scaling by the largest number first keeps tiny and huge vectors from under- or overflowing when squared.
    peaks = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    vectors = np.divide(vectors, peaks, out=np.zeros_like(vectors), where=peaks > 0)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    return vectors
