"""BM25: lexical search, a baseline that vectors must beat first.

S. Robertson, H. Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009, in the form that Lucene uses:
score(q, d) = Σ over words w of q: idf(w) · tf / (tf + k1 · (1 − b + b · |d| / average |d|)), where
idf(w) = ln(1 + (N − n(w) + ½) / (n(w) + ½)). A word that stands twice in a query counts twice.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.words import words


class BM25Index:
    """The words of a list of texts, with their weights; raises ``ConfigurationError`` on k1 < 0 or b outside [0, 1]."""

    def __init__(self, texts: Sequence[str], k1: float = 1.5, b: float = 0.75) -> None:
        check_parameters(k1, b)
        self._count = len(texts)
        self._postings: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        numbers: dict[str, list[int]] = {}
        frequencies: dict[str, list[int]] = {}
        lengths = np.zeros(self._count)
        for number, text in enumerate(texts):
            counted = Counter(words(text))
            lengths[number] = counted.total()
            for word, frequency in counted.items():
                numbers.setdefault(word, []).append(number)
                frequencies.setdefault(word, []).append(frequency)
        average = lengths.mean() if self._count else 1.0
        damping = k1 * (1 - b + b * lengths / (average or 1.0))
        for word, found in numbers.items():
            where, tf = np.array(found), np.array(frequencies[word], np.float64)
            idf = np.log1p((self._count - len(found) + 0.5) / (len(found) + 0.5))
            self._postings[word] = where, idf * tf / (tf + damping[where])

    def scores(self, query: str) -> NDArray[np.float64]:
        """The score of every text; 0 where no word is shared."""
        scores = np.zeros(self._count)
        for word in words(query):
            if word in self._postings:
                where, weights = self._postings[word]
                scores[where] += weights
        return scores


def check_parameters(k1: float, b: float) -> None:
    """Raise ``ConfigurationError`` unless k1 is a number of 0 or more and 0 <= b <= 1."""
    if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise ConfigurationError(f"BM25 has k1 = {k1} and b = {b}: k1 must be 0 or more, b between 0 and 1")


def best_first(scores: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """The numbers of the k highest scores above 0, highest first, equal ones by number."""
    matching = np.flatnonzero(scores > 0)
    order: NDArray[np.int64] = matching[np.argsort(-scores[matching], kind="stable")]
    return order[:k]
