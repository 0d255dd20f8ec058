"""Embeddings from OpenAI, or from any server that speaks its protocol."""

import threading
from base64 import b64decode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictFloat

from rag_eval.embedding.embedder import BuiltInEmbedder, Vectors
from rag_eval.errors import ConfigurationError, RequestRefusedError, ServiceError, preview
from rag_eval.llm.client import DEFAULT_HOST, OpenAIClient, missing_key
from rag_eval.parts import PythonOnly, Running, Shown, part
from rag_eval.parts.part_settings import Address, Count, Name, OptionalCount, Secret, Whole, revealed
from rag_eval.retry import Failure, RetryPolicy
from rag_eval.tokens import check_encoding, count_tokens, token_ends
from rag_eval.types.ids import encode_utf8

if TYPE_CHECKING:
    import openai

TooLong = Literal["refuse", "truncate"]
NAMED_IN_ERRORS = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """The texts of one request and their places in what was given."""

    places: list[int]
    texts: list[str]

    @property
    def pairs(self) -> Iterator[tuple[int, str]]:
        """Each place with its text."""
        return zip(self.places, self.texts, strict=True)


def make_batches(texts: Sequence[str], places: Sequence[int], limits: "OpenAIEmbedder") -> list[Batch]:
    """Return the texts at these places in as few batches as the limits allow in this order, without empty texts.

    A text of too many tokens is cut to as many as fit, or all of them are refused with a ``ConfigurationError`` that
    names them. Raises ``TextEncodingError`` on a lone surrogate.
    """
    kept = [(place, texts[place]) for place in places if texts[place]]
    sizes = [len(encode_utf8(text, f"text {place}")) for place, text in kept]
    # A token is at least a byte: where the bytes fit, the tokens do, and nothing need be counted.
    if sum(sizes) > (limits.max_tokens or sum(sizes)) or max(sizes, default=0) > (limits.max_tokens_per_text or 2**63):
        sizes = [count_tokens(text, limits.encoding) for _, text in kept]
        if limits.max_tokens_per_text is not None:
            kept, sizes = _shortened(kept, sizes, limits.max_tokens_per_text, limits)
    batches: list[Batch] = []
    filled = 0
    for (place, text), size in zip(kept, sizes, strict=True):
        full = not batches or len(batches[-1].texts) == limits.max_texts
        if full or (limits.max_tokens is not None and filled + size > limits.max_tokens):
            batches.append(Batch([], []))
            filled = 0
        batches[-1].places.append(place)
        batches[-1].texts.append(text)
        filled += size
    return batches


def truncate(text: str, max_tokens: int, encoding: str) -> str:
    """Return the longest beginning of the text that ends with a token and has at most ``max_tokens`` of them."""
    ends = token_ends(text, encoding)
    keep = min(max_tokens, len(ends))
    # Cut off from what followed, the end of the text may be encoded in more tokens than before.
    while keep and count_tokens(text[: ends[keep - 1]], encoding) > max_tokens:
        keep -= 1
    return text[: ends[keep - 1]] if keep else ""


def _shortened(
    kept: list[tuple[int, str]], sizes: list[int], limit: int, settings: "OpenAIEmbedder"
) -> tuple[list[tuple[int, str]], list[int]]:
    over = [(place, text, size) for (place, text), size in zip(kept, sizes, strict=True) if size > limit]
    if over and settings.too_long == "refuse":
        named = ", ".join(
            f"text {place} has {size:,} ({preview(text[:80])})" for place, text, size in over[:NAMED_IN_ERRORS]
        )
        more = f" and {len(over) - NAMED_IN_ERRORS} more" if len(over) > NAMED_IN_ERRORS else ""
        raise ConfigurationError(
            f"{len(over)} of {len(kept)} texts have more than the {limit:,} tokens that {settings.model} takes: "
            f"{named}{more}; make smaller chunks, or choose too_long='truncate'"
        )
    shortened = [
        (place, truncate(text, limit, settings.encoding) if size > limit else text)
        for (place, text), size in zip(kept, sizes, strict=True)
    ]
    return shortened, [min(size, limit) for size in sizes]


class BadAnswerError(ValueError):
    """An answer that cannot be used, in words that continue "the service …"; nothing in it is quoted."""


def read_vectors(answer: object, count: int, dimension: int | None) -> Vectors:
    """Return the ``count`` vectors of an answer, ordered by their ``index``; floats and base64 are both understood.

    Raises ``BadAnswerError`` on a wrong count, an index that is missing, twice or out of range, vectors of another
    size than ``dimension`` (None: than the first), or numbers that are NaN or infinite.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list):
        raise BadAnswerError("answered no list of vectors")
    if len(data) != count:
        raise BadAnswerError(f"answered {len(data)} vectors for {count} texts")
    items = {item["index"]: item for item in data if isinstance(item, dict) and type(item.get("index")) is int}
    if items.keys() != set(range(count)):
        raise BadAnswerError(f"numbered the vectors of {count} texts with an index that is missing, twice or too large")
    vectors = [_read_vector(items[index].get("embedding"), index) for index in range(count)]
    size = dimension or len(vectors[0])
    for index, vector in enumerate(vectors):
        if len(vector) != size:
            raise BadAnswerError(f"answered {len(vector)} numbers for item {index}, not {size}")
        if not np.isfinite(vector).all():
            raise BadAnswerError(f"answered NaN or infinite numbers for item {index}")
    return np.stack(vectors)


def read_tokens(answer: object) -> int | None:
    """Return how many tokens the service says it read; None when it does not say."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if isinstance(usage, dict):
        for field in ("prompt_tokens", "total_tokens"):
            if type(usage.get(field)) is int and usage[field] > 0:
                return int(usage[field])
    return None


def _read_vector(value: object, index: int) -> Vectors:
    if not isinstance(value, str | list):
        raise BadAnswerError(f"answered no vector for item {index} but {type(value).__name__}")
    try:
        if isinstance(value, str):
            vector: Vectors = np.frombuffer(b64decode(value, validate=True), dtype="<f4")
        else:
            with np.errstate(over="ignore"):
                vector = np.array(value, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise BadAnswerError(f"answered a vector for item {index} that cannot be read") from None
    if vector.ndim != 1 or not len(vector):
        raise BadAnswerError(f"answered a vector of shape {vector.shape} for item {index}")
    return vector


EncodingFormat = Literal["base64", "float"]

DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
"""How many numbers a vector of a known model has unless fewer are asked for."""

PRICES = {"text-embedding-3-small": 0.02, "text-embedding-3-large": 0.13, "text-embedding-ada-002": 0.10}
"""OpenAI's list prices in US dollars a million tokens, as of May 2026."""


@part
class OpenAIEmbedder(BuiltInEmbedder):
    """A model behind OpenAI's embeddings API.

    The key is ``api_key``, or else ``OPENAI_API_KEY``. A text of more tokens than the limit is refused by name, or cut
    to it with ``too_long="truncate"``; of another tokenizer's model the counts are estimates. The empty text, which
    OpenAI refuses, has the zero vector and is not sent. Rate limits, server errors, time-outs, broken connections and
    cut answers are retried ``max_retries`` times, or as ``retries`` says. The cost of other models and servers is
    unknown without ``price_per_million_tokens``.

    Raises ``ServiceError`` when the service fails for good or answers vectors that cannot be right (another count,
    another size, NaN), of the kind ``RequestRefusedError`` where trying again will not help; ``ConfigurationError`` on
    settings or texts that it cannot take.
    """

    symmetric = True
    remote = True
    cost = "by the token, as price_per_million_tokens says"

    model: Annotated[Name, Shown, Field(description="The model's name.")] = "text-embedding-3-small"
    _: KW_ONLY
    dimensions: Annotated[OptionalCount, Field(description="How many numbers to ask for; null: all.")] = None
    base_url: Annotated[
        Address | None,
        Field(description="Where the service is, without credentials; null: OPENAI_BASE_URL, else OpenAI's own."),
    ] = None
    api_key: Annotated[Secret, PythonOnly] = None
    too_long: Annotated[TooLong, Field(description="What to do with a text of more than max_tokens_per_text.")] = (
        "refuse"
    )
    max_texts: Annotated[Count, Running, Field(description="The most texts of one request.")] = 2_048
    max_tokens: Annotated[OptionalCount, Running, Field(description="The most tokens of one request.")] = 300_000
    max_tokens_per_text: Annotated[OptionalCount, Field(description="The most tokens of one text.")] = 8_192
    encoding: Annotated[Name, Field(description="The tiktoken encoding that counts tokens.")] = "cl100k_base"
    encoding_format: Annotated[EncodingFormat, Running, Field(description="float for servers without base64.")] = (
        "base64"
    )
    concurrency: Annotated[Count, Running, Field(description="How many requests run at once.")] = 4
    timeout: Annotated[StrictFloat, Running, Field(gt=0, description="Seconds that one request may take.")] = 60.0
    max_retries: Annotated[Whole, Running, Field(description="How often a failed request is sent again.")] = 5
    price_per_million_tokens: Annotated[
        StrictFloat | None, Running, Field(ge=0, description="US dollars; null: OpenAI's list price where it is known.")
    ] = None
    retries: Annotated[RetryPolicy | None, PythonOnly] = None

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        most, longest = self.max_tokens, self.max_tokens_per_text
        if most is not None and longest is not None and longest > most:
            raise ConfigurationError(
                f"max_tokens_per_text is {longest:,} and max_tokens {most:,}: a text may not be longer than a request"
            )
        self._retries = self.retries or RetryPolicy(max_retries=self.max_retries)
        self._client = OpenAIClient(self.base_url, revealed(self.api_key), self.timeout)
        self._known = self._dimension = self.dimensions or DIMENSIONS.get(self.model)
        self._learning = threading.Lock()
        listed = PRICES.get(self.model) if self._client.host == DEFAULT_HOST else None
        self._price = listed if self.price_per_million_tokens is None else self.price_per_million_tokens

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.name!r})"

    @property
    def missing_key(self) -> str | None:
        """The variable that a key is missing in; what is cached needs none."""
        return missing_key(self.base_url, revealed(self.api_key))

    @property
    def name(self) -> str:
        """Model and dimension; the server where it is not OpenAI's; the limit where texts are cut to it."""
        name = self.model if self._known is None else f"{self.model}/{self._known}"
        if self._client.server != DEFAULT_HOST:
            name += f"@{self._client.server}"
        if self.too_long == "truncate" and self.max_tokens_per_text is not None:
            name += f"/first-{self.max_tokens_per_text}-{self.encoding}"
        return name

    @property
    def packages(self) -> tuple[str, ...]:
        """What cuts texts to the limit; where none is cut, no package decides a vector."""
        is_cut = self.too_long == "truncate" and self.max_tokens_per_text is not None
        return ("tiktoken",) if is_cut else ()

    @property
    def dimension(self) -> int:
        """How many numbers a vector has: known, or learned from the first answer, which this asks for if need be."""
        if self._dimension is None:
            self.embed(["dimension"])
        if self._dimension is None:
            raise ServiceError(f"{self.name} answered without telling how many numbers a vector has")
        return self._dimension

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens it reads of each text, by its tiktoken encoding and cut as it would cut them."""
        sent = make_batches(texts, range(len(texts)), self)
        counts = {place: count_tokens(text, self.encoding) for batch in sent for place, text in batch.pairs}
        return [counts.get(place, 0) for place in range(len(texts))]

    def embed_as_ready(self, texts: Sequence[str], places: Sequence[int]) -> Iterator[tuple[list[int], Vectors]]:
        """Yield the vectors of the texts at these places, a batch whenever an answer is there.

        After a batch has failed for good no other is begun, those under way are handed over, and then it raises.
        """
        stopped = threading.Event()
        failed: list[tuple[Batch, Failure]] = []

        def ask(batch: Batch) -> Vectors | None:
            if stopped.is_set():
                return None
            answer = self._retries.run(lambda seconds_left: self._attempt(batch, seconds_left), stopped)
            if not isinstance(answer, Failure):
                return answer
            failed.append((batch, answer))
            stopped.set()
            return None

        with ThreadPoolExecutor(self.concurrency, thread_name_prefix="openai-embedder") as pool:
            running = {pool.submit(ask, batch): batch for batch in make_batches(texts, places, self)}
            try:
                for future in as_completed(list(running)):
                    batch, vectors = running.pop(future), future.result()
                    if vectors is not None:
                        yield batch.places, vectors
            finally:
                stopped.set()
        if failed:
            raise self._error(*failed[0])
        empty = [place for place in places if not texts[place]]
        if empty:
            yield empty, np.zeros((len(empty), self.dimension), np.float32)

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
                raise BadAnswerError(f"answered vectors of {vectors.shape[1]} numbers, and of {known} before")
        except BadAnswerError as error:
            reason = f"{self._client.host} {error}"
            return Failure(reason, "check that model, dimensions and encoding_format suit the server")
        tokens = read_tokens(answer)
        if tokens is None:
            tokens = sum(count_tokens(text, self.encoding) for text in batch.texts)
        self._count(texts=len(batch.texts), tokens=tokens)
        return vectors

    def _error(self, batch: Batch, failure: Failure) -> ServiceError:
        first, last = batch.places[0], batch.places[-1]
        which = f"text {first}" if first == last else f"texts {first} to {last}"
        kind = ServiceError if failure.may_pass else RequestRefusedError
        return kind(
            f"{self.name} gave no vectors for {which} (the first is {preview(batch.texts[0])}): "
            f"{failure.reason}; {failure.advice}"
        )
