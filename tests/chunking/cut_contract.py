"""What the cuts of every built-in chunker owe any text."""

from itertools import pairwise

from rag_eval.chunking.base import BuiltInChunker
from rag_eval.types.document import Document
from rag_eval.types.ids import DocumentId


def check_cuts(chunker: BuiltInChunker, text: str) -> None:
    """Exact slices, no cut empty, starts strictly increasing, no character lost but whitespace, twice the same."""
    cuts = chunker.cuts(text)
    assert cuts == chunker.cuts(text)
    assert all(0 <= start < end <= len(text) for start, end in cuts)
    assert all(before[0] < after[0] for before, after in pairwise(cuts))
    covered = 0
    for start, end in cuts:
        assert not text[covered : max(start, covered)].strip()
        covered = max(covered, end)
    assert not text[covered:].strip()
    chunks = chunker.chunk_with_positions(Document(DocumentId("d"), text))
    assert [(chunk.start, chunk.end, chunk.content) for chunk in chunks] == [
        (start, end, text[start:end]) for start, end in cuts
    ]
    assert chunker.chunk(text) == [chunk.content for chunk in chunks]
