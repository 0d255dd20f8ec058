"""The contract of every built-in chunker, on texts that break chunkers."""

import pytest
from chunker_contract import TrigramEmbedder, check_contract
from strategies import NASTY_SAMPLES, known_texts

from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.fixed_token import FixedTokenChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.recursive import RecursiveCharacterChunker, RecursiveTokenChunker
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker
from rag_eval.embedding.local import LocalEmbedder


@pytest.mark.parametrize(
    ("chunker", "size"),
    [
        *((RecursiveCharacterChunker(*sizes), None) for sizes in ((1000, 200), (50, 0), (30, 29), (1, 0))),
        *((RecursiveTokenChunker(*sizes), None) for sizes in ((400, 0), (20, 19), (1, 0))),
        *((FixedTokenChunker(*sizes), None) for sizes in ((100, 0), (7, 3), (2, 1), (1, 0))),
        (SentenceChunker(50, 1), 50),
        (MarkdownChunker(40), 40),
        (SemanticChunker(LocalEmbedder(), 50, max_chunk_size=60), 60),
        (ClusterSemanticChunker(LocalEmbedder(), 80, 20), 80),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_short_texts(chunker: BuiltInChunker, size: int | None) -> None:
    for text in NASTY_SAMPLES:
        check_contract(chunker, text, size, may_be_blank=isinstance(chunker, FixedTokenChunker))


@pytest.mark.parametrize(
    ("chunker", "size"),
    [
        (SentenceChunker(100, 1), 100),
        (MarkdownChunker(100), 100),
        (SemanticChunker(TrigramEmbedder(), max_chunk_size=300), 300),
        (ClusterSemanticChunker(TrigramEmbedder(), 500, 200), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_long_texts(chunker: BuiltInChunker, size: int) -> None:
    for text in known_texts().values():
        check_contract(chunker, text, size)
