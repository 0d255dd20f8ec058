"""Several rankings as one: against the formulas, one chunk at a time, from every store and number of shards."""

from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist, fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_eval import BM25Retriever, Corpus, HybridRetriever, LocalEmbedder, Query, VectorRAGRetriever
from rag_eval.chunking.recursive import RecursiveTokenChunker
from rag_eval.errors import ConfigurationError
from rag_eval.parts import label
from rag_eval.retrieval import FUSION, RETRIEVER
from rag_eval.retrieval.fusion import Found, ReciprocalRankFusion, ZScoreFusion
from rag_eval.retrieval.scoring import Moments, VectorSums, moments_of
from rag_eval.sample import CORPUS
from rag_eval.stores.exact_search import exact_scores, unit_vectors
from rag_eval.stores.lance import LanceDBVectorStore
from rag_eval.stores.rankings import Ranking

CHUNKS = 8
numbers = st.floats(-2, 2).map(lambda number: round(number, 3))
all_scores = st.lists(st.lists(numbers, min_size=CHUNKS, max_size=CHUNKS), min_size=2, max_size=3)


class Known:
    """The scores of all chunks for one search."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.all = np.array(scores)

    def scores(self, search: int, chunks: np.ndarray) -> np.ndarray:
        return self.all[chunks]

    def moments(self, search: int) -> Moments:
        return moments_of(self.all)


def best(scores: Sequence[float], depth: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:depth]


def found(scores: list[list[float]], depth: int, scored: Sequence[bool]) -> Found:
    rankings = [
        Ranking.of([(np.array(best(one, depth), np.int64), np.array([one[n] for n in best(one, depth)]))])
        for one in scores
    ]
    return Found(
        rankings, 1, [Known(one) if known else None for one, known in zip(scores, scored, strict=True)], CHUNKS
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(all_scores, st.integers(1, CHUNKS), st.booleans(), st.data())
def test_scores_are_made_comparable_and_added_up(
    scores: list[list[float]], depth: int, is_scored: bool, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=len(scores), max_size=len(scores)))
    candidates = {number for one in scores for number in best(one, depth)}
    expected = dict.fromkeys(candidates, 0.0)
    for place, (one, weight) in enumerate(zip(scores, weights, strict=True)):
        share, listed = weight / sum(weights), best(one, depth)
        for number in candidates:
            if place or is_scored:
                deviation = pstdev(one)
                expected[number] += share * (one[number] - fmean(one)) / deviation if deviation > 1e-9 else 0
            else:
                rank = listed.index(number) + 1 if number in listed else None
                at = (rank - 0.5 if rank else min((len(listed) + CHUNKS) / 2, CHUNKS - 0.5)) / CHUNKS
                expected[number] += share * NormalDist().inv_cdf(1 - at)
    given = found(scores, depth, [is_scored, *[True] * (len(scores) - 1)])
    fusion = ZScoreFusion(weights=weights)
    fused = fusion.fuse(given, CHUNKS)
    assert set(fused.chunks.tolist()) == candidates
    assert fused.scores.tolist() == pytest.approx([expected[n] for n in fused.chunks.tolist()], abs=2e-4)
    assert fused.chunks.tolist() == best_of(fused)
    assert fusion.fuse(given, 2).chunks.tolist() == fused.chunks.tolist()[:2]


def best_of(fused: Ranking) -> list[int]:
    pairs = zip(fused.scores.tolist(), fused.chunks.tolist(), strict=True)
    return [chunk for _, chunk in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]


def test_ranks_are_weighted() -> None:
    given = found([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]], 3, [False, False])
    fused = ReciprocalRankFusion(constant=1, weights=[1.0, 2.0]).fuse(given, 9)
    expected = {0: 1 / 2 + 2 / 4, 1: 1 / 3 + 2 / 3, 2: 1 / 4 + 2 / 2}
    assert dict(zip(fused.chunks.tolist(), fused.scores.tolist(), strict=True)) == pytest.approx(expected)
    assert fused.chunks.tolist() == [2, 0, 1]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_moments_follow_from_sums_that_no_division_into_shards_changes(rows: int, parts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = unit_vectors(rng.standard_normal((rows, 6)), "vectors")
    times = rng.integers(0, 3, rows)
    times[0] = 1
    query = unit_vectors(rng.standard_normal((1, 6)), "queries")[0]
    whole = VectorSums.of([(units, times)])
    order = rng.permutation(rows)
    split = VectorSums.of((units[some], times[some]) for some in np.array_split(order, parts))
    assert whole.to_table().equals(split.to_table())
    read = VectorSums.from_tables([split.to_table()])
    assert read.moments(query) == whole.moments(query)
    scores = np.repeat(exact_scores(query[None], units, np.zeros(rows, int), np.arange(rows)), times).astype(np.float64)
    assert whole.moments(query) == pytest.approx((scores.mean(), scores.std()), abs=2e-3)
    assert moments_of(scores) == pytest.approx((scores.mean(), scores.std()), abs=1e-5)
    assert moments_of(scores) == moments_of(scores[::-1])


def test_moments_of_nothing_and_of_equal_scores() -> None:
    assert moments_of(np.empty(0)) == (0, 0)
    assert moments_of(np.zeros(3)) == (0, 0)
    assert moments_of(np.full(3, 0.7)).deviation == 0


def test_a_hybrid_gives_the_same_from_every_store_and_says_what_is_fused_by_rank(tmp_path: Path) -> None:
    corpus, chunker = Corpus.from_folder(CORPUS), RecursiveTokenChunker(100)
    queries = [Query.from_text(text) for text in ("When does the last ferry leave?", "Who repairs the nets?", "xyzzy")]
    words = BM25Retriever(chunker)
    stores: list[Any] = [None, LanceDBVectorStore(tmp_path)]
    hybrids = [HybridRetriever([VectorRAGRetriever(chunker, LocalEmbedder(), store), words]) for store in stores]
    found = []
    for hybrid in hybrids:
        hybrid.index(corpus)
        found.append(hybrid.retrieve(queries, 5))
    assert found[0] == found[1]
    assert len(found[0][2]) == 5  # no chunk has the word: the vectors alone decide
    assert hybrids[0].name.startswith("z-score(")
    plain = VectorRAGRetriever(chunker, LocalEmbedder())
    ranked = HybridRetriever([plain, HybridRetriever([words, plain], fusion=ReciprocalRankFusion())])
    assert ranked.name.endswith("by rank)")
    assert ranked.name.count("by rank") == 1
    ranked.index(corpus)
    assert len(ranked.retrieve(queries, 5)[0]) == 5


def test_labels_say_what_is_not_the_default() -> None:
    assert label(RETRIEVER.make("hybrid")) == "hybrid"
    assert label(RETRIEVER.make({"type": "hybrid", "fusion": "rrf"})) == "hybrid rrf"
    own = RETRIEVER.take(type("Own", (), {"index": lambda self, chunks: None, "search": lambda self, query, k: []})())
    made = RETRIEVER.load("hybrid")(retrievers=[RETRIEVER.make("vector"), own])
    assert label(made).endswith(f"({label(own)} by rank)")
    assert not label(RETRIEVER.load("hybrid")(retrievers=made.retrievers, fusion=FUSION.make("rrf"))).endswith("rank)")


@pytest.mark.parametrize(
    ("fusion", "reason"),
    [
        ({"type": "z-score", "weights": [1.0]}, "1 weights for 2 retrievers"),
        ({"type": "rrf", "weights": [0.0, 0.0]}, "all weights are 0"),
        ({"type": "z-score", "weights": [-1.0, 2.0]}, "expected a number of at least 0, found -1"),
        ({"type": "rrf", "constant": 0}, "expected a number of at least 1, found 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(fusion: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        RETRIEVER.make({"type": "hybrid", "fusion": fusion})
