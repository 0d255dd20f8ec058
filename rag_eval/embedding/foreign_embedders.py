"""Embedders of other libraries and of users, told apart by what they can do; no library of theirs is imported."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.embedder import ReportsUsage, Usage, Vectors, checked_vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts.objects import Foreign, Origin

ACCEPTED = (
    "an object with embed(texts), a LangChain embedder (embed_documents), a LlamaIndex embedder "
    "(get_text_embedding_batch), a chonkie embedder (embed_batch), a sentence-transformers model (encode) "
    "or a function from a list of texts to vectors"
)
# chonkie's `embed` takes one text, so that it is asked after `embed_batch`.
_TEXTS = ("embed_documents", "get_text_embedding_batch", "embed_batch", "embed", "encode")
_QUERY = ("embed_query", "get_query_embedding", "encode_query")


class ForeignEmbedder(Foreign):
    """An embedder that is not built in; coroutines are awaited, and its dimension is learned where it does not tell it.

    Raises ``ConfigurationError`` when the object cannot embed.
    """

    kind = "embedder"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        many = _method(source, _TEXTS) or (source if callable(source) else None)
        if many is None or inspect.isclass(source):
            raise ConfigurationError(f"{preview(repr(source))} is not an embedder: give {ACCEPTED}")
        self._many: Callable[..., Any] = many
        self._one = _method(source, _QUERY)
        self._dimension: int | None = None

    @property
    def symmetric(self) -> bool:
        return self._one is None or getattr(self.source, "symmetric", False) is True

    @property
    def known_dimension(self) -> int | None:
        """The dimension where the object tells it, or once it has embedded."""
        known = getattr(self.source, "dimension", None) if self._dimension is None else None
        return known if isinstance(known, int) and not isinstance(known, bool) else self._dimension

    @property
    def dimension(self) -> int:
        """How many numbers a vector has; a text is embedded where that is not known."""
        return self.known_dimension or self.embed(["dimension"]).shape[1]

    @property
    def usage(self) -> Usage:
        """What the object says that it used; nothing is known where it does not."""
        return self.source.usage if isinstance(self.source, ReportsUsage) else Usage(0, 0, None, None)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a row per text; raises ``ConfigurationError`` on anything but finite vectors of one length."""
        vectors = checked_vectors(self.ask(self._many, list(texts)), len(texts), self.label, self.known_dimension)
        self._dimension = vectors.shape[1]
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a question; raises as ``embed`` does."""
        if self._one is None:
            row: NDArray[np.float32] = self.embed([text])[0]
            return row
        given = np.atleast_2d(np.asarray(self.ask(self._one, text)))
        vector: NDArray[np.float32] = checked_vectors(given, 1, self.label, self.known_dimension)[0]
        return vector


def _method(source: object, names: Sequence[str]) -> Callable[..., Any] | None:
    return next((found for name in names if callable(found := getattr(source, name, None))), None)
