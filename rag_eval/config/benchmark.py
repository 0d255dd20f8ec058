"""What a benchmark is to compare."""

from pathlib import Path

from pydantic import Field

from rag_eval.config.chunkers import ChunkerConfig
from rag_eval.config.embedders import LocalEmbedderConfig
from rag_eval.config.settings import Settings


class Configuration(Settings):
    """One way to chunk, embed and search."""

    chunker: ChunkerConfig
    embedder: LocalEmbedderConfig
    metrics: list[str]
    k: int

    @property
    def name(self) -> str:
        """What tells this configuration from the others of its benchmark."""
        return self.chunker.label


class BenchmarkConfig(Settings):
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
