"""Cut texts into chunks. To add a chunker, write its file and register it here."""

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

CONTEXT = Kind(
    "context",
    {
        "none": None,
        "headings": "rag_eval.chunking.context:HeadingContext",
        "neighbours": "rag_eval.chunking.context:NeighbourContext",
        "written": "rag_eval.chunking.context:WrittenContext",
    },
    foreign="rag_eval.chunking.context:ForeignContext",
    nothing="Chunks are searched as they are.",
)
"""Built-in contexts: text that is embedded and indexed together with a chunk."""
