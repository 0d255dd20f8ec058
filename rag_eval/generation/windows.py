"""Cut documents into parts for the model: windows, pairs of related windows, and passages found by a search."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding.embedder import Embedder, embed_queries, text_vectors
from rag_eval.retrieval.bm25 import BM25Index, best_first
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId

ENCODING = "o200k_base"
"""Encoding that counts the tokens of windows and excerpts."""
WINDOW_OVERLAP = 200
"""Tokens that neighbouring windows share, so that every sentence is complete in one of them."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a document: the text at ``start``, or some chunks."""

    doc_id: DocumentId
    text: str
    tokens: int
    start: int = 0
    chunks: tuple[Chunk, ...] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def text_windows(document: Document, size: int, overlap: int = WINDOW_OVERLAP) -> list[Window]:
    """Split a document into windows of at most ``size`` tokens that share up to ``overlap``; none if it is blank."""
    if not document.content.strip():
        return []
    tokens = count_tokens(document.content, ENCODING)
    if tokens <= size:
        return [Window(document.id, document.content, tokens)]
    chunker = RecursiveTokenChunker(size, min(overlap, size // 2), encoding=ENCODING)
    return [
        Window(document.id, chunk.content, count_tokens(chunk.content, ENCODING), chunk.start)
        for chunk in chunker.chunk_with_positions(document)
        if chunk.content.strip()
    ]


def chunk_windows(chunks: Sequence[Chunk], size: int) -> list[Window]:
    """Join the chunks of a document to windows of at most ``size`` tokens, skipping blank chunks."""
    runs: list[list[Chunk]] = []
    filled: list[int] = []
    for chunk in chunks:
        if chunk.content.strip():
            tokens = count_tokens(chunk.content, ENCODING)
            if not runs or filled[-1] + tokens > size:
                runs.append([])
                filled.append(0)
            runs[-1].append(chunk)
            filled[-1] += tokens
    return [
        Window(run[0].doc_id, "\n".join(chunk.content for chunk in run), tokens, chunks=tuple(run))
        for run, tokens in zip(runs, filled, strict=True)
    ]


def spread(count: int, sizes: Sequence[int]) -> list[int]:
    """Divide ``count`` evenly spaced questions among parts of these sizes; return the number for each part."""
    ends = list(accumulate(sizes))
    shares = [0] * len(sizes)
    for number in range(count):
        shares[bisect_right(ends, (number + 0.5) * ends[-1] / count)] += 1
    return shares


BLOCK = 1_024
# Of two equal documents, either answers every question about both.
NEARLY_EQUAL = 0.98


def related_pairs(windows: Sequence[Window], count: int, embedder: Embedder) -> list[tuple[Window, Window]]:
    """Return at most ``count`` pairs of similar windows of different documents.

    Each window is paired with the most similar window of another document, unless they are nearly equal. Pairs of the
    least used documents come first, then the most similar. No two documents are paired twice.
    """
    if count < 1 or len({window.doc_id for window in windows}) < 2:
        return []
    pairs = [(pair, {window.doc_id for window in pair}) for pair in _nearest_pairs(windows, embedder)]
    chosen: list[tuple[Window, Window]] = []
    uses = Counter[DocumentId]()
    while len(chosen) < count and pairs:
        best, names = min(pairs, key=lambda pair: max(uses[name] for name in pair[1]))
        pairs = [pair for pair in pairs if pair[1] != names]
        uses.update(names)
        chosen.append(best)
    return chosen


def _nearest_pairs(windows: Sequence[Window], embedder: Embedder) -> list[tuple[Window, Window]]:
    """Pair each window with the most similar one of another document, most similar pairs first."""
    vectors = unit_vectors(text_vectors(embedder, [window.text for window in windows]), "vectors of documents")
    numbers = {name: number for number, name in enumerate(dict.fromkeys(window.doc_id for window in windows))}
    documents = np.array([numbers[window.doc_id] for window in windows])
    similarity: dict[tuple[int, int], float] = {}
    for begin in range(0, len(windows), BLOCK):
        block = vectors[begin : begin + BLOCK] @ vectors.T
        block[block >= NEARLY_EQUAL] = -np.inf
        for row, scores in enumerate(block, begin):
            others = np.where(documents == documents[row], -np.inf, scores)
            nearest = int(np.argmax(others))
            if np.isfinite(others[nearest]):
                pair = min(row, nearest), max(row, nearest)
                similarity[pair] = max(float(others[nearest]), similarity.get(pair, -np.inf))
    ranked = sorted(similarity, key=lambda pair: (-similarity[pair], pair))
    return [(windows[first], windows[second]) for first, second in ranked]


PASSAGE_TOKENS = 300
MOST_BY_EACH = 4


class PassageIndex:
    """The unique passages of all documents, searched by words and by vectors."""

    def __init__(self, documents: Sequence[Document], embedder: Embedder) -> None:
        unique: dict[str, Window] = {}
        for document in documents:
            for window in text_windows(document, PASSAGE_TOKENS, PASSAGE_TOKENS // 2):
                unique.setdefault(window.text, window)
        self._passages = list(unique.values())
        self._words = BM25Index(list(unique))
        self._embedder = embedder
        self._vectors = unit_vectors(text_vectors(embedder, list(unique)), "vectors of passages")

    def find(self, question: str, most: int) -> list[Window]:
        """Return the ``most`` best passages by words, then by vectors, without duplicates."""
        by_words = best_first(self._words.scores(question), most).tolist()
        scores = self._vectors @ embed_queries(self._embedder, [question])[0]
        by_vectors = np.argsort(-scores, kind="stable")[:most].tolist()
        return [self._passages[number] for number in dict.fromkeys([*by_words, *by_vectors])]
