"""What an embedder is, and what it may offer beyond that."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import getattr_static
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.live import object_name
from rag_eval.types.ids import encode_utf8


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` unless it is a list of strings, ``TextEncodingError`` on a lone surrogate."""
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        given = "one string" if isinstance(texts, str) else preview(repr(texts))
        raise ConfigurationError(f"the texts to embed are {given}: give a list of strings")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigurationError(f"text {number} to embed is {preview(repr(text))}: give a list of strings")
        if not text.isascii():
            encode_utf8(text, f"text {number}")


def checked_vectors(vectors: object, count: int, name: str, dimension: int | None = None) -> NDArray[np.float32]:
    """Return vectors as float32; raises ``ConfigurationError`` unless they are ``count`` finite rows of one size."""
    wanted = f"it must give one row for each text, of {dimension or 'equally many'} numbers"
    try:
        with np.errstate(over="ignore"):
            rows: NDArray[np.float32] = np.asarray(vectors, dtype=np.float32)
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


_counting = threading.Lock()  # one for all embedders, so that they can be pickled and copied


@dataclass(frozen=True, slots=True)
class Usage:
    """What an embedder has used since it was made.

    ``requests`` counts calls over the network, repeated ones included; ``texts`` those that got a vector;
    ``tokens`` what the model read, and ``cost`` the price of it in US dollars: None where they are not known.
    """

    requests: int
    texts: int
    tokens: int | None
    cost: float | None


@runtime_checkable
class ReportsUsage(Protocol):
    """An embedder that tells what it used. Optional: an ``Embedder`` need not."""

    @property
    def usage(self) -> Usage:
        """All that was used so far."""


Vectors = NDArray[np.float32]
"""One vector a row."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one dimension.

    An embedder may also have an attribute ``symmetric``: True says that ``embed_query(text)`` is ``embed([text])[0]``;
    one ``remote``: True says that it asks a service, so that asking twice costs twice; and one ``known_dimension``,
    None as long as ``dimension`` would have to ask a service or load a model. It may have ``embed_queries(texts)`` for
    many questions at once; ``count_tokens(texts)``, what it would read of each (None: unknown); and
    ``embed_as_ready(texts, places)``, which yields (places, vectors) as they are ready, so that a failure loses none,
    or (places, vectors, tokens of each), so that they are not counted again.
    """

    @property
    def name(self) -> str:
        """The model and whatever changes its vectors: equal names mean interchangeable vectors."""
        return object_name(self)

    @property
    def dimension(self) -> int:
        """How many numbers a vector has; a class that derives from this one and does not say it is asked for a text."""
        return int(np.shape(self.embed(["dimension"]))[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order, as an array of shape (len(texts), dimension)."""
        raise NotImplementedError

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question; like that of any text in a class that derives from this one."""
        return np.asarray(self.embed([text])[0], np.float32)


class BuiltInEmbedder(ABC):
    """An embedder of this library: its name is its identity, and it counts what it uses, from many threads."""

    _dimension: int | None = None
    _price: float | None = 0.0  # US dollars a million tokens; None where it is not known, and so the cost
    _used = Usage(requests=0, texts=0, tokens=0, cost=0.0)

    @property
    @abstractmethod
    def name(self) -> str:
        """The model and whatever changes its vectors."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, in their order; no texts ask for nothing."""
        check_texts(texts)
        vectors = np.zeros((len(texts), self.known_dimension or 0), np.float32)
        for places, made, *_ in self.embed_as_ready(texts, range(len(texts))):
            if vectors.shape[1] != made.shape[1]:
                vectors = np.zeros((len(texts), made.shape[1]), np.float32)
            vectors[places] = made
        return vectors

    def embed_as_ready(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the vectors of the texts at these places as they are ready: see ``Embedder``."""
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """The name, which tells more than the settings: the package, the model's files or commit, the server."""
        return self.name

    @property
    def known_dimension(self) -> int | None:
        """The dimension as far as it is known without asking a service or loading a model."""
        return self._dimension

    @property
    def price(self) -> float | None:
        """US dollars for a million tokens; None where it is not known."""
        return self._price

    @property
    def usage(self) -> Usage:
        """Requests, texts, tokens and cost so far; tokens as the service counts them where it does."""
        is_known = self._price is not None and (self._used.tokens is not None or not self._price)
        cost = (self._price or 0.0) * (self._used.tokens or 0) / 1_000_000 if is_known else None
        return replace(self._used, cost=cost)

    def _count(self, requests: int = 0, texts: int = 0, tokens: int | None = 0) -> None:
        """Count what one step used; texts without tokens make the tokens unknown."""
        with _counting:
            used = self._used
            total = None if tokens is None or used.tokens is None else used.tokens + tokens
            self._used = Usage(used.requests + requests, used.texts + texts, total, None)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question, made like that of any text."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector


def check_embedder(candidate: object) -> None:
    """Raise ``ConfigurationError`` unless the object has a name and can embed; a class of embedders is none.

    Without ``dimension`` it is learned from the vectors, and without ``embed_query`` a question is embedded as a text.
    ``dimension`` is not read, which may have to ask a service for it.
    """
    if isinstance(candidate, type) or any(getattr_static(candidate, part, None) is None for part in ("name", "embed")):
        raise ConfigurationError(f"{preview(repr(candidate))} is not an embedder: give an object with name and embed")


def known_dimension(embedder: Embedder) -> int | None:
    """Return the embedder's dimension, None where it says that it would have to find it out."""
    if getattr_static(embedder, "known_dimension", None) is None:
        return getattr(embedder, "dimension", None)
    known: int | None = embedder.known_dimension  # type: ignore[attr-defined]  # optional
    return known


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return the vectors of many questions, together where the embedder can; raises as ``checked_vectors`` does."""
    if not texts:
        return _no_vectors(embedder)
    if hasattr(embedder, "embed_queries"):
        return _checked(embedder, embedder.embed_queries(texts), len(texts))
    if getattr(embedder, "symmetric", False) is True or not hasattr(embedder, "embed_query"):
        return _checked(embedder, embedder.embed(texts), len(texts))
    return _checked(embedder, [embedder.embed_query(text) for text in texts], len(texts))


def text_vectors(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """Return the vectors of texts, each distinct one embedded once; raises as ``checked_vectors`` does."""
    if not texts:
        return _no_vectors(embedder)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    vectors: Vectors = _checked(embedder, embedder.embed(list(numbers)), len(numbers))[
        [numbers[text] for text in texts]
    ]
    return vectors


def _no_vectors(embedder: Embedder) -> Vectors:
    return np.zeros((0, getattr(embedder, "dimension", 1)), np.float32)


def _checked(embedder: Embedder, vectors: object, count: int) -> Vectors:
    # Asked for its dimension afterwards, an embedder that learns it from its first vectors knows it.
    return checked_vectors(vectors, count, embedder.name, getattr(embedder, "dimension", None))
