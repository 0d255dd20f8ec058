"""The chunkers by name: settings that build them, with a label short enough for a table.

Every ``build`` raises ``ConfigurationError`` on settings that contradict each other and on an unknown encoding.
"""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from rag_eval.benchmark.component import Component
from rag_eval.benchmark.embedder_settings import EmbedderConfig, LocalEmbedderConfig
from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive import DEFAULT_SEPARATORS, RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.embedding.embedder import Embedder
from rag_eval.parts.settings import Name

Separators = Annotated[
    tuple[StrictStr, ...], Field(min_length=1, description="Where to split, in the order in which they are tried.")
]
Encoding = Annotated[Name, Field(description="The tiktoken encoding that counts tokens.")]


class _Chunker(Component):
    @abstractmethod
    def build(self) -> BuiltInChunker:
        """The chunker."""

    def check(self) -> None:
        """Build it: that needs no model and no network."""
        self.build()


class RecursiveCharacterConfig(_Chunker):
    """Recursive chunks measured in characters."""

    always_shown = ("chunk_size", "chunk_overlap")

    type: Literal["recursive-character"] = "recursive-character"
    chunk_size: StrictInt = Field(default=1000, ge=1, description="The most characters of a chunk.")
    chunk_overlap: StrictInt = Field(default=200, ge=0, description="The most characters shared with the chunk before.")
    separators: Separators = DEFAULT_SEPARATORS

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return RecursiveCharacterChunker(self.chunk_size, self.chunk_overlap, self.separators)


class RecursiveTokenConfig(_Chunker):
    """Recursive chunks measured in tokens."""

    always_shown = ("chunk_size", "chunk_overlap")

    type: Literal["recursive-token"] = "recursive-token"
    chunk_size: StrictInt = Field(default=400, ge=1, description="The most tokens of a chunk.")
    chunk_overlap: StrictInt = Field(default=0, ge=0, description="The most tokens shared with the chunk before.")
    separators: Separators = DEFAULT_SEPARATORS
    encoding: Encoding = "cl100k_base"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return RecursiveTokenChunker(self.chunk_size, self.chunk_overlap, self.separators, self.encoding)


class FixedTokenConfig(_Chunker):
    """Windows of a fixed number of tokens."""

    always_shown = ("tokens_per_chunk", "chunk_overlap")

    type: Literal["fixed-token"] = "fixed-token"
    tokens_per_chunk: StrictInt = Field(default=100, ge=1, description="The tokens of a chunk.")
    chunk_overlap: StrictInt = Field(default=0, ge=0, description="The tokens shared with the chunk before.")
    encoding: Encoding = "cl100k_base"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return FixedTokenChunker(self.tokens_per_chunk, self.chunk_overlap, self.encoding)


class SentenceConfig(_Chunker):
    """Whole sentences."""

    always_shown = ("max_chunk_size", "sentence_overlap")

    type: Literal["sentence"] = "sentence"
    max_chunk_size: StrictInt = Field(default=1000, ge=1, description="The most characters of a chunk.")
    sentence_overlap: StrictInt = Field(default=0, ge=0, description="The sentences shared with the chunk before.")

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return SentenceChunker(self.max_chunk_size, self.sentence_overlap)


class MarkdownConfig(_Chunker):
    """Sections and blocks of Markdown."""

    always_shown = ("max_chunk_size",)

    type: Literal["markdown"] = "markdown"
    max_chunk_size: StrictInt = Field(default=1000, ge=1, description="The most characters of a chunk.")

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return MarkdownChunker(self.max_chunk_size)


class EmbeddingChunkerConfig(_Chunker):
    """A chunker that asks an embedder how similar texts are."""

    embedder: EmbedderConfig = Field(default=LocalEmbedderConfig(), description="What tells how similar texts are.")

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return self.build_with(self.embedder.build())

    @abstractmethod
    def build_with(self, embedder: Embedder) -> BuiltInChunker:
        """The chunker with this embedder in place of one made from its settings."""

    @property
    def remote(self) -> bool:
        """Where its embedder is."""
        return self.embedder.remote


class SemanticConfig(EmbeddingChunkerConfig):
    """Sentences up to where the text turns to something else."""

    always_shown = ("breakpoint_percentile",)

    type: Literal["semantic"] = "semantic"
    breakpoint_percentile: StrictFloat = Field(
        default=95.0, ge=0, le=100, description="The percentile of the distances above which a chunk ends."
    )
    window: StrictInt = Field(default=1, ge=0, description="How many sentences on either side are embedded along.")
    max_chunk_size: StrictInt | None = Field(default=None, ge=1, description="The most characters; null: no limit.")

    def build_with(self, embedder: Embedder) -> BuiltInChunker:
        """The chunker."""
        return SemanticChunker(embedder, self.breakpoint_percentile, self.window, self.max_chunk_size)


class ClusterSemanticConfig(EmbeddingChunkerConfig):
    """Consecutive pieces grouped by how similar they are."""

    always_shown = ("max_chunk_size",)

    type: Literal["cluster-semantic"] = "cluster-semantic"
    max_chunk_size: StrictInt = Field(default=1000, ge=1, description="The most characters of a chunk.")
    piece_size: StrictInt | None = Field(default=None, ge=1, description="The most characters of a piece; null: usual.")

    def build_with(self, embedder: Embedder) -> BuiltInChunker:
        """The chunker."""
        return ClusterSemanticChunker(embedder, self.max_chunk_size, self.piece_size)


ChunkerConfig = Annotated[
    RecursiveCharacterConfig
    | RecursiveTokenConfig
    | FixedTokenConfig
    | SentenceConfig
    | MarkdownConfig
    | SemanticConfig
    | ClusterSemanticConfig,
    Field(discriminator="type"),
]
"""Any of the chunkers, told apart by ``type``."""
