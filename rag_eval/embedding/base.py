"""What an embedder is."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""One vector a row."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension."""

    @property
    def name(self) -> str:
        """The model and whatever changes its vectors: equal names mean interchangeable vectors."""

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, in their order, as an array of shape (len(texts), dimension)."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question."""
