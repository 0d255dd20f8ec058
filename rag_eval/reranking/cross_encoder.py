"""Reranking by a cross-encoder that runs on this machine."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rag_eval.errors import ConfigurationError
from rag_eval.model_files import model_name
from rag_eval.retrieval.base import C


class CrossEncoderModel(Protocol):
    """What is needed of a model; ``sentence_transformers.CrossEncoder`` has it."""

    def predict(self, pairs: list[tuple[str, str]], /) -> Any:
        """A score for each (query, text), higher is better."""


class CrossEncoderReranker:
    """Orders candidates by the scores of a cross-encoder.

    ``model`` is a name or folder, loaded with the extra ``sentence-transformers`` from what is on this machine
    (``allow_download=True`` lets it fetch the model), or an object with ``predict``.
    Raises ``ConfigurationError`` when the extra is missing, the model is not there, or a score is not a number.
    """

    def __init__(
        self, model: str | CrossEncoderModel, *, allow_download: bool = False, name: str | None = None
    ) -> None:
        self._model = _load(model, allow_download) if isinstance(model, str) else model
        self._name = name or (model_name(model) if isinstance(model, str) else type(model).__name__)

    @property
    def name(self) -> str:
        """The model with the digest of its folder or its commit, where it was loaded here."""
        return f"CrossEncoderReranker({self._name})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first; equal scores keep their order."""
        scores = np.asarray(self._model.predict([(query, chunk.content) for chunk in chunks]), np.float64).reshape(-1)
        if len(scores) != len(chunks) or not np.isfinite(scores).all():
            raise ConfigurationError(
                f"{self.name} gave {len(scores)} scores for {len(chunks)} chunks, or one that is not a number: "
                "use a model with one output"
            )
        return [chunks[number] for number in np.argsort(-scores, kind="stable")[:top_k].tolist()]


def _load(model: str, allow_download: bool) -> CrossEncoderModel:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise ConfigurationError(
            "a cross-encoder by name needs sentence-transformers: pip install 'rag-eval[sentence-transformers]'"
        ) from None
    try:
        loaded: CrossEncoderModel = CrossEncoder(model, local_files_only=not allow_download)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the cross-encoder {model!r} is not on this machine ({error}): give its folder, or allow_download=True"
        ) from None
    return loaded
