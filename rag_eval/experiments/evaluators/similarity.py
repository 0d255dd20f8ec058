"""How near a text is to the expected one, from 0 (nothing in common) to 1 (the same)."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from rag_eval.embedding.embedder import Embedder
from rag_eval.experiments.evaluators.text import text_of
from rag_eval.retrieval.bm25 import words


def _texts(result: Any, expected: Any) -> tuple[str, str]:
    return text_of(result, "result"), text_of(expected, "expected output")


@dataclass(frozen=True)
class LevenshteinSimilarity:
    """1 - distance / length of the longer; two empty texts are the same (1)."""

    name: str = "LevenshteinSimilarity"

    def evaluate(self, result: Any, expected: Any) -> float:
        """The similarity."""
        from rapidfuzz.distance import Levenshtein

        return Levenshtein.normalized_similarity(*_texts(result, expected))


@dataclass(frozen=True)
class BLEU:
    """Sentence BLEU of sacrebleu (up to 4-grams, exponential smoothing), as a share of 1; 0 when a text is empty."""

    name: str = "BLEU"

    def evaluate(self, result: Any, expected: Any) -> float:
        """The score."""
        from sacrebleu.metrics.bleu import BLEU as Bleu

        result, expected = _texts(result, expected)
        if not result.strip() or not expected.strip():
            return 0.0
        return float(min(1.0, Bleu(effective_order=True).sentence_score(result, [expected]).score / 100))


@dataclass(frozen=True)
class RougeL:
    """ROUGE-L: F1 of the longest common subsequence of words; 1 when both have no word, 0 when one has none."""

    name: str = "RougeL"

    def evaluate(self, result: Any, expected: Any) -> float:
        """2 · LCS / (words of the result + words of the expected output)."""
        from rapidfuzz.distance import LCSseq

        ours, theirs = (words(text) for text in _texts(result, expected))
        total = len(ours) + len(theirs)
        return 2 * LCSseq.similarity(ours, theirs) / total if total else 1.0


@dataclass(frozen=True)
class CosineSimilarity:
    """Cosine of the word counts, without a model; 1 when both have no word, 0 when one has none."""

    name: str = "CosineSimilarity"
    instant: ClassVar[bool] = True

    def evaluate(self, result: Any, expected: Any) -> float:
        """Σ aᵢbᵢ / √(Σ aᵢ² · Σ bᵢ²)."""
        ours, theirs = (Counter(words(text)) for text in _texts(result, expected))
        if not ours or not theirs:
            return float(ours == theirs)
        product = sum(count * theirs[word] for word, count in ours.items())
        squares = sum(count**2 for count in ours.values()) * sum(count**2 for count in theirs.values())
        return min(1.0, product / math.sqrt(squares))


@dataclass(frozen=True)
class SemanticSimilarity:
    """Cosine of the embeddings, by default of the local embedder; a text without a direction scores 0."""

    embedder: Embedder | None = None
    name: str = "SemanticSimilarity"

    def evaluate(self, result: Any, expected: Any) -> float:
        """The cosine, from -1 to 1."""
        import numpy as np

        ours, theirs = self._embedder().embed(list(_texts(result, expected)))
        length = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
        return float(np.dot(ours, theirs)) / length if length else 0.0

    def _embedder(self) -> Embedder:
        if self.embedder is not None:
            return self.embedder
        from rag_eval.embedding.local import LocalEmbedder

        return LocalEmbedder()
