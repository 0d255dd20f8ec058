"""What a search would find for a question: the passages that decide whether it has an answer."""

from collections.abc import Sequence

import numpy as np

from rag_eval.chunking.recursive_token import RecursiveTokenChunker
from rag_eval.embedding.base import Embedder, embed_queries, text_vectors
from rag_eval.retrieval.bm25 import BM25Index, best_first
from rag_eval.stores.vectors import unit_vectors
from rag_eval.types.document import Document

PASSAGE_TOKENS = 300
MOST_BY_EACH = 4


class PassageIndex:
    """All documents in passages, searched by words and by vectors."""

    def __init__(self, documents: Sequence[Document], embedder: Embedder) -> None:
        chunker = RecursiveTokenChunker(PASSAGE_TOKENS, PASSAGE_TOKENS // 6)
        pieces = (piece for document in documents for piece in chunker.chunk(document.content))
        self._texts = list(dict.fromkeys(piece for piece in pieces if piece.strip()))
        self._words = BM25Index(self._texts)
        self._embedder = embedder
        self._vectors = unit_vectors(text_vectors(embedder, self._texts), "vectors of passages")

    def find(self, question: str) -> list[str]:
        """The passages nearest to the question, by words first, each once."""
        by_words = best_first(self._words.scores(question), MOST_BY_EACH).tolist()
        scores = self._vectors @ embed_queries(self._embedder, [question])[0]
        by_vectors = np.argsort(-scores, kind="stable")[:MOST_BY_EACH].tolist()
        return [self._texts[number] for number in dict.fromkeys([*by_words, *by_vectors])]
