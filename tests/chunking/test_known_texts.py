import pytest
from chunker_contract import TrigramEmbedder, check_contract
from strategies import known_texts

from rag_eval.chunking.chunker import BuiltInChunker
from rag_eval.chunking.markdown import MarkdownChunker
from rag_eval.chunking.semantic import ClusterSemanticChunker, SemanticChunker
from rag_eval.chunking.sentence import SentenceChunker


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
def test_built_in_chunkers_keep_the_contract_on_long_ugly_texts(chunker: BuiltInChunker, size: int) -> None:
    for text in known_texts().values():
        check_contract(chunker, text, size)
