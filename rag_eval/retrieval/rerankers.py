"""Rerank by words, by token vectors, by Cohere's service, or by a local cross-encoder."""

import os
import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from typing import Annotated, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field, StrictBool, StrictFloat, ValidationError

from rag_eval.embedding.local import LocalEmbedder, token_ids, token_vectors
from rag_eval.embedding.sentence_transformers import load_model, model_name
from rag_eval.errors import ConfigurationError, ServiceError
from rag_eval.parts import PythonOnly, Running, Shown, part
from rag_eval.parts.part_settings import Address, Name, Secret, Whole, name_or_object, revealed
from rag_eval.retrieval.bm25 import BM25Index
from rag_eval.retrieval.http import JsonService
from rag_eval.retrieval.retriever import C


@part
class LexicalReranker:
    """Orders candidates by BM25; those that share no word with the query follow in their previous order.

    Raises ``ConfigurationError`` on k1 < 0 or b outside [0, 1].
    """

    k1: Annotated[StrictFloat, Field(ge=0, description="How much repetitions of a word count.")] = 1.5
    b: Annotated[StrictFloat, Field(ge=0, le=1, description="How much the length of a chunk counts.")] = 0.75

    @property
    def name(self) -> str:
        """The name, with the parameters of BM25."""
        return f"LexicalReranker(k1={self.k1}, b={self.b})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int | None = None) -> list[C]:
        """Return the chunks, best first, or the ``top_k`` best; equal scores keep their order."""
        return _best(BM25Index([chunk.content for chunk in chunks], self.k1, self.b).scores(query), chunks, top_k)


def _best(scores: NDArray[np.float64], chunks: Sequence[C], top_k: int | None) -> list[C]:
    return [chunks[number] for number in np.argsort(-scores, kind="stable")[:top_k].tolist()]


@part
class MaxSimReranker:
    """Compares each query token with its nearest token in the candidate, mixed with the previous rank; needs no key.

    The vectors are those of the local embedder's tokens. A candidate's similarity is Σ over the query's tokens of
    length · (highest cosine among the candidate's tokens), with the length of the token's vector. It is scaled to 0 to
    1 among the candidates, as is the previous rank, and candidates are ordered by the weighted mean of both. (O.
    Khattab, M. Zaharia, *ColBERT*, 2020, on static vectors.)
    """

    packages = LocalEmbedder.packages

    weight: Annotated[
        StrictFloat, Field(ge=0, le=1, description="Weight of the similarity; the previous rank has the rest.")
    ] = 0.5

    @property
    def name(self) -> str:
        return f"MaxSimReranker(weight={self.weight})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int | None = None) -> list[C]:
        similar = _similarities(query, [chunk.content for chunk in chunks])
        width = np.ptp(similar) if len(similar) else 0
        scaled = (similar - similar.min()) / width if width else np.zeros(len(chunks))
        before = 1 - np.arange(len(chunks)) / max(1, len(chunks))
        scores = np.round(self.weight * scaled + (1 - self.weight) * before, 6)  # beyond the precision of float32
        return _best(scores, chunks, top_k)


def _similarities(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return Σ over the query's tokens of length · (highest cosine among a text's tokens), for each text."""
    query_tokens = token_ids(query)
    tokens = [list(dict.fromkeys(token_ids(text))) for text in texts]
    similar = np.zeros(len(texts))
    having = [number for number, ids in enumerate(tokens) if ids]
    if query_tokens and having:
        distinct, places = np.unique(np.concatenate([tokens[number] for number in having]), return_inverse=True)
        vectors = token_vectors(distinct.tolist())
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = (token_vectors(query_tokens) @ (vectors / np.where(lengths, lengths, 1)).T)[:, places]
        begins = np.cumsum([0, *(len(tokens[number]) for number in having[:-1])])
        similar[having] = np.maximum.reduceat(cosines, begins, axis=1).sum(axis=0, dtype=np.float64)
    return similar


KEY = "CO_API_KEY"
DEFAULT_MODEL = "rerank-v3.5"
ADDRESS = "https://api.cohere.com"


class CohereResult(BaseModel):
    """A chunk, by its position in the request, and its score."""

    index: int
    relevance_score: float


class CohereAnswer(BaseModel):
    """The answer of Cohere's service."""

    results: list[CohereResult]


@part
class CohereReranker:
    """Orders candidates by Cohere's relevance scores (key from ``api_key`` or ``CO_API_KEY``).

    Failures that may pass, such as too many requests or a lost connection, are retried ``max_retries`` times. The first
    use raises ``ConfigurationError`` without a key; ``ServiceError`` is raised if the service fails
    (``RequestRefusedError`` if a retry cannot help) or does not rank the chunks.
    """

    remote = True
    cost = "by the search, at Cohere's prices"

    model: Annotated[Name, Shown, Field(description="Name of the model.")] = DEFAULT_MODEL
    _: KW_ONLY
    api_key: Annotated[Secret, PythonOnly] = None
    base_url: Annotated[
        Address | None, Field(description="Address of the service, without credentials; null: Cohere's.")
    ] = None
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Timeout of a request in seconds.")] = 30.0
    max_retries: Annotated[Whole, Running, Field(description="Maximum number of retries of a request.")] = 3

    @property
    def missing_key(self) -> str | None:
        """The environment variable of the missing key; cached answers need none."""
        return None if revealed(self.api_key) or os.environ.get(KEY) else KEY

    def close(self) -> None:
        """Close the connection."""
        if service := self.__dict__.pop("_service", None):
            service.close()

    @property
    def name(self) -> str:
        """The model."""
        return f"CohereReranker({self.model})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int | None = None) -> list[C]:
        """Return the chunks, best first, or the ``top_k`` best; without chunks nothing is sent."""
        if not chunks:
            return []
        texts = [chunk.content for chunk in chunks]
        top_k = len(chunks) if top_k is None else top_k
        body = {"model": self.model, "query": query, "documents": texts, "top_n": top_k}
        answer = self._service.ask("POST", f"{(self.base_url or ADDRESS).rstrip('/')}/v2/rerank", body)
        count = min(top_k, len(chunks))
        try:
            results = CohereAnswer.model_validate(answer).results
        except ValidationError:
            results = []
        order = [result.index for result in sorted(results, key=lambda result: -result.relevance_score)[:count]]
        if len(set(order)) != count or not all(0 <= number < len(chunks) for number in order):
            raise ServiceError(
                f"{self.name} did not rank {count} of {len(chunks)} chunks: check the model and base_url"
            )
        return [chunks[number] for number in order]

    @cached_property
    def _service(self) -> JsonService:
        return JsonService(self.name, self.timeout, self.max_retries, KEY, revealed(self.api_key))


class CrossEncoderModel(Protocol):
    """The interface of a model; ``sentence_transformers.CrossEncoder`` has it."""

    def predict(self, pairs: list[tuple[str, str]], /) -> ArrayLike:
        """Return a score for each (query, text), higher is better."""


@part
class CrossEncoderReranker:
    """Orders candidates by the scores of a cross-encoder.

    ``model`` is a name or folder, loaded at the first use with the extra ``sentence-transformers`` from this machine
    (``allow_download=True`` downloads it), or an object with ``predict``.
    Raises ``ConfigurationError`` if the extra or the model is missing, or a score is not a number.
    """

    packages = ("sentence-transformers", "transformers", "tokenizers", "torch")

    model: Annotated[
        str | CrossEncoderModel, name_or_object("predict"), Shown, Field(description="Name or folder of the model.")
    ]
    _: KW_ONLY
    allow_download: Annotated[StrictBool, Running, Field(description="Download the model if it is missing.")] = False
    given_name: Annotated[str | None, PythonOnly] = Field(default=None, alias="name", kw_only=True)

    def __post_init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded = None if isinstance(self.model, str) else self.model

    @property
    def name(self) -> str:
        """The model with the digest of its folder or its commit, if it was loaded by name."""
        return f"CrossEncoderReranker({self.identity})"

    @cached_property
    def identity(self) -> str:
        """The given name, or the model with the digest of its folder or its commit, or the class of the object."""
        if self.given_name or not isinstance(self.model, str):
            return self.given_name or type(self.model).__name__
        return model_name(self.model)

    @property
    def extra(self) -> tuple[str, str] | None:
        """The package that loads a model by its name; a loaded object needs none."""
        return ("sentence-transformers", "sentence_transformers") if isinstance(self.model, str) else None

    @property
    def remote(self) -> bool:
        """Whether it may download the model."""
        return self.allow_download

    def rerank(self, query: str, chunks: Sequence[C], top_k: int | None = None) -> list[C]:
        """Return the chunks, best first, or the ``top_k`` best; equal scores keep their order."""
        pairs = [(query, chunk.content) for chunk in chunks]
        scores = np.asarray(self._predictor().predict(pairs), np.float64).reshape(-1)
        if len(scores) != len(chunks) or not np.isfinite(scores).all():
            raise ConfigurationError(
                f"{self.name} gave {len(scores)} scores for {len(chunks)} chunks, or one that is not a number: "
                "use a model with one output"
            )
        return _best(scores, chunks, top_k)

    def _predictor(self) -> CrossEncoderModel:
        with self._loading:
            self._loaded = self._loaded or load_model("CrossEncoder", str(self.model), self.allow_download)
            return self._loaded
