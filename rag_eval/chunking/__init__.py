"""Cutting texts into chunks; a chunker is added by its file and its line here."""

from rag_eval.parts import Kind

CHUNKER = Kind(
    "chunker",
    {
        "recursive-character": "rag_eval.chunking.recursive:RecursiveCharacterChunker",
        "recursive-token": "rag_eval.chunking.recursive:RecursiveTokenChunker",
        "fixed-token": "rag_eval.chunking.fixed_token:FixedTokenChunker",
        "sentence": "rag_eval.chunking.sentence:SentenceChunker",
        "markdown": "rag_eval.chunking.markdown:MarkdownChunker",
        "semantic": "rag_eval.chunking.semantic:SemanticChunker",
        "cluster-semantic": "rag_eval.chunking.semantic:ClusterSemanticChunker",
    },
    foreign="rag_eval.chunking.foreign_chunkers:take_chunker",
)
