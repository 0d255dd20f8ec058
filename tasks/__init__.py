"""The tasks of the pipeline, one module for each step: import them into a flow of your own."""

from tasks.chunk import add_context, chunk
from tasks.corpus import find_documents, load_corpus
from tasks.embed import embed
from tasks.ground_truth import load_ground_truth
from tasks.index import index_vectors, index_words
from tasks.retrieve import ask_system, prepare_queries, retrieve, search
from tasks.score import score

__all__ = [
    "add_context",
    "ask_system",
    "chunk",
    "embed",
    "find_documents",
    "index_vectors",
    "index_words",
    "load_corpus",
    "load_ground_truth",
    "prepare_queries",
    "retrieve",
    "score",
    "search",
]
