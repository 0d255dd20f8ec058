"""What every built-in chunker owes any text, and an embedder to try the semantic ones with."""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.base import BuiltInChunker
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId


def check_contract(chunker: BuiltInChunker, text: str, max_size: int | None = None) -> None:
    """Exact slices, strictly increasing starts, nothing but whitespace lost, twice the same, the size kept."""
    chunks = chunker.chunk_with_positions(Document(DocumentId("d"), text))
    assert [chunk.content for chunk in chunks] == chunker.chunk(text)
    assert chunks == chunker.chunk_with_positions(Document(DocumentId("d"), text))
    covered = np.zeros(len(text), dtype=bool)
    previous = -1
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.content
        assert chunk.content.strip()
        assert chunk.start > previous
        assert max_size is None or len(chunk.content) <= max_size
        previous = chunk.start
        covered[chunk.start : chunk.end] = True
    assert not "".join(char for char, is_covered in zip(text, covered, strict=True) if not is_covered).strip()


class TrigramEmbedder:
    """Counts of hashed character trigrams: texts with common words are near, texts under three characters are zero."""

    name = "trigrams"
    dimension = 64

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            for i in range(len(text) - 2):
                vectors[row, zlib.crc32(text[i : i + 3].encode()) % self.dimension] += 1
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed([text])[0]
