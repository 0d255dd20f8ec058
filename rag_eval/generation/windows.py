"""The parts of documents that a model is shown: windows to ask about, groups of them, and passages that may answer."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.embedding.embedder import Embedder, Vectors, embed_queries, text_vectors
from rag_eval.retrieval.bm25 import BM25Index, best_first
from rag_eval.stores.exact_search import unit_vectors
from rag_eval.tokens import count_tokens
from rag_eval.types.chunks import Chunk
from rag_eval.types.documents import Document
from rag_eval.types.ids import DocumentId


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a document that is shown to the model: ``[start, start + len(text))``, or some chunks of it."""

    doc_id: DocumentId
    text: str
    tokens: int
    start: int = 0
    chunks: tuple[Chunk, ...] = ()

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def text_windows(document: Document, size: int, overlap: int, encoding: str) -> list[Window]:
    """The document in windows of at most ``size`` tokens, cut at paragraphs, lines or sentences; none if it is blank.

    Windows of a long document share up to ``overlap`` tokens, so that what stands at a cut is whole in one of them.
    """
    if not document.content.strip():
        return []
    tokens = count_tokens(document.content, encoding)
    if tokens <= size:
        return [Window(document.id, document.content, tokens)]
    chunker = RecursiveTokenChunker(size, min(overlap, size // 2), encoding=encoding)
    return [
        Window(document.id, chunk.content, count_tokens(chunk.content, encoding), chunk.start)
        for chunk in chunker.chunk_with_positions(document)
        if chunk.content.strip()
    ]


def chunk_windows(chunks: Sequence[Chunk], size: int, encoding: str) -> list[Window]:
    """The chunks of one document in runs of at most ``size`` tokens, a larger chunk by itself; blank ones left out."""
    windows: list[Window] = []
    run: list[Chunk] = []
    filled = 0
    for chunk in chunks:
        if not chunk.content.strip():
            continue
        tokens = count_tokens(chunk.content, encoding)
        if run and filled + tokens > size:
            windows.append(_run_window(run, filled))
            run, filled = [], 0
        run.append(chunk)
        filled += tokens
    return [*windows, _run_window(run, filled)] if run else windows


def spread(count: int, sizes: Sequence[int]) -> list[int]:
    """So many questions over parts of these sizes: evenly along their whole length, each where its middle falls."""
    ends = list(accumulate(sizes))
    shares = [0] * len(sizes)
    for number in range(count):
        shares[bisect_right(ends, (number + 0.5) * ends[-1] / count)] += 1
    return shares


def _run_window(run: list[Chunk], tokens: int) -> Window:
    return Window(run[0].doc_id, "\n".join(chunk.content for chunk in run), tokens, chunks=tuple(run))


BLOCK = 1_024
# Documents that say the same word for word make questions that one of them answers.
NEARLY_EQUAL = 0.98


def related_groups(windows: Sequence[Window], count: int, size: int, embedder: Embedder) -> list[tuple[Window, ...]]:
    """At most ``count`` groups of windows, each of ``size`` different documents, most similar first.

    Each window is grouped with the windows of other documents that are most similar to it by the cosine of their
    vectors. Documents come again only when all have had their turn, and no set of documents stands in two groups.
    Windows that are nearly equal are not grouped. Fewer groups come back when there are no more.
    """
    if count < 1 or len({window.doc_id for window in windows}) < size:
        return []
    vectors = unit_vectors(text_vectors(embedder, [window.text for window in windows]), "vectors of documents")
    candidates = _candidates(windows, vectors, size)
    groups: list[tuple[Window, ...]] = []
    uses = dict.fromkeys((window.doc_id for window in windows), 0)
    while len(groups) < count and candidates:
        # The least used documents first; candidates are sorted by similarity, and sorting keeps that order.
        best = min(candidates, key=lambda group: max(uses[window.doc_id] for window in group))
        names = {window.doc_id for window in best}
        candidates = [group for group in candidates if {window.doc_id for window in group} != names]
        for name in names:
            uses[name] += 1
        groups.append(best)
    return groups


def _candidates(windows: Sequence[Window], vectors: Vectors, size: int) -> list[tuple[Window, ...]]:
    """For each window the group around it, best first; groups of the same windows once."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(window.doc_id for window in windows))}
    documents = np.array([numbers[window.doc_id] for window in windows])
    found: dict[tuple[int, ...], float] = {}
    for begin in range(0, len(windows), BLOCK):
        similarities = vectors[begin : begin + BLOCK] @ vectors.T
        similarities[similarities >= NEARLY_EQUAL] = -np.inf
        for row, scores in enumerate(similarities):
            group = _around(begin + row, scores, documents, size)
            if group is not None:
                members, score = group
                found[members] = max(score, found.get(members, -np.inf))
    ranked = sorted(found, key=lambda members: (-found[members], members))
    return [tuple(windows[member] for member in members) for members in ranked]


def _around(
    centre: int, scores: Vectors, documents: "np.ndarray[tuple[int], np.dtype[np.int64]]", size: int
) -> tuple[tuple[int, ...], float] | None:
    scores = np.where(documents == documents[centre], -np.inf, scores)
    members, total = [centre], 0.0
    for _ in range(size - 1):
        best = int(np.argmax(scores))
        if not np.isfinite(scores[best]):
            return None
        members.append(best)
        total += float(scores[best])
        scores[documents == documents[best]] = -np.inf
    return tuple(sorted(members)), total


PASSAGE_TOKENS = 300
OVERLAP = PASSAGE_TOKENS // 2
MOST_BY_EACH = 4


class PassageIndex:
    """All documents in passages, searched by words and by vectors; of passages with one text the first."""

    def __init__(self, documents: Sequence[Document], embedder: Embedder, encoding: str) -> None:
        found = (one for document in documents for one in text_windows(document, PASSAGE_TOKENS, OVERLAP, encoding))
        unique: dict[str, Window] = {}
        for window in found:
            unique.setdefault(window.text, window)
        self._passages = list(unique.values())
        self._words = BM25Index(list(unique))
        self._embedder = embedder
        self._vectors = unit_vectors(text_vectors(embedder, list(unique)), "vectors of passages")

    def find(self, question: str, most: int) -> list[Window]:
        """Return the passages nearest to the question, so many by words, then so many by vectors, each once."""
        by_words = best_first(self._words.scores(question), most).tolist()
        scores = self._vectors @ embed_queries(self._embedder, [question])[0]
        by_vectors = np.argsort(-scores, kind="stable")[:most].tolist()
        return [self._passages[number] for number in dict.fromkeys([*by_words, *by_vectors])]
