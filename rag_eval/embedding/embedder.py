"""Define the interface of embedders and the checks of texts and vectors."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import getattr_static
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.live import object_name
from rag_eval.types.ids import encode_utf8

Vectors = NDArray[np.float32]
"""One vector in each row."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of an embedder since it was created.

    ``requests`` counts network calls including retries, ``texts`` the texts that got a vector, and ``tokens`` what the
    model read. ``cost`` is in US dollars. Tokens and cost are None if unknown.
    """

    requests: int
    texts: int
    tokens: int | None
    cost: float | None


@runtime_checkable
class ReportsUsage(Protocol):
    """An embedder that reports its usage, which is optional."""

    @property
    def usage(self) -> Usage: ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension.

    Optional attributes: ``symmetric``, True if ``embed_query(text)`` is ``embed([text])[0]``; ``remote``, True if it
    calls a service; ``known_dimension``, None while ``dimension`` would call a service or load a model;
    ``embed_queries(texts)`` for many questions at once; ``count_tokens(texts)``, the tokens of each (None: unknown).
    """

    @property
    def name(self) -> str:
        """The model and the settings that change its vectors: equal names mean interchangeable vectors."""
        return object_name(self)

    @property
    def dimension(self) -> int:
        """The dimension of a vector; unless a subclass knows it, a text is embedded."""
        return int(np.shape(self.embed(["dimension"]))[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order, as an array of shape (len(texts), dimension)."""
        raise NotImplementedError

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question; unless a subclass overrides it, that of the text."""
        return np.asarray(self.embed([text])[0], np.float32)


_counting = threading.Lock()  # one lock for all embedders, so that they can be pickled and copied


class BuiltInEmbedder(ABC):
    """A built-in embedder: its name is its identity, and it counts its usage across threads."""

    _dimension: int | None = None
    _price: float | None = 0.0  # US dollars per million tokens; None if unknown
    _used = Usage(requests=0, texts=0, tokens=0, cost=0.0)

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order."""

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question, by default that of the text."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    @property
    def identity(self) -> str:
        """The name, which includes the package, the model's files or commit, and the server."""
        return self.name

    @property
    def known_dimension(self) -> int | None:
        """The dimension if it is known without calling a service or loading a model."""
        return self._dimension

    @property
    def price(self) -> float | None:
        """US dollars per million tokens; None if unknown."""
        return self._price

    @property
    def usage(self) -> Usage:
        """The usage so far, with the tokens counted by the service if it reports them."""
        price, tokens = self._price, self._used.tokens
        if price is None or (price and tokens is None):
            return replace(self._used, cost=None)
        return replace(self._used, cost=price * (tokens or 0) / 1_000_000)

    def _count(self, requests: int = 0, texts: int = 0, tokens: int | None = 0) -> None:
        """Add to the usage; texts with an unknown number of tokens make the sum unknown."""
        with _counting:
            used = self._used
            total = None if tokens is None or used.tokens is None else used.tokens + tokens
            self._used = Usage(used.requests + requests, used.texts + texts, total, None)


class EmbeddedBatch(NamedTuple):
    """The vectors of some of the texts, with their indexes, and the tokens of each if they were counted."""

    places: Sequence[int]
    vectors: Vectors
    tokens: NDArray[np.int64] | None = None


class BatchEmbedder(BuiltInEmbedder):
    """A built-in embedder that returns batches as they are ready, so that a failure loses no finished batch."""

    @property
    def has_batches(self) -> bool:
        """Whether ``embed`` is not overridden, so that batches contain the same vectors."""
        return type(self).embed == BatchEmbedder.embed

    @abstractmethod
    def embed_as_ready(self, texts: Sequence[str]) -> Iterator[EmbeddedBatch]:
        """Yield the vectors of the texts, in any order."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order. Without texts, nothing is sent."""
        check_texts(texts)
        vectors = np.zeros((len(texts), self.known_dimension or 0), np.float32)
        for batch in self.embed_as_ready(texts):
            if vectors.shape[1] != batch.vectors.shape[1]:
                vectors = np.zeros((len(texts), batch.vectors.shape[1]), np.float32)
            vectors[batch.places] = batch.vectors
        return vectors


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` unless it is a list of strings, and ``TextEncodingError`` on a lone surrogate."""
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        found = "one string" if isinstance(texts, str) else preview(repr(texts))
        raise ConfigurationError(f"the texts to embed are {found}: give a list of strings")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigurationError(f"text {number} to embed is {preview(repr(text))}: give a list of strings")
        if not text.isascii():
            encode_utf8(text, f"text {number}")


def checked_vectors(vectors: object, count: int, name: str, dimension: int | None = None) -> Vectors:
    """Return vectors as float32; raises ``ConfigurationError`` unless they are ``count`` finite rows of one size."""
    wanted = f"it must return one row for each text, of {dimension or 'equally many'} numbers"
    try:
        with np.errstate(over="ignore"):
            rows: Vectors = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        reason = preview(str(error), 100)
        raise ConfigurationError(
            f"the embedder {name} gave no array of numbers for {count} texts ({reason}): {wanted}"
        ) from None
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1] or dimension not in (None, rows.shape[1]):
        raise ConfigurationError(f"the embedder {name} gave an array of shape {rows.shape} for {count} texts: {wanted}")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise ConfigurationError(
            f"the embedder {name} gave numbers that are NaN or infinite, first in row {int(np.argmin(finite))} "
            f"of {count}: such vectors cannot be searched"
        )
    return rows


def check_embedder(candidate: object) -> None:
    """Raise ``ConfigurationError`` unless the object has ``name`` and ``embed``; ``dimension`` is not read."""
    if isinstance(candidate, type) or any(getattr_static(candidate, part, None) is None for part in ("name", "embed")):
        raise ConfigurationError(f"{preview(repr(candidate))} is not an embedder: give an object with name and embed")


def known_dimension(embedder: Embedder) -> int | None:
    """Return the embedder's dimension; None if it would call a service or load a model for it."""
    if getattr_static(embedder, "known_dimension", None) is None:
        return getattr(embedder, "dimension", None)
    known: int | None = embedder.known_dimension  # type: ignore[attr-defined]  # optional
    return known


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return the vectors of many questions, in one call if possible; raises like ``checked_vectors``."""
    if not texts:
        return _no_vectors(embedder)
    if hasattr(embedder, "embed_queries"):
        return _checked(embedder, embedder.embed_queries(texts), len(texts))
    if getattr(embedder, "symmetric", False) is True or not hasattr(embedder, "embed_query"):
        return _checked(embedder, embedder.embed(texts), len(texts))
    return _checked(embedder, [embedder.embed_query(text) for text in texts], len(texts))


def text_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return the vectors of texts, each distinct text embedded once; raises like ``checked_vectors``."""
    if not texts:
        return _no_vectors(embedder)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    distinct = _checked(embedder, embedder.embed(list(numbers)), len(numbers))
    vectors: Vectors = distinct[[numbers[text] for text in texts]]
    return vectors


def _no_vectors(embedder: Embedder) -> Vectors:
    return np.zeros((0, getattr(embedder, "dimension", 1)), np.float32)


def _checked(embedder: Embedder, vectors: object, count: int) -> Vectors:
    # Read afterwards: an embedder may learn its dimension from its first vectors.
    return checked_vectors(vectors, count, embedder.name, getattr(embedder, "dimension", None))
