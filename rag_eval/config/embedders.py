"""The embedders by name."""

from typing import Literal

from rag_eval.config.settings import Settings
from rag_eval.embedding.base import Embedder
from rag_eval.embedding.local import LocalEmbedder


class LocalEmbedderConfig(Settings):
    """The embedder that needs no network and no key."""

    type: Literal["local"] = "local"

    def build(self) -> Embedder:
        """The embedder."""
        return LocalEmbedder()
