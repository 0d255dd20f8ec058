"""Reranking by a cross-encoder that runs on this machine."""

import os
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np

from rag_eval.embedding.sentence_transformers import model_name
from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.retrieval.bm25 import BM25Index, check_parameters
from rag_eval.retrieval.retriever import C


class LexicalReranker:
    """BM25 among the candidates; those that share no word with the query keep their order, after the others.

    Raises ``ConfigurationError`` on k1 < 0 or b outside [0, 1].
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        check_parameters(k1, b)
        self._k1, self._b = k1, b

    @property
    def name(self) -> str:
        """The parameters of BM25."""
        return f"LexicalReranker(k1={self._k1}, b={self._b})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first; equal scores keep their order."""
        scores = BM25Index([chunk.content for chunk in chunks], self._k1, self._b).scores(query)
        return [chunks[number] for number in np.argsort(-scores, kind="stable")[:top_k].tolist()]


DEFAULT_MODEL = "rerank-v3.5"
PASSING = (408, 409, 429)
"""The refusals that may pass: time-out, conflict, too many requests."""


class CohereReranker:
    """Orders candidates by Cohere's relevance scores (extra ``cohere``; key from ``api_key`` or ``CO_API_KEY``).

    Answers 408, 429 and 5xx are tried again by the SDK, ``max_retries`` times. Raises ``ConfigurationError`` without
    the extra or a key, and ``ServiceError`` when the service fails (``RequestRefusedError`` where trying again will not
    help), does not rank as many chunks as it was asked for, or names one that it was not given.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 3,
    ) -> None:
        self._model = model
        self._options: dict[str, Any] = {"max_retries": max_retries}
        self._client, self._connection = _connect(api_key, base_url, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; also done on leaving a ``with`` block."""
        self._connection.close()

    @property
    def name(self) -> str:
        """The model."""
        return f"CohereReranker({self._model})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first; without chunks nothing is asked."""
        if not chunks:
            return []
        answer = self._ask(query, [chunk.content for chunk in chunks], top_k)
        if isinstance(answer, ServiceError):
            raise answer
        wanted = min(top_k, len(chunks))
        ranked = sorted(answer, key=lambda found: -found[1])[:wanted]
        order = [number for number, _ in ranked]
        if len(set(order)) != wanted or not all(0 <= number < len(chunks) for number in order):
            raise ServiceError(
                f"{self.name} ranked the chunks {order}, asked for {wanted} of 0 to {len(chunks) - 1}: "
                "its answer is unusable"
            )
        return [chunks[number] for number in order]

    def _ask(self, query: str, texts: list[str], top_k: int) -> list[tuple[int, float]] | ServiceError:
        """The numbers and scores of the best, or why there are none.

        A failure is a value, because the errors of the SDK hold the request's headers, the key among them, and an
        error raised while one is handled would carry it along.
        """
        import httpx
        from cohere.core.api_error import ApiError

        try:
            answer = self._client.rerank(
                model=self._model, query=query, documents=texts, top_n=top_k, request_options=self._options
            )
            return [(int(found.index), float(found.relevance_score)) for found in answer.results]
        except ApiError as error:
            status = error.status_code or 0
            kind = RequestRefusedError if 400 <= status < 500 and status not in PASSING else ServiceError
            return kind(
                f"{self.name} failed with status {status} on {len(texts)} chunks: "
                "check the key, the model's name and the service's limits"
            )
        except (httpx.HTTPError, AttributeError, TypeError, ValueError) as error:
            return ServiceError(f"{self.name} gave no usable answer ({type(error).__name__}): try again")


def _connect(api_key: str | None, base_url: str | None, timeout: float) -> Any:
    try:
        import cohere
    except ImportError:
        raise ConfigurationError("CohereReranker needs cohere: pip install 'rag-eval[cohere]'") from None
    key = api_key or os.environ.get("CO_API_KEY")
    if not key:
        raise ConfigurationError("CohereReranker needs a key: set CO_API_KEY")
    import httpx

    # Our own connection: the SDK leaves the one it makes open.
    connection = httpx.Client(timeout=timeout)
    return cohere.ClientV2(api_key=key, base_url=base_url, httpx_client=connection), connection


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
