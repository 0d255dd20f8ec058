"""Adapt embedders of other libraries and of users, recognised by their methods."""

import inspect
from collections.abc import Callable, Sequence

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
# Keep this order: chonkie's `embed` takes one text.
_TEXTS = ("embed_documents", "get_text_embedding_batch", "embed_batch", "embed", "encode")
_QUERY = ("embed_query", "get_query_embedding", "encode_query")


class ForeignEmbedder(Foreign):
    """An embedder that is not built in; coroutines are awaited, and an unknown dimension is learned.

    Raises ``ConfigurationError`` if the object cannot embed.
    """

    kind = "embedder"

    def __init__(self, source: object, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        embed_texts = _method(source, _TEXTS) or (source if callable(source) else None)
        if embed_texts is None or inspect.isclass(source):
            raise ConfigurationError(f"{preview(repr(source))} is not an embedder: give {ACCEPTED}")
        self._embed_texts: Callable[[list[str]], object] = embed_texts
        self._embed_query: Callable[[str], object] | None = _method(source, _QUERY)
        self._dimension: int | None = None

    @property
    def symmetric(self) -> bool:
        return self._embed_query is None or getattr(self.source, "symmetric", False) is True

    @property
    def known_dimension(self) -> int | None:
        """The object's own dimension, or that of the vectors so far."""
        known = getattr(self.source, "dimension", None) if self._dimension is None else None
        return known if isinstance(known, int) and not isinstance(known, bool) else self._dimension

    @property
    def dimension(self) -> int:
        return self.known_dimension or self.embed(["dimension"]).shape[1]

    @property
    def usage(self) -> Usage:
        return self.source.usage if isinstance(self.source, ReportsUsage) else Usage(0, 0, None, None)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a row for each text; raises ``ConfigurationError`` unless they are finite vectors of one length."""
        answer = self.ask(self._embed_texts, list(texts))
        vectors = checked_vectors(answer, len(texts), self.label, self.known_dimension)
        self._dimension = vectors.shape[1]
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        if self._embed_query is None:
            row: NDArray[np.float32] = self.embed([text])[0]
            return row
        answer = np.atleast_2d(np.asarray(self.ask(self._embed_query, text)))
        vector: NDArray[np.float32] = checked_vectors(answer, 1, self.label, self.known_dimension)[0]
        return vector


def _method(source: object, names: Sequence[str]) -> Callable[..., object] | None:
    return next((method for name in names if callable(method := getattr(source, name, None))), None)
