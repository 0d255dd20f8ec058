"""What a benchmark is to compare, as validated settings."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rag_eval.chunking.base import PositionAwareChunker
from rag_eval.chunking.recursive_character import RecursiveCharacterChunker
from rag_eval.chunking.recursive_token import RecursiveTokenChunker
from rag_eval.embedding.base import Embedder
from rag_eval.embedding.local import LocalEmbedder


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecursiveCharacterConfig(_Settings):
    """Recursive chunks measured in characters."""

    type: Literal["recursive-character"] = "recursive-character"
    chunk_size: int = 1000
    chunk_overlap: int = 200

    @property
    def label(self) -> str:
        """The kind and its sizes, short enough for a table."""
        return f"{self.type} {self.chunk_size}/{self.chunk_overlap}"

    def build(self) -> PositionAwareChunker:
        """The chunker; raises ``ConfigurationError`` on sizes that cannot be."""
        return RecursiveCharacterChunker(self.chunk_size, self.chunk_overlap)


class RecursiveTokenConfig(_Settings):
    """Recursive chunks measured in tokens."""

    type: Literal["recursive-token"] = "recursive-token"
    chunk_size: int = 400
    chunk_overlap: int = 0
    encoding: str = "cl100k_base"

    @property
    def label(self) -> str:
        """The kind, its sizes, and the encoding where it is not the usual one."""
        encoding = "" if self.encoding == "cl100k_base" else f" {self.encoding}"
        return f"{self.type} {self.chunk_size}/{self.chunk_overlap}{encoding}"

    def build(self) -> PositionAwareChunker:
        """The chunker; raises ``ConfigurationError`` on sizes that cannot be or an unknown encoding."""
        return RecursiveTokenChunker(self.chunk_size, self.chunk_overlap, encoding=self.encoding)


ChunkerConfig = Annotated[RecursiveCharacterConfig | RecursiveTokenConfig, Field(discriminator="type")]


class LocalEmbedderConfig(_Settings):
    """The embedder that needs no network and no key."""

    type: Literal["local"] = "local"

    def build(self) -> Embedder:
        """The embedder."""
        return LocalEmbedder()


class Configuration(_Settings):
    """One way to chunk, embed and search."""

    chunker: ChunkerConfig
    embedder: LocalEmbedderConfig
    metrics: list[str]
    k: int

    @property
    def name(self) -> str:
        """What tells this configuration from the others of its benchmark."""
        return self.chunker.label


class BenchmarkConfig(_Settings):
    """Documents, the truth about them, and the ways to compare."""

    corpus: Path
    glob: str = "**/*.md"
    ground_truth: Path
    chunkers: list[ChunkerConfig] = Field(min_length=1)
    embedder: LocalEmbedderConfig = LocalEmbedderConfig()
    metrics: list[str] = Field(default=["span_recall", "span_precision", "span_iou"], min_length=1)
    k: int = Field(default=5, ge=1)

    def configurations(self) -> list[Configuration]:
        """Every way to compare, in the order given."""
        return [
            Configuration(chunker=chunker, embedder=self.embedder, metrics=self.metrics, k=self.k)
            for chunker in self.chunkers
        ]
