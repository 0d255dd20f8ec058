"""What every built-in chunker owes any text, and an embedder to try the semantic ones with."""

import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rag_eval.chunking.chunker import BuiltInChunker, Cut
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId


def lost_text(text: str, cuts: Iterable[Cut]) -> str:
    """Return the characters outside all cuts, without whitespace."""
    lost, covered = [], 0
    for start, end in sorted(cuts):
        lost.append(text[covered:start])
        covered = max(covered, end)
    return "".join("".join([*lost, text[covered:]]).split())


def check_contract(chunker: BuiltInChunker, text: str, max_size: int | None = None, may_be_blank: bool = False) -> None:
    """Exact slices, starts strictly increasing, nothing but whitespace lost, twice the same, the size kept.

    ``may_be_blank`` allows chunks of whitespace alone, which windows of tokens can be.
    """
    cuts = chunker.cuts(text)
    assert cuts == chunker.cuts(text)
    assert all(0 <= start < end <= len(text) for start, end in cuts)
    assert all(before[0] < after[0] for before, after in pairwise(cuts))
    assert may_be_blank or all(text[start:end].strip() for start, end in cuts)
    assert not lost_text(text, cuts)
    assert max_size is None or all(end - start <= max_size for start, end in cuts)
    chunks = chunker.chunk_with_positions(Document(DocumentId("d"), text))
    assert [(chunk.start, chunk.end, chunk.content) for chunk in chunks] == [
        (start, end, text[start:end]) for start, end in cuts
    ]
    assert chunks == chunker.chunk_with_positions(Document(DocumentId("d"), text))
    assert chunker.chunk(text) == [chunk.content for chunk in chunks]


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
