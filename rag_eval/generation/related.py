"""Which documents have to do with each other: groups for questions that need more than one of them."""

from collections.abc import Sequence

import numpy as np

from rag_eval.embedding.base import Embedder, Vectors, text_vectors
from rag_eval.generation.windows import Window
from rag_eval.stores.vectors import unit_vectors

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
