"""The embedders by name. A key is never a setting: it is read from the environment when a service is asked."""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from rag_eval.benchmark.component import Component
from rag_eval.embedding.embedder import Embedder
from rag_eval.embedding.local import LocalEmbedder
from rag_eval.embedding.openai import EncodingFormat, OpenAIEmbedder, RequestLimits, TooLong
from rag_eval.embedding.sentence_transformers import SentenceTransformersEmbedder
from rag_eval.parts.settings import Address, Name
from rag_eval.retry import RetryPolicy


class _Embedder(Component):
    @abstractmethod
    def build(self) -> Embedder:
        """The embedder."""

    def check(self) -> None:
        """Build it: that needs no model and no network."""
        self.build()


class LocalEmbedderConfig(_Embedder):
    """The embedder that needs no network and no key."""

    type: Literal["local"] = "local"

    @property
    def identity(self) -> str | None:
        """The model: its weights come with a package, and change when that does."""
        return LocalEmbedder().name

    def build(self) -> Embedder:
        """The embedder."""
        return LocalEmbedder()


class OpenAIEmbedderConfig(_Embedder):
    """A model of OpenAI, or of a server that speaks its protocol; the key is OPENAI_API_KEY of the environment."""

    always_shown = ("model",)
    running = (
        "max_texts",
        "max_tokens",
        "encoding_format",
        "concurrency",
        "timeout",
        "max_retries",
        "price_per_million_tokens",
    )

    @property
    def identity(self) -> str | None:
        """The model and the server, which the environment (OPENAI_BASE_URL) may name."""
        return self.build().name

    type: Literal["openai"] = "openai"
    model: Name = Field(default="text-embedding-3-small", description="The model's name.")
    dimensions: StrictInt | None = Field(default=None, ge=1, description="How many numbers to ask for; null: all.")
    base_url: Address | None = Field(
        default=None, description="Where the service is, without credentials; null: OPENAI_BASE_URL, else OpenAI's own."
    )
    too_long: TooLong = Field(default="refuse", description="What to do with a text of more than max_tokens_per_text.")
    max_texts: StrictInt = Field(default=2_048, ge=1, description="The most texts of one request.")
    max_tokens: StrictInt | None = Field(default=300_000, ge=1, description="The most tokens of one request.")
    max_tokens_per_text: StrictInt | None = Field(default=8_192, ge=1, description="The most tokens of one text.")
    encoding: Name = Field(default="cl100k_base", description="The tiktoken encoding that counts tokens.")
    encoding_format: EncodingFormat = Field(default="base64", description="float for servers without base64.")
    concurrency: StrictInt = Field(default=4, ge=1, description="How many requests run at once.")
    timeout: StrictFloat = Field(default=60.0, gt=0, description="Seconds that one request may take.")
    max_retries: StrictInt = Field(default=5, ge=0, description="How often a failed request is sent again.")
    price_per_million_tokens: StrictFloat | None = Field(
        default=None, ge=0, description="US dollars; null: OpenAI's list price where it is known."
    )

    @property
    def remote(self) -> bool:
        """Always."""
        return True

    def build(self) -> Embedder:
        """The embedder; raises ``ConfigurationError`` on limits that contradict each other or an unknown encoding."""
        return OpenAIEmbedder(
            self.model,
            dimensions=self.dimensions,
            base_url=self.base_url,
            too_long=self.too_long,
            limits=RequestLimits(self.max_texts, self.max_tokens, self.max_tokens_per_text, self.encoding),
            encoding_format=self.encoding_format,
            concurrency=self.concurrency,
            timeout=self.timeout,
            retries=RetryPolicy(max_retries=self.max_retries),
            price_per_million_tokens=self.price_per_million_tokens,
        )


class SentenceTransformersConfig(_Embedder):
    """A model of the sentence-transformers library (extra ``sentence-transformers``)."""

    always_shown = ("model",)
    running = ("device", "batch_size", "local_files_only")

    type: Literal["sentence-transformers"] = "sentence-transformers"
    model: Name = Field(description="The model's name or folder.")
    revision: Name | None = Field(default=None, description="The model's version: a branch, a tag or a commit.")
    device: Name | None = Field(
        default=None, description="Where it runs, such as cpu or cuda; null: the best there is."
    )
    batch_size: StrictInt = Field(default=32, ge=1, description="How many texts are embedded at once.")
    normalize: StrictBool = Field(default=False, description="Whether vectors are scaled to length 1.")
    truncate_dim: StrictInt | None = Field(default=None, ge=1, description="How many leading numbers are kept.")
    local_files_only: StrictBool = Field(default=True, description="false lets it download the model.")

    @property
    def identity(self) -> str | None:
        """The model with the digest of its folder, or its commit."""
        return self.build().name

    @property
    def remote(self) -> bool:
        """Where the model may be downloaded."""
        return not self.local_files_only

    def build(self) -> Embedder:
        """The embedder; the model is loaded when it is first used."""
        return SentenceTransformersEmbedder(self.model, **self.model_dump(exclude={"type", "model"}))


EmbedderConfig = Annotated[
    LocalEmbedderConfig | OpenAIEmbedderConfig | SentenceTransformersConfig, Field(discriminator="type")
]
"""Any of the embedders, told apart by ``type``."""
