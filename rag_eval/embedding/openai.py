"""Embeddings from OpenAI, or any server with its protocol."""

import threading
from base64 import b64decode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictFloat

from rag_eval.embedding.embedder import BatchEmbedder, EmbeddedBatch, Vectors
from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError, preview
from rag_eval.formatting import counted
from rag_eval.llm.client import DEFAULT_HOST, OpenAIClient, missing_key
from rag_eval.parts import PythonOnly, Running, Shown, part
from rag_eval.parts.part_settings import Address, Count, Name, OptionalCount, Secret, Whole, revealed
from rag_eval.retry import Failure, RetryPolicy
from rag_eval.tokens import check_encoding, count_tokens
from rag_eval.types.ids import encode_utf8

if TYPE_CHECKING:
    import openai

NAMED_IN_ERRORS = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """The texts of one request, and their indexes in the list of all texts."""

    places: list[int]
    texts: list[str]


def make_batches(texts: Sequence[str], limits: "OpenAIEmbedder") -> list[Batch]:
    """Return the non-empty texts, in their order, in as few batches as the limits allow.

    Raises ``ConfigurationError``, naming the texts, if some have too many tokens, and ``TextEncodingError`` on a lone
    surrogate.
    """
    filled = [(place, text) for place, text in enumerate(texts) if text]
    sizes = [len(encode_utf8(text, f"text {place}")) for place, text in filled]
    # A token has at least one byte: if the bytes fit, so do the tokens, which need not be counted.
    if sum(sizes) > (limits.max_tokens or sum(sizes)) or max(sizes, default=0) > (limits.max_tokens_per_text or 2**63):
        sizes = [count_tokens(text, limits.encoding) for _, text in filled]
        _check_sizes(filled, sizes, limits)
    batches: list[Batch] = []
    total = 0
    for (place, text), size in zip(filled, sizes, strict=True):
        is_full = not batches or len(batches[-1].texts) == limits.max_texts
        if is_full or (limits.max_tokens is not None and total + size > limits.max_tokens):
            batches.append(Batch([], []))
            total = 0
        batches[-1].places.append(place)
        batches[-1].texts.append(text)
        total += size
    return batches


def _check_sizes(texts: Sequence[tuple[int, str]], sizes: Sequence[int], limits: "OpenAIEmbedder") -> None:
    most = limits.max_tokens_per_text or max(sizes)
    over = [(place, text, size) for (place, text), size in zip(texts, sizes, strict=True) if size > most]
    if over:
        named = ", ".join(
            f"text {place} has {size:,} ({preview(text[:80])})" for place, text, size in over[:NAMED_IN_ERRORS]
        )
        more = f" and {len(over) - NAMED_IN_ERRORS} more" if len(over) > NAMED_IN_ERRORS else ""
        raise ConfigurationError(
            f"{len(over)} of {len(texts)} texts have more than the {most:,} tokens that {limits.model} takes: "
            f"{named}{more}; make smaller chunks"
        )


class BadAnswerError(ValueError):
    """An unusable answer, worded to follow "the service …"; nothing in it is quoted."""


def read_vectors(answer: object, count: int, dimension: int | None) -> Vectors:
    """Return the ``count`` vectors of an answer, as floats or base64, ordered by their ``index``.

    Raises ``BadAnswerError`` on a wrong count, an index that is missing, repeated or out of range, vectors of another
    dimension (None: than the first), or numbers that are NaN or infinite.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise BadAnswerError("returned no list of vectors")
    if len(data) != count:
        raise BadAnswerError(f"returned {len(data)} vectors for {count} texts")
    items = {item["index"]: item for item in data if isinstance(item, dict) and type(item.get("index")) is int}
    if items.keys() != set(range(count)):
        raise BadAnswerError(f"returned vectors of {count} texts with an index that is missing, repeated or too large")
    vectors = [_read_vector(items[index].get("embedding"), index) for index in range(count)]
    size = dimension or len(vectors[0])
    for index, vector in enumerate(vectors):
        if len(vector) != size:
            raise BadAnswerError(f"returned {len(vector)} numbers for item {index}, not {size}")
        if not np.isfinite(vector).all():
            raise BadAnswerError(f"returned NaN or infinite numbers for item {index}")
    return np.stack(vectors)


def _read_vector(value: object, index: int) -> Vectors:
    try:
        with np.errstate(over="ignore"):
            if isinstance(value, str):
                vector: Vectors = np.frombuffer(b64decode(value, validate=True), dtype="<f4")
            else:
                vector = np.array(value, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise BadAnswerError(f"returned a vector for item {index} that cannot be read") from None
    if vector.ndim != 1 or not len(vector):
        raise BadAnswerError(f"returned a vector of shape {vector.shape} for item {index}")
    return vector


def read_tokens(answer: object) -> int | None:
    """Return the number of tokens that the service read, or None if it does not report it."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counts = [usage.get(field) for field in ("prompt_tokens", "total_tokens")] if isinstance(usage, dict) else []
    return next((count for count in counts if type(count) is int and count > 0), None)


EncodingFormat = Literal["base64", "float"]

DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
"""The dimension of OpenAI's models unless fewer numbers are requested."""

PRICES = {"text-embedding-3-small": 0.02, "text-embedding-3-large": 0.13, "text-embedding-ada-002": 0.10}
"""OpenAI's list prices in US dollars per million tokens, as of May 2026."""


@part
class OpenAIEmbedder(BatchEmbedder):
    """A model behind OpenAI's embeddings API.

    The key is ``api_key``, or else ``OPENAI_API_KEY``. Texts of more tokens than the limit are refused by name; for
    models with another tokenizer the counts are estimates. The empty text, which OpenAI refuses, has the zero vector
    and is not sent. Rate limits, server errors, timeouts, broken connections and truncated answers are retried
    ``max_retries`` times, or as ``retries`` says. The cost of other models and servers is unknown without
    ``price_per_million_tokens``.

    Raises:
        ServiceError: The service fails for good, or answers a wrong count or size of vectors, or NaN; it is a
            ``RequestRefusedError`` if a retry cannot help.
        ConfigurationError: A setting or text is invalid.
    """

    symmetric = True
    remote = True
    cost = "by the token, at price_per_million_tokens"

    model: Annotated[Name, Shown, Field(description="Name of the model.")] = "text-embedding-3-small"
    _: KW_ONLY
    dimensions: Annotated[OptionalCount, Field(description="Number of dimensions to request; null: all.")] = None
    base_url: Annotated[
        Address | None,
        Field(description="Address of the service, without credentials; null: OPENAI_BASE_URL, else OpenAI's."),
    ] = None
    api_key: Annotated[Secret, PythonOnly] = None
    max_texts: Annotated[Count, Running, Field(description="Maximum number of texts per request.")] = 2_048
    max_tokens: Annotated[OptionalCount, Running, Field(description="Maximum number of tokens per request.")] = 300_000
    max_tokens_per_text: Annotated[OptionalCount, Running, Field(description="Maximum number of tokens per text.")] = (
        8_192
    )
    encoding: Annotated[Name, Running, Field(description="Tiktoken encoding to count tokens with.")] = "cl100k_base"
    encoding_format: Annotated[
        EncodingFormat, Running, Field(description="Encoding of the vectors; use float for servers without base64.")
    ] = "base64"
    concurrency: Annotated[Count, Running, Field(description="Maximum number of concurrent requests.")] = 4
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Timeout of a request in seconds.")] = 60.0
    max_retries: Annotated[Whole, Running, Field(description="Maximum number of retries of a request.")] = 5
    price_per_million_tokens: Annotated[
        StrictFloat | None,
        Running,
        Field(ge=0, description="Price in US dollars; null: OpenAI's list price, if known."),
    ] = None
    retries: Annotated[RetryPolicy | None, PythonOnly] = None

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        most, longest = self.max_tokens, self.max_tokens_per_text
        if most is not None and longest is not None and longest > most:
            raise ConfigurationError(
                f"max_tokens_per_text is {longest:,} and max_tokens {most:,}: a text must not be longer than a request"
            )
        self._retries = self.retries or RetryPolicy(max_retries=self.max_retries)
        self._client = OpenAIClient(self.base_url, revealed(self.api_key), self.timeout)
        self._known = self._dimension = self.dimensions or DIMENSIONS.get(self.model)
        self._learning = threading.Lock()
        listed = PRICES.get(self.model) if self._client.host == DEFAULT_HOST else None
        self._price = listed if self.price_per_million_tokens is None else self.price_per_million_tokens

    @property
    def missing_key(self) -> str | None:
        """The environment variable of the missing key; cached vectors need none."""
        return missing_key(self.base_url, revealed(self.api_key))

    @property
    def name(self) -> str:
        """The model and its dimension, and the server unless it is OpenAI's."""
        name = self.model if self._known is None else f"{self.model}/{self._known}"
        return name if self._client.server == DEFAULT_HOST else f"{name}@{self._client.server}"

    @property
    def dimension(self) -> int:
        """The dimension of a vector; unless it is known, a text is embedded."""
        if self._dimension is None:
            self.embed(["dimension"])
        if self._dimension is None:
            raise ServiceError(f"{self.name} returned no vector: check the model and base_url")
        return self._dimension

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, by its tiktoken encoding."""
        return [count_tokens(text, self.encoding) for text in texts]

    def embed_as_ready(self, texts: Sequence[str]) -> Iterator[EmbeddedBatch]:
        """Yield the vectors of the texts, one batch per answer.

        After a batch has failed for good, no further batch is sent, those in progress are finished, and the error is
        raised.
        """
        stopped = threading.Event()
        failed: list[tuple[Batch, Failure]] = []

        def embed(batch: Batch) -> Vectors | None:
            if stopped.is_set():
                return None
            answer = self._retries.run(lambda seconds_left: self._attempt(batch, seconds_left), stopped)
            if not isinstance(answer, Failure):
                return answer
            failed.append((batch, answer))
            stopped.set()
            return None

        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="openai-embedder") as pool:
            running = {pool.submit(embed, batch): batch for batch in make_batches(texts, self)}
            try:
                for future in as_completed(list(running)):
                    batch, vectors = running.pop(future), future.result()
                    if vectors is not None:
                        yield EmbeddedBatch(batch.places, vectors)
            finally:
                stopped.set()
        if failed:
            raise self._error(*failed[0])
        empty = [place for place, text in enumerate(texts) if not text]
        if empty:
            yield EmbeddedBatch(empty, np.zeros((len(empty), self.dimension), np.float32))

    def _attempt(self, batch: Batch, seconds_left: float) -> Vectors | Failure:
        body: dict[str, Any] = {"model": self.model, "input": batch.texts, "encoding_format": self.encoding_format}
        if self.dimensions is not None:
            body["dimensions"] = self.dimensions

        def send(sdk: "openai.OpenAI", timeout: float) -> AbstractContextManager[Any]:
            return sdk.embeddings.with_streaming_response.create(**body, timeout=timeout)

        answer = self._client.request(send, seconds_left)
        self._count(requests=1)
        if isinstance(answer, Failure):
            return answer
        try:
            vectors = read_vectors(answer, len(batch.texts), self._dimension)
            with self._learning:
                self._dimension = known = self._dimension or vectors.shape[1]
            if known != vectors.shape[1]:
                raise BadAnswerError(f"returned vectors of {vectors.shape[1]} numbers, and of {known} before")
        except BadAnswerError as error:
            reason = f"{self._client.host} {error}"
            return Failure(reason, "check that model, dimensions and encoding_format suit the server")
        tokens = read_tokens(answer)
        self._count(texts=len(batch.texts), tokens=sum(self.count_tokens(batch.texts)) if tokens is None else tokens)
        return vectors

    def _error(self, batch: Batch, failure: Failure) -> ServiceError:
        kind = ServiceError if failure.may_pass else RequestRefusedError
        texts = f"{counted(len(batch.texts), 'texts')} (the first is {preview(batch.texts[0])})"
        return kind(f"{self.name} gave no vectors for {texts}: {failure.reason}; {failure.advice}")
