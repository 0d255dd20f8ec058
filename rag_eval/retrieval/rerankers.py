"""Rerankers: by words, by the vectors of tokens, by Cohere's service, by a cross-encoder on this machine."""

import os
import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY
from functools import cached_property
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictBool, StrictFloat

from rag_eval.distribution import install_command
from rag_eval.embedding.local import LocalEmbedder, token_ids, token_vectors
from rag_eval.embedding.sentence_transformers import load_model, model_name
from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError
from rag_eval.parts import PythonOnly, Running, Shown, part
from rag_eval.parts.part_settings import Address, Name, Secret, Whole, name_or_object, revealed
from rag_eval.retrieval.bm25 import BM25Index
from rag_eval.retrieval.retriever import C
from rag_eval.retry import Failure, RetryPolicy, retry_after_of, status_may_pass


@part
class LexicalReranker:
    """BM25 among the candidates; those that share no word with the query keep their order, after the others.

    Raises ``ConfigurationError`` on k1 < 0 or b outside [0, 1].
    """

    k1: Annotated[StrictFloat, Field(ge=0, description="How much a word's repetition counts.")] = 1.5
    b: Annotated[StrictFloat, Field(ge=0, le=1, description="How much a chunk's length counts.")] = 0.75

    @property
    def name(self) -> str:
        """The parameters of BM25."""
        return f"LexicalReranker(k1={self.k1}, b={self.b})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best of the chunks, best first; equal scores keep their order."""
        return _best(BM25Index([chunk.content for chunk in chunks], self.k1, self.b).scores(query), chunks, top_k)


def _best(scores: NDArray[np.float64], chunks: Sequence[C], top_k: int) -> list[C]:
    return [chunks[number] for number in np.argsort(-scores, kind="stable")[:top_k].tolist()]


@part
class MaxSimReranker:
    """Every word of the query against its nearest in the candidate, mixed with the rank before; no key, no download.

    The vectors are those of the local embedder's tokens. A candidate's similarity is Σ over the query's tokens of
    length · (highest cosine among the candidate's tokens), the length being that of the token's vector; it is scaled to
    0 to 1 among the candidates, as is the rank before, and candidates are ordered by the mean of both, by ``weight``.
    (O. Khattab, M. Zaharia, *ColBERT*, 2020, on static vectors.)
    """

    packages = LocalEmbedder.packages

    weight: Annotated[
        StrictFloat, Field(ge=0, le=1, description="How much the similarity counts; what is left, the rank before.")
    ] = 0.5

    @property
    def name(self) -> str:
        """The weight."""
        return f"MaxSimReranker(weight={self.weight})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best of the chunks, best first; equal scores keep their order."""
        similar = _similarities(query, [chunk.content for chunk in chunks])
        width = np.ptp(similar) if len(similar) else 0
        scaled = (similar - similar.min()) / width if width else np.zeros(len(chunks))
        before = 1 - np.arange(len(chunks)) / max(1, len(chunks))
        scores = np.round(self.weight * scaled + (1 - self.weight) * before, 6)  # beyond what float32 decides
        return _best(scores, chunks, top_k)


def _similarities(query: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return Σ over the query's tokens of length · (highest cosine among a text's tokens), for each text."""
    asked = token_ids(query)
    tokens = [list(dict.fromkeys(token_ids(text))) for text in texts]
    similar = np.zeros(len(texts))
    having = [number for number, ids in enumerate(tokens) if ids]
    if asked and having:
        distinct, places = np.unique(np.concatenate([tokens[number] for number in having]), return_inverse=True)
        vectors, wanted = token_vectors(distinct.tolist()), token_vectors(asked)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = (wanted @ (vectors / np.where(lengths, lengths, 1)).T)[:, places]
        begins = np.cumsum([0, *(len(tokens[number]) for number in having[:-1])])
        similar[having] = np.maximum.reduceat(cosines, begins, axis=1).sum(axis=0, dtype=np.float64)
    return similar


KEY = "CO_API_KEY"
DEFAULT_MODEL = "rerank-v3.5"


@part
class CohereReranker:
    """Orders candidates by Cohere's relevance scores (extra ``cohere``; key from ``api_key`` or ``CO_API_KEY``).

    What may pass, such as too many requests or a lost connection, is tried again ``max_retries`` times. The service is
    connected to at the first use. That raises ``ConfigurationError`` without the extra or a key; ``ServiceError`` is
    raised when the service fails (``RequestRefusedError`` where trying again will not help), does not rank as many
    chunks as it was asked for, or names one that it was not given.
    """

    remote = True
    extra = ("cohere", "cohere")
    cost = "by the search, as Cohere charges it"

    model: Annotated[Name, Shown, Field(description="The model's name.")] = DEFAULT_MODEL
    _: KW_ONLY
    api_key: Annotated[Secret, PythonOnly] = None
    base_url: Annotated[
        Address | None, Field(description="Where the service is, without credentials; null: Cohere's own.")
    ] = None
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Seconds that one request may take.")] = 30.0
    max_retries: Annotated[Whole, Running, Field(description="How often a failed request is sent again.")] = 3

    def __post_init__(self) -> None:
        self._connecting = threading.Lock()
        self._connection: tuple[Any, Any] | None = None

    @property
    def missing_key(self) -> str | None:
        """The variable that a key is missing in; what is kept needs none."""
        return None if revealed(self.api_key) or os.environ.get(KEY) else KEY

    def close(self) -> None:
        """Close the connection."""
        with self._connecting:
            if self._connection is not None:
                self._connection[1].close()
                self._connection = None

    @property
    def name(self) -> str:
        """The model."""
        return f"CohereReranker({self.model})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best of the chunks, best first; without chunks nothing is asked."""
        if not chunks:
            return []
        client, texts = self._client(), [chunk.content for chunk in chunks]
        policy = RetryPolicy(max_retries=self.max_retries)
        answer = policy.run(lambda _seconds_left: self._ask(client, query, texts, top_k), threading.Event())
        if isinstance(answer, Failure):
            kind = RequestRefusedError if answer.is_refusal else ServiceError
            raise kind(f"{self.name} {answer.reason}: {answer.advice}")
        wanted = min(top_k, len(chunks))
        ranked = sorted(answer, key=lambda found: -found[1])[:wanted]
        order = [number for number, _ in ranked]
        if len(set(order)) != wanted or not all(0 <= number < len(chunks) for number in order):
            raise ServiceError(
                f"{self.name} ranked the chunks {order}, asked for {wanted} of 0 to {len(chunks) - 1}: "
                "its answer is unusable"
            )
        return [chunks[number] for number in order]

    def _ask(self, client: Any, query: str, texts: list[str], top_k: int) -> list[tuple[int, float]] | Failure:
        """Return the numbers and scores of the best, or why there are none."""
        import httpx
        from cohere.core.api_error import ApiError

        once = {"max_retries": 0}
        try:
            answer = client.rerank(model=self.model, query=query, documents=texts, top_n=top_k, request_options=once)
            return [(int(found.index), float(found.relevance_score)) for found in answer.results]
        except ApiError as error:
            status = error.status_code or 0
            may_pass, wait = status_may_pass(status), retry_after_of(error.headers or {})
            reason = f"failed with status {status} on {len(texts)} chunks"
            advice = "check the key, the model's name and the service's limits"
            return Failure(reason, advice, may_pass, wait, is_refusal=400 <= status < 500 and not may_pass)
        except httpx.HTTPError as error:
            return Failure(f"gave no usable answer ({type(error).__name__})", "try again", may_pass=True)
        except (AttributeError, TypeError, ValueError) as error:
            return Failure(f"gave no usable answer ({type(error).__name__})", "try again")

    def _client(self) -> Any:
        with self._connecting:
            self._connection = self._connection or self._connect()
            return self._connection[0]

    def _connect(self) -> tuple[Any, Any]:
        try:
            import cohere
        except ImportError:
            raise ConfigurationError(f"CohereReranker needs cohere: {install_command('cohere')}") from None
        key = revealed(self.api_key) or os.environ.get(KEY)
        if not key:
            raise ConfigurationError(f"CohereReranker needs a key: set {KEY}")
        import httpx

        # Our own connection: the SDK leaves the one it makes open.
        connection = httpx.Client(timeout=self.timeout)
        return cohere.ClientV2(api_key=key, base_url=self.base_url, httpx_client=connection), connection


class CrossEncoderModel(Protocol):
    """What is needed of a model; ``sentence_transformers.CrossEncoder`` has it."""

    def predict(self, pairs: list[tuple[str, str]], /) -> Any:
        """Return a score for each (query, text), higher is better."""


@part
class CrossEncoderReranker:
    """Orders candidates by the scores of a cross-encoder.

    ``model`` is a name or folder, loaded at the first use with the extra ``sentence-transformers`` from what is on
    this machine (``allow_download=True`` lets it fetch the model), or an object with ``predict``.
    Raises ``ConfigurationError`` when the extra or the model is missing, or a score is not a number.
    """

    packages = ("sentence-transformers", "transformers", "tokenizers", "torch")

    model: Annotated[
        str | CrossEncoderModel, name_or_object("predict"), Shown, Field(description="The model's name or folder.")
    ]
    _: KW_ONLY
    allow_download: Annotated[StrictBool, Running, Field(description="true lets it download the model.")] = False
    given_name: Annotated[str | None, PythonOnly] = Field(default=None, alias="name", kw_only=True)

    def __post_init__(self) -> None:
        self._loading = threading.Lock()
        self._loaded = None if isinstance(self.model, str) else self.model

    @property
    def name(self) -> str:
        """The model with the digest of its folder or its commit, where it was loaded here."""
        return f"CrossEncoderReranker({self.identity})"

    @cached_property
    def identity(self) -> str:
        """The given name, or the model with the digest of its folder or its commit, or the class of the object."""
        if self.given_name or not isinstance(self.model, str):
            return self.given_name or type(self.model).__name__
        return model_name(self.model)

    @property
    def extra(self) -> tuple[str, str] | None:
        """What loads a model by its name; an object is there already."""
        return ("sentence-transformers", "sentence_transformers") if isinstance(self.model, str) else None

    @property
    def remote(self) -> bool:
        """Where the model may be downloaded."""
        return self.allow_download

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """Return the ``top_k`` best of the chunks, best first; equal scores keep their order."""
        scores = np.asarray(
            self._predictor().predict([(query, chunk.content) for chunk in chunks]), np.float64
        ).reshape(-1)
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
