"""Define parts: classes whose fields are their settings, the kinds that name them, and functions that describe them.

::

    CHUNKER = Kind("chunker", {"markdown": "rag_eval.chunking.markdown:MarkdownChunker"})
    CHUNKER.make({"type": "markdown", "max_chunk_size": 500}) == MarkdownChunker(500)
"""

from rag_eval.lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
