"""Fuse several rankings into one: by standardised scores, by ranks, or by a user's function.

By scores, every chunk that any retriever found gets each retriever's exact score, even from those that did not rank it
high enough. Vectors are scored by cosine similarity whatever the store is: the store decides which chunks are
candidates, not what they score.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from statistics import NormalDist
from typing import Annotated, ClassVar, Protocol

import numpy as np
from pydantic import AfterValidator, Field, StrictFloat

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import label, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.part_settings import Count
from rag_eval.retrieval.scoring import Scoring
from rag_eval.stores.rankings import Numbers, Ranking, Scores


@dataclass(frozen=True)
class Found:
    """The rankings of several retrievers, and the scores that each has for any chunk.

    ``scorings`` has None for a retriever that scores only its own hits; it is empty if the fusion reads no scores.
    """

    rankings: Sequence[Ranking]
    searches: int
    scorings: Sequence[Scoring | None] = ()
    chunks: int = 0
    """The number of chunks that can be found."""


class Fusion(Protocol):
    """Combines several rankings into one."""

    @property
    def reads_scores(self) -> bool:
        """Whether it needs each retriever's score of every candidate."""

    def fuse(self, found: Found, depth: int) -> Ranking:
        """Return the first ``depth`` chunks of the fused ranking; equal scores by number."""


def _check_weights(weights: list[float]) -> list[float]:
    if weights and not any(weights):
        raise ValueError("all weights are 0: give at least one retriever a weight")
    return weights


Weights = Annotated[
    list[Annotated[StrictFloat, Field(ge=0)]],
    AfterValidator(_check_weights),
    Field(description="Weight of each retriever, in their order; empty: equal weights."),
]


def _weights(weights: Sequence[float], count: int, name: str) -> list[float]:
    if weights and len(weights) != count:
        raise ConfigurationError(f"{name} has {len(weights)} weights for {count} retrievers: give one for each")
    return list(weights) or [1.0] * count


@part
class ReciprocalRankFusion:
    """Σ over the retrievers of weight / (constant + rank).

    G. V. Cormack, C. L. A. Clarke, S. Büttcher, *Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank
    Learning Methods*, 2009.
    """

    reads_scores: ClassVar[bool] = False

    _: KW_ONLY
    constant: Annotated[Count, Field(description="Rank constant; the higher, the less the first ranks stand out.")] = 60
    weights: Weights = Field(default_factory=list)

    def fuse(self, found: Found, depth: int) -> Ranking:
        searches = np.concatenate([ranking.searches for ranking in found.rankings])
        chunks = np.concatenate([ranking.chunks for ranking in found.rankings])
        weighted = zip(_weights(self.weights, len(found.rankings), label(self)), found.rankings, strict=True)
        gains = np.concatenate([weight / (self.constant + ranking.ranks) for weight, ranking in weighted])
        size = int(chunks.max(initial=0)) + 1
        pairs, row = np.unique(searches * size + chunks, return_inverse=True)
        scores = np.bincount(row, gains, len(pairs)).astype(np.float64, copy=False)
        search, chunk = np.divmod(pairs, size)
        order = np.lexsort((chunk, -scores, search))
        return Ranking(search[order], chunk[order], scores[order]).first(depth)


@part
class ZScoreFusion:
    """Σ of weight · (score − mean) / deviation, with mean and deviation of the retriever's scores over all chunks.

    Weights are scaled to a sum of 1. 0 if all chunks have the same score for a query, and for a chunk that a retriever
    does not have. For a retriever without scores, rank r of n chunks counts as the normal quantile of 1 − (r − ½) / n,
    and chunks that it did not find share the middle of the remaining ranks.
    """

    reads_scores: ClassVar[bool] = True

    _: KW_ONLY
    weights: Weights = Field(default_factory=list)

    def fuse(self, found: Found, depth: int) -> Ranking:
        weights = _weights(self.weights, len(found.rankings), label(self))
        lists = [ranking.by_search(found.searches) for ranking in found.rankings]
        fused = []
        for search in range(found.searches):
            ranked = [numbers[search] for numbers in lists]
            chunks = np.unique(np.concatenate(ranked))
            scores = np.zeros(len(chunks))
            for weight, hits, scoring in zip(weights, ranked, found.scorings, strict=True):
                if scoring is None:
                    standardised = _quantiles(chunks, hits, max(found.chunks, len(chunks)))
                else:
                    standardised = _standardised(scoring, search, chunks)
                scores += weight / sum(weights) * standardised
            order = np.lexsort((chunks, -scores))[:depth]
            fused.append((chunks[order], scores[order]))
        return Ranking.of(fused)


def _standardised(scoring: Scoring, search: int, chunks: Numbers) -> Scores:
    mean, deviation = scoring.moments(search)  # before BM25, whose scores of all chunks stay in memory
    scores = scoring.scores(search, chunks)
    return np.nan_to_num((scores - mean) / deviation) if deviation else np.zeros(len(scores))


def _quantiles(chunks: Numbers, hits: Numbers, count: int) -> Scores:
    """Return the normal quantiles of the ranks of these chunks among the hits; ``count`` chunks can be found."""
    places = np.full(len(chunks), (len(hits) + count) / 2)
    places[np.searchsorted(chunks, hits)] = np.arange(1, len(hits) + 1) - 0.5
    at = np.minimum(places / count, 1 - 0.5 / count)
    return np.array([NormalDist().inv_cdf(1 - quantile) for quantile in at.tolist()])


class ForeignFusion(ForeignFunction):
    """A function that fuses the rankings of one search.

    It gets a list of rankings, each a list of (chunk number, score) from the best down, and returns a mapping from
    chunk numbers to scores. Raises ``ConfigurationError`` if the object cannot be called.
    """

    kind = "fusion"
    methods = ("fuse",)
    wanted = "a function of rankings"
    reads_scores = False

    def fuse(self, found: Found, depth: int) -> Ranking:
        edges = [np.searchsorted(ranking.searches, np.arange(found.searches + 1)) for ranking in found.rankings]
        fused = []
        for search in range(found.searches):
            parts = [
                (ranking.chunks[edge[search] : edge[search + 1]], ranking.scores[edge[search] : edge[search + 1]])
                for ranking, edge in zip(found.rankings, edges, strict=True)
            ]
            scores = self._scores([list(zip(chunks.tolist(), own.tolist(), strict=True)) for chunks, own in parts])
            best = sorted((-score, chunk) for chunk, score in scores.items())[:depth]
            fused.append((np.array([chunk for _, chunk in best], np.int64), np.array([-score for score, _ in best])))
        return Ranking.of(fused)

    def _scores(self, rankings: list[list[tuple[int, float]]]) -> dict[int, float]:
        """Return the scores that the function gives to the rankings of one search."""
        scores = self.ask(self._call, rankings)
        known = {chunk for ranking in rankings for chunk, _ in ranking}
        if not isinstance(scores, Mapping) or not all(
            chunk in known and isinstance(score, Real) and np.isfinite(float(score)) for chunk, score in scores.items()
        ):
            raise ConfigurationError(
                f"the fusion {self.label} returned {preview(repr(scores))}: return a mapping from chunks of the "
                "rankings to finite scores"
            )
        return {chunk: float(score) for chunk, score in scores.items()}
