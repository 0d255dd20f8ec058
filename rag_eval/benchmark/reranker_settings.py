"""The rerankers by name. A key is never a setting: it is read from the environment when a service is asked."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from rag_eval.benchmark.component import Component
from rag_eval.embedding.sentence_transformers import model_name
from rag_eval.parts.settings import Address, Name
from rag_eval.retrieval.rerankers import DEFAULT_MODEL, CohereReranker, CrossEncoderReranker, LexicalReranker
from rag_eval.retrieval.retriever import Reranker


class NoRerankerConfig(Component):
    """No reranking: the order of the search stands."""

    type: Literal["none"] = "none"

    def build(self) -> Reranker | None:
        """None."""
        return None


class LexicalRerankerConfig(Component):
    """BM25 among the candidates."""

    type: Literal["lexical"] = "lexical"
    k1: StrictFloat = Field(default=1.5, ge=0, description="How much a word's repetition counts.")
    b: StrictFloat = Field(default=0.75, ge=0, le=1, description="How much a chunk's length counts.")

    def build(self) -> Reranker | None:
        """The reranker."""
        return LexicalReranker(self.k1, self.b)


class CohereRerankerConfig(Component):
    """A model of Cohere, or of a compatible service (extra ``cohere``); the key is CO_API_KEY of the environment."""

    always_shown = ("model",)
    running = ("timeout", "max_retries")

    type: Literal["cohere"] = "cohere"
    model: Name = Field(default=DEFAULT_MODEL, description="The model's name.")
    base_url: Address | None = Field(
        default=None, description="Where the service is, without credentials; null: Cohere's own."
    )
    timeout: StrictFloat = Field(default=30.0, gt=0, description="Seconds that one request may take.")
    max_retries: StrictInt = Field(default=3, ge=0, description="How often a failed request is sent again.")

    @property
    def remote(self) -> bool:
        """Always."""
        return True

    def build(self) -> Reranker | None:
        """The reranker; raises ``ConfigurationError`` without the extra or a key."""
        return CohereReranker(self.model, base_url=self.base_url, timeout=self.timeout, max_retries=self.max_retries)


class CrossEncoderConfig(Component):
    """A cross-encoder on this machine (extra ``sentence-transformers``)."""

    always_shown = ("model",)
    running = ("allow_download",)

    type: Literal["cross-encoder"] = "cross-encoder"
    model: Name = Field(description="The model's name or folder.")
    allow_download: StrictBool = Field(default=False, description="true lets it download the model.")

    @property
    def identity(self) -> str | None:
        """The model with the digest of its folder, or its commit."""
        return model_name(self.model)

    @property
    def remote(self) -> bool:
        """Where the model may be downloaded."""
        return self.allow_download

    def build(self) -> Reranker | None:
        """The reranker; raises ``ConfigurationError`` when the extra or the model is missing."""
        return CrossEncoderReranker(self.model, allow_download=self.allow_download)


RerankerConfig = Annotated[
    NoRerankerConfig | LexicalRerankerConfig | CohereRerankerConfig | CrossEncoderConfig, Field(discriminator="type")
]
"""Any of the rerankers, told apart by ``type``."""
