"""Measure retrieval for RAG: find the chunking, embedding and search that return the right content."""

from rag_eval.distribution import VERSION
from rag_eval.lazy import lazy_names

__version__ = VERSION
__all__, __getattr__, __dir__ = lazy_names(__name__)
