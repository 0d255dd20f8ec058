import tracemalloc
from itertools import combinations, pairwise

import numpy as np
import pytest
from chunker_contract import TrigramEmbedder
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval.chunking.chunker import Cut
from rag_eval.chunking.semantic import ClusterSemanticChunker, best_grouping, mean_similarity


def worth(vectors: np.ndarray, groups: list[tuple[int, int]]) -> float:
    similarity = vectors @ vectors.T
    pairs = list(combinations(range(len(vectors)), 2))
    mean = sum(similarity[a, b] for a, b in pairs) / len(pairs) if pairs else 0.0
    return sum(similarity[a, b] - mean for first, after in groups for a, b in combinations(range(first, after), 2))


def all_groupings(pieces: list[Cut], max_size: int) -> list[list[tuple[int, int]]]:
    count = len(pieces)
    found = []
    for cuts in range(2 ** (count - 1)):
        borders = [0, *(i + 1 for i in range(count - 1) if cuts >> i & 1), count]
        groups = list(pairwise(borders))
        if all(after - first == 1 or pieces[after - 1][1] - pieces[first][0] <= max_size for first, after in groups):
            found.append(groups)
    return found


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.integers(1, 9), st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans())
def test_the_grouping_is_optimal(count: int, seed: int, max_size: int, with_zeros: bool) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if with_zeros:
        vectors[rng.random(count) < 0.3] = 0
    ends = np.cumsum(rng.integers(1, 12, size=2 * count)).tolist()
    pieces = list(zip(ends[::2], ends[1::2], strict=True))
    groupings = all_groupings(pieces, max_size)
    groups = best_grouping(vectors, pieces, max_size)
    assert groups in groupings
    assert worth(vectors, groups) == pytest.approx(max(worth(vectors, other) for other in groupings), abs=1e-7)


def test_mean_similarity_is_that_of_all_pairs() -> None:
    vectors = np.random.default_rng(7).normal(size=(12, 5))
    expected = np.mean([vectors[a] @ vectors[b] for a, b in combinations(range(12), 2)])
    assert mean_similarity(vectors) == pytest.approx(expected)
    assert mean_similarity(vectors[:1]) == 0.0


def test_pieces_about_a_topic_are_grouped() -> None:
    cats = "Cats purr when cats sleep. Cats hunt while cats wait. Cats purr and cats sleep."
    taxes = "Income taxes rise with income. Sales taxes hit income. Income taxes and sales taxes."
    chunker = ClusterSemanticChunker(TrigramEmbedder(), max_chunk_size=200, piece_size=30)
    assert chunker.chunk(f"{cats} {taxes}") == [cats, taxes]


def test_equal_pieces_fill_the_chunks() -> None:
    sizes = [end - start for start, end in ClusterSemanticChunker(TrigramEmbedder(), 100, 10).cuts("Same text. " * 90)]
    assert set(sizes) == {98}


def test_memory_does_not_grow_with_the_square_of_the_pieces() -> None:
    class Cheap(TrigramEmbedder):
        dimension = 4

        def embed(self, texts: list[str]) -> np.ndarray:
            return np.random.default_rng(0).normal(size=(len(texts), 4)).astype(np.float32)

    text = "Some words here. " * 20_000
    chunker = ClusterSemanticChunker(Cheap(), max_chunk_size=1000, piece_size=50)
    tracemalloc.start()
    cuts = chunker.cuts(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(cuts) > 340
    assert peak < 30_000_000  # the matrix of all pairs of these 6,667 pieces would take 355 MB
