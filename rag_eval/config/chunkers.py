"""The chunkers by name: settings that build them, with a label short enough for a table.

Every ``build`` raises ``ConfigurationError`` on settings that cannot be.
"""

from typing import Annotated, Literal

from pydantic import Field

from rag_eval.chunking.base import BuiltInChunker
from rag_eval.chunking.cluster_semantic import ClusterSemanticChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive_character import RecursiveCharacterChunker
from rag_eval.chunking.recursive_token import RecursiveTokenChunker
from rag_eval.chunking.semantic import SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.chunking.separators import DEFAULT_SEPARATORS
from rag_eval.config.embedders import LocalEmbedderConfig
from rag_eval.config.settings import Settings

USUAL_ENCODING = "cl100k_base"


class RecursiveCharacterConfig(Settings):
    """Recursive chunks measured in characters."""

    type: Literal["recursive-character"] = "recursive-character"
    chunk_size: int = 1000
    chunk_overlap: int = 200
    separators: tuple[str, ...] = DEFAULT_SEPARATORS

    @property
    def label(self) -> str:
        """The kind and its sizes."""
        return f"{self.type} {self.chunk_size}/{self.chunk_overlap}{_other_separators(self.separators)}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return RecursiveCharacterChunker(self.chunk_size, self.chunk_overlap, self.separators)


class RecursiveTokenConfig(Settings):
    """Recursive chunks measured in tokens."""

    type: Literal["recursive-token"] = "recursive-token"
    chunk_size: int = 400
    chunk_overlap: int = 0
    separators: tuple[str, ...] = DEFAULT_SEPARATORS
    encoding: str = USUAL_ENCODING

    @property
    def label(self) -> str:
        """The kind and its sizes, and the encoding where it is not the usual one."""
        others = _other_separators(self.separators) + _other_encoding(self.encoding)
        return f"{self.type} {self.chunk_size}/{self.chunk_overlap}{others}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return RecursiveTokenChunker(self.chunk_size, self.chunk_overlap, self.separators, self.encoding)


class FixedTokenConfig(Settings):
    """Windows of a fixed number of tokens."""

    type: Literal["fixed-token"] = "fixed-token"
    tokens_per_chunk: int = 100
    chunk_overlap: int = 0
    encoding: str = USUAL_ENCODING

    @property
    def label(self) -> str:
        """The kind and its sizes, and the encoding where it is not the usual one."""
        return f"{self.type} {self.tokens_per_chunk}/{self.chunk_overlap}{_other_encoding(self.encoding)}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return FixedTokenChunker(self.tokens_per_chunk, self.chunk_overlap, self.encoding)


class SentenceConfig(Settings):
    """Whole sentences."""

    type: Literal["sentence"] = "sentence"
    max_chunk_size: int = 1000
    sentence_overlap: int = 0

    @property
    def label(self) -> str:
        """The kind and its sizes."""
        return f"{self.type} {self.max_chunk_size}/{self.sentence_overlap}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return SentenceChunker(self.max_chunk_size, self.sentence_overlap)


class MarkdownConfig(Settings):
    """Sections and blocks of Markdown."""

    type: Literal["markdown"] = "markdown"
    max_chunk_size: int = 1000

    @property
    def label(self) -> str:
        """The kind and its size."""
        return f"{self.type} {self.max_chunk_size}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return MarkdownChunker(self.max_chunk_size)


class SemanticConfig(Settings):
    """Sentences up to where the text turns to something else."""

    type: Literal["semantic"] = "semantic"
    embedder: LocalEmbedderConfig = LocalEmbedderConfig()
    breakpoint_percentile: float = 95.0
    window: int = 1
    max_chunk_size: int | None = None

    @property
    def label(self) -> str:
        """The kind, the percentile, and the sizes that were set."""
        window = "" if self.window == 1 else f" window {self.window}"
        limit = "" if self.max_chunk_size is None else f" max {self.max_chunk_size}"
        return f"{self.type} p{self.breakpoint_percentile:g}{window}{limit}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return SemanticChunker(self.embedder.build(), self.breakpoint_percentile, self.window, self.max_chunk_size)


class ClusterSemanticConfig(Settings):
    """Consecutive pieces grouped by how similar they are."""

    type: Literal["cluster-semantic"] = "cluster-semantic"
    embedder: LocalEmbedderConfig = LocalEmbedderConfig()
    max_chunk_size: int = 1000
    piece_size: int | None = None

    @property
    def label(self) -> str:
        """The kind and its sizes."""
        pieces = "" if self.piece_size is None else f" of {self.piece_size}"
        return f"{self.type} {self.max_chunk_size}{pieces}"

    def build(self) -> BuiltInChunker:
        """The chunker."""
        return ClusterSemanticChunker(self.embedder.build(), self.max_chunk_size, self.piece_size)


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


def _other_separators(separators: tuple[str, ...]) -> str:
    return "" if separators == DEFAULT_SEPARATORS else f" by {'|'.join(map(repr, separators))}"


def _other_encoding(encoding: str) -> str:
    return "" if encoding == USUAL_ENCODING else f" {encoding}"
