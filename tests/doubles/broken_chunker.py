"""A chunker that fails at its work, as a user's own may."""

from rag_eval.chunking.chunker import BuiltInChunker, Cut
from rag_eval.errors import ConfigurationError
from rag_eval.parts import part


@part
class BrokenChunker(BuiltInChunker):
    """Fails on every text."""

    label = "recursive-token 60/90"

    def cuts(self, text: str) -> list[Cut]:
        raise ConfigurationError("chunk_overlap is 90 and chunk_size is 60: the overlap must be smaller")
