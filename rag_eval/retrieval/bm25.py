"""Retrieval by words."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from rag_eval.errors import ConfigurationError
from rag_eval.retrieval.retriever import AnyChunker, C, ChunkRetriever, Hit, Ranking, check_k, cut
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.ground_truth import Query
from rag_eval.types.ids import EvaluationType

# Scripts that are written without spaces are taken in overlapping pairs of characters, as search engines do.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_UNSPACED_BEYOND = "\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]+|[^\W{_UNSPACED}{_UNSPACED_BEYOND}]+")
_UNSPACED_START = re.compile(rf"[{_UNSPACED}{_UNSPACED_BEYOND}]")


def words(text: str) -> list[str]:
    """The words of a text, case and Unicode form evened out; Chinese, Japanese, Thai and the like as pairs."""
    found: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if len(word) > 2 and _UNSPACED_START.match(word):
            found.extend(word[place : place + 2] for place in range(len(word) - 1))
        else:
            found.append(word)
    return found


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


def search_words(index: BM25Index, texts: Iterable[str], k: int) -> Ranking:
    """The k best texts of the index for every text searched; one that shares no word with it is not found."""
    found = []
    for text in texts:
        scores = index.scores(text)
        best = best_first(scores, k)
        found.append((best, scores[best]))
    return Ranking.of(found)


class BM25Retriever(ChunkRetriever[C]):
    """BM25 over the chunks' words; a chunk that shares no word with the query is not retrieved.

    Raises ``ConfigurationError`` on k1 < 0, b outside [0, 1], or what is not a chunker.
    """

    @overload
    def __init__(
        self: "BM25Retriever[PositionAwareChunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        evaluation_type: Literal["token-level"] = "token-level",
    ) -> None: ...

    @overload
    def __init__(
        self: "BM25Retriever[Chunk]",
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        evaluation_type: Literal["chunk-level"],
    ) -> None: ...

    def __init__(
        self,
        chunker: AnyChunker,
        *,
        k1: float = 1.5,
        b: float = 0.75,
        evaluation_type: EvaluationType = "token-level",
    ) -> None:
        check_parameters(k1, b)
        super().__init__(chunker, evaluation_type)
        self._k1, self._b = k1, b
        self._words = BM25Index([])

    @property
    def name(self) -> str:
        """The chunker and the parameters of BM25."""
        return f"{self.chunker_name} + BM25(k1={self._k1}, b={self._b})"

    def index(self, corpus: Corpus) -> None:
        """Chunk a corpus and count its words, in place of any before; raises ``ConfigurationError`` without chunks."""
        chunks: list[C] = cut(self._chunker, corpus, self.evaluation_type)
        self._words = BM25Index([chunk.content for chunk in chunks], self._k1, self._b)
        self._chunks = chunks

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """For each query its k best chunks; raises ``ConfigurationError`` before ``index``, and on k below 1."""
        check_k(k)
        chunks = self.indexed_chunks()
        return search_words(self._words, (query.text for query in queries), k).hits(chunks, len(queries))
