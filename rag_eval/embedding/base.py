"""What an embedder is, and what it may offer beyond that."""

from collections.abc import Iterator, Sequence
from inspect import getattr_static
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.checks import checked_vectors
from rag_eval.errors import ConfigurationError, preview

Vectors = NDArray[np.float32]
"""One vector a row."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension.

    An embedder may also have an attribute ``symmetric``: True says that ``embed_query(text)`` is ``embed([text])[0]``;
    one ``remote``: True says that it asks a service, so that asking twice costs twice; and one ``known_dimension``,
    None as long as ``dimension`` would have to ask a service or load a model.
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
class EmbedsAsReady(Protocol):
    """An embedder that hands over vectors as they are ready, so that a failure does not lose the finished ones."""

    def embed_as_ready(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[Sequence[int], Vectors]]:
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


def check_embedder(candidate: object) -> None:
    """Raise ``ConfigurationError`` unless the object is an embedder; a class of embedders is none."""
    if not is_embedder(candidate):
        raise ConfigurationError(
            f"{preview(repr(candidate))} is not an embedder: give an object with name, dimension, embed and embed_query"
        )


def known_dimension(embedder: Embedder) -> int | None:
    """The embedder's dimension, None where it says that it would have to find it out."""
    if getattr_static(embedder, "known_dimension", None) is None:
        return embedder.dimension
    known: int | None = embedder.known_dimension  # type: ignore[attr-defined]  # optional
    return known


def is_symmetric(embedder: Embedder) -> bool:
    """Whether the embedder says that a question's vector is that of any text; False when it says nothing."""
    return getattr(embedder, "symmetric", False) is True


def is_remote(embedder: Embedder) -> bool:
    """Whether the embedder says that it asks a service; False when it says nothing."""
    return getattr(embedder, "remote", False) is True


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of many questions, in their order, together where the embedder can and else one by one.

    Raises ``ConfigurationError`` when they are not one finite vector of the embedder's dimension for each question.
    """
    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    given: object
    if isinstance(embedder, EmbedsQueries):
        given = embedder.embed_queries(texts)
    elif is_symmetric(embedder):
        given = embedder.embed(texts)
    else:
        given = [embedder.embed_query(text) for text in texts]
    return checked_vectors(given, len(texts), embedder.name, embedder.dimension)


def text_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of texts, in their order; a text that stands several times is embedded once.

    Raises ``ConfigurationError`` when they are not one finite vector of the embedder's dimension for each text.
    """
    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    # Asked for its dimension afterwards, an embedder that learns it from its first vectors knows it.
    distinct = checked_vectors(embedder.embed(list(numbers)), len(numbers), embedder.name, embedder.dimension)
    vectors: Vectors = distinct[[numbers[text] for text in texts]]
    return vectors
