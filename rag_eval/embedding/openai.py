"""Embeddings from OpenAI, or from any server that speaks its protocol."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.embedding.batching import Batch, RequestLimits, TooLong, make_batches
from rag_eval.embedding.checks import check_texts
from rag_eval.embedding.openai_answer import BadAnswerError, read_tokens, read_vectors
from rag_eval.embedding.openai_client import DEFAULT_HOST, OpenAIClient
from rag_eval.embedding.retrying import Failure, RetryPolicy
from rag_eval.embedding.usage import Usage, UsageCounter
from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError, preview
from rag_eval.tokens import count_tokens

if TYPE_CHECKING:
    import openai

EncodingFormat = Literal["base64", "float"]

DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
"""How many numbers a vector of a known model has unless fewer are asked for."""

PRICES = {"text-embedding-3-small": 0.02, "text-embedding-3-large": 0.13, "text-embedding-ada-002": 0.10}
"""OpenAI's list prices in US dollars a million tokens, as of May 2026."""


class OpenAIEmbedder:
    """A model behind OpenAI's embeddings API.

    ``base_url`` and ``api_key`` default to ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``, and then to OpenAI's address.
    Texts travel in batches within ``limits``, ``concurrency`` at a time; vectors come back in the order of the texts.
    A text of more tokens than the limit is refused by name, or cut to the limit with ``too_long="truncate"``. The
    empty text, which OpenAI refuses, has the zero vector and is not sent. Rate limits, server errors, time-outs,
    broken connections and cut answers are retried by ``retries``; ``timeout`` bounds one request, in seconds.
    ``encoding_format="float"`` is for servers that do not know base64. ``price_per_million_tokens`` (US dollars)
    overrides the known price; for other models and other servers the cost is unknown without it.

    Raises ``ServiceError`` when the service fails for good or answers vectors that cannot be right (another count,
    another size, NaN), of the kind ``RequestRefusedError`` where trying again will not help; ``ConfigurationError`` on
    settings or texts that it cannot take.
    """

    symmetric = True
    remote = True

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        dimensions: int | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        too_long: TooLong = "refuse",
        limits: RequestLimits | None = None,
        encoding_format: EncodingFormat = "base64",
        concurrency: int = 4,
        timeout: float = 60.0,
        retries: RetryPolicy | None = None,
        price_per_million_tokens: float | None = None,
    ) -> None:
        _check_settings(model, dimensions, too_long, encoding_format, concurrency)
        self._client = OpenAIClient(base_url, api_key, timeout)
        self._model, self._dimensions, self._encoding_format = model, dimensions, encoding_format
        self._too_long, self._concurrency = too_long, concurrency
        self._limits, self._retries = limits or RequestLimits(), retries or RetryPolicy()
        self._known = self._dimension = dimensions or DIMENSIONS.get(model)
        self._learning = threading.Lock()
        if price_per_million_tokens is None and self._client.host == DEFAULT_HOST:
            price_per_million_tokens = PRICES.get(model)
        self._counter = UsageCounter(price_per_million_tokens)

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.name!r})"

    @property
    def name(self) -> str:
        """Model and dimension; the server where it is not OpenAI's; the limit where texts are cut to it."""
        name = self._model if self._known is None else f"{self._model}/{self._known}"
        if self._client.server != DEFAULT_HOST:
            name += f"@{self._client.server}"
        if self._too_long == "truncate" and self._limits.max_tokens_per_text is not None:
            name += f"/first-{self._limits.max_tokens_per_text}-{self._limits.encoding}"
        return name

    @property
    def dimension(self) -> int:
        """How many numbers a vector has: known, or learned from the first answer, which this asks for if need be."""
        if self._dimension is None:
            self.embed(["dimension"])
        if self._dimension is None:
            raise ServiceError(f"{self.name} answered without telling how many numbers a vector has")
        return self._dimension

    @property
    def known_dimension(self) -> int | None:
        """The dimension as far as it is known without asking."""
        return self._dimension

    @property
    def usage(self) -> Usage:
        """Requests, texts, tokens as the service counts them (by ``limits.encoding`` where it does not) and cost."""
        return self._counter.usage

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of the texts, in their order; no texts ask for nothing."""
        check_texts(texts)
        vectors = np.zeros((len(texts), self._dimension or 0), np.float32)
        for places, rows in self.embed_as_ready(texts, range(len(texts))):
            if vectors.shape[1] != rows.shape[1]:
                vectors = np.zeros((len(texts), rows.shape[1]), np.float32)
            vectors[places] = rows
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a question, made like that of any text."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    def embed_as_ready(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[list[int], Vectors]]:
        """The vectors of the texts at these places, a batch whenever an answer is there.

        After a batch has failed for good no other is begun, those under way are handed over, and then it raises.
        """
        batches = make_batches(texts, places, self._limits, self._too_long, self._model)
        waiting = iter(batches)
        stopped = threading.Event()
        failed: list[tuple[Batch, Failure]] = []
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="openai-embedder") as pool:
            try:
                running: dict[Future[Vectors | Failure], Batch] = {
                    pool.submit(self._ask, batch, stopped): batch for batch in islice(waiting, self._concurrency)
                }
                while running:
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        batch, answer = running.pop(future), future.result()
                        if isinstance(answer, Failure):
                            failed.append((batch, answer))
                            stopped.set()
                            continue
                        if not failed:
                            running |= {
                                pool.submit(self._ask, following, stopped): following
                                for following in islice(waiting, 1)
                            }
                        yield batch.places, answer
            finally:
                stopped.set()
        if failed:
            raise self._error(*failed[0])
        empty = [place for place in places if not texts[place]]
        if empty:
            yield empty, np.zeros((len(empty), self.dimension), np.float32)

    def _ask(self, batch: Batch, stopped: threading.Event) -> Vectors | Failure:
        return self._retries.run(lambda seconds_left: self._attempt(batch, seconds_left), stopped)

    def _attempt(self, batch: Batch, seconds_left: float) -> Vectors | Failure:
        body: dict[str, Any] = {"model": self._model, "input": batch.texts, "encoding_format": self._encoding_format}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions

        def send(sdk: "openai.OpenAI", timeout: float) -> AbstractContextManager[Any]:
            return sdk.embeddings.with_streaming_response.create(**body, timeout=timeout)

        answer = self._client.request(send, seconds_left)
        self._counter.add(requests=1)
        if isinstance(answer, Failure):
            return answer
        try:
            vectors = read_vectors(answer, len(batch.texts), self._dimension)
            self._learn(vectors.shape[1])
        except BadAnswerError as error:
            told = f"{self._client.host} {error}"
            return Failure(told, "check that model, dimensions and encoding_format suit the server")
        tokens = read_tokens(answer)
        if tokens is None:
            tokens = sum(count_tokens(text, self._limits.encoding) for text in batch.texts)
        self._counter.add(texts=len(batch.texts), tokens=tokens)
        return vectors

    def _learn(self, dimension: int) -> None:
        with self._learning:
            self._dimension = self._dimension or dimension
            if self._dimension != dimension:
                raise BadAnswerError(f"answered vectors of {dimension} numbers, and of {self._dimension} before")

    def _error(self, batch: Batch, failure: Failure) -> ServiceError:
        first, last = batch.places[0], batch.places[-1]
        which = f"text {first}" if first == last else f"texts {first} to {last}"
        kind = ServiceError if failure.may_pass else RequestRefusedError
        return kind(
            f"{self.name} gave no vectors for {which} (the first is {preview(batch.texts[0])}): "
            f"{failure.reason}; {failure.advice}"
        )


def _check_settings(model: str, dimensions: int | None, too_long: str, encoding_format: str, concurrency: int) -> None:
    if not model:
        raise ConfigurationError("the model has no name: give one, such as 'text-embedding-3-small'")
    for setting, value in (("dimensions", dimensions), ("concurrency", concurrency)):
        if value is not None and value < 1:
            raise ConfigurationError(f"{setting} is {value}: give at least 1")
    for setting, choice, choices in (
        ("too_long", too_long, get_args(TooLong)),
        ("encoding_format", encoding_format, get_args(EncodingFormat)),
    ):
        if choice not in choices:
            raise ConfigurationError(f"{setting} is {choice!r}: use one of {', '.join(choices)}")
