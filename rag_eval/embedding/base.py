"""What an embedder is, and what it may offer beyond that."""

from collections.abc import Iterator, Sequence
from inspect import getattr_static
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""One vector a row."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension.

    An embedder may also have an attribute ``symmetric``: True says that ``embed_query(text)`` is ``embed([text])[0]``.
    """

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


@runtime_checkable
class EmbedsBatches(Protocol):
    """An embedder that hands over vectors as they are ready, so that a failure does not lose the finished ones."""

    def embed_batches(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[Sequence[int], Vectors]]:
        """The vectors of the texts at the given places, in batches of (places, vectors), in any order."""


@runtime_checkable
class EmbedsQueries(Protocol):
    """An embedder that takes many questions at once."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the questions, in their order: what ``embed_query`` gives for each."""


def is_embedder(candidate: object) -> TypeGuard[Embedder]:
    """Whether the object has all that an embedder has.

    Unlike ``isinstance`` before Python 3.12 it does not read ``dimension``, which may have to ask a service for it.
    """
    parts = ("name", "dimension", "embed", "embed_query")
    return not isinstance(candidate, type) and all(getattr_static(candidate, part, None) is not None for part in parts)


def is_symmetric(embedder: Embedder) -> bool:
    """Whether the embedder says that a question's vector is that of any text; False when it says nothing."""
    return getattr(embedder, "symmetric", False) is True


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of many questions, in their order, together where the embedder can and else one by one."""
    if isinstance(embedder, EmbedsQueries):
        return embedder.embed_queries(texts)
    if is_symmetric(embedder):
        return embedder.embed(texts)
    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    return np.stack([np.asarray(embedder.embed_query(text), np.float32) for text in texts])


def text_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of texts, in their order; a text that stands several times is embedded once."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    distinct = embedder.embed(list(numbers))
    vectors: Vectors = distinct[[numbers[text] for text in texts]]
    return vectors
