"""The stages: each reads tables by reference, calls the library and keeps what it made.

Raise a stage's version whenever the same inputs would give another result.
"""

from rag_eval.pipeline.stages.chunking import chunk
from rag_eval.pipeline.stages.indexing import embed, index
from rag_eval.pipeline.stages.loading import load_corpus, load_ground_truth
from rag_eval.pipeline.stages.retrieval import fuse, rerank, retrieve_by_vector, retrieve_by_words
from rag_eval.pipeline.stages.scoring import score

__all__ = [
    "chunk",
    "embed",
    "fuse",
    "index",
    "load_corpus",
    "load_ground_truth",
    "rerank",
    "retrieve_by_vector",
    "retrieve_by_words",
    "score",
]
