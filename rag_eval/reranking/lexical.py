"""Reranking by words: needs no model, no key and no network."""

from collections.abc import Sequence

import numpy as np

from rag_eval.retrieval.base import C
from rag_eval.retrieval.bm25 import BM25Index, check_parameters


class LexicalReranker:
    """BM25 among the candidates; those that share no word with the query keep their order, after the others.

    Raises ``ConfigurationError`` on k1 < 0 or b outside [0, 1].
    """

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        check_parameters(k1, b)
        self._k1, self._b = k1, b

    @property
    def name(self) -> str:
        """The parameters of BM25."""
        return f"LexicalReranker(k1={self._k1}, b={self._b})"

    def rerank(self, query: str, chunks: Sequence[C], top_k: int) -> list[C]:
        """The ``top_k`` best of the chunks, best first; equal scores keep their order."""
        scores = BM25Index([chunk.content for chunk in chunks], self._k1, self._b).scores(query)
        return [chunks[number] for number in np.argsort(-scores, kind="stable")[:top_k].tolist()]
