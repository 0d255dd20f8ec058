"""Several rankings as one: by standardised or scaled scores, by ranks, or by a user's function.

By scores: every chunk that any retriever found gets each retriever's exact score, also of those that did not rank it
high enough to find it. Vectors are scored by their cosine similarity, whatever the store that found them compares by
and however approximately it searches: it decides which chunks are candidates, and not what they score.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import chain
from numbers import Real
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Generic, Protocol, overload

import numpy as np
from pydantic import AfterValidator, Field, StrictFloat

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import label, part
from rag_eval.parts.objects import ForeignFunction
from rag_eval.parts.part_settings import Count
from rag_eval.retrieval import FUSION
from rag_eval.retrieval.retriever import (
    C,
    Hit,
    Numbers,
    Ranking,
    Reranker,
    Retriever,
    candidates_for,
    check_k,
    check_part,
    checked_hits,
    place_of,
    rerank,
)
from rag_eval.retrieval.scoring import Moments, Renumbered, Scores, Scoring
from rag_eval.types.chunks import Chunk, PositionAwareChunk
from rag_eval.types.documents import Corpus
from rag_eval.types.evidence import Query


@dataclass(frozen=True)
class Found:
    """The rankings of several retrievers for so many searches, and how each scores any chunk.

    ``scorings`` has None for a retriever that tells no scores but those of its hits, or none at all; it is empty where
    no fusion asks. ``chunks`` says how many chunks there are to find.
    """

    rankings: Sequence[Ranking]
    searches: int
    scorings: Sequence[Scoring | None] = ()
    chunks: int = 0


class Fusion(Protocol):
    """Makes one ranking of several."""

    @property
    def reads_scores(self) -> bool:
        """Whether it is given each retriever's score of every candidate."""

    def fuse(self, found: Found, depth: int) -> Ranking:
        """Return the first ``depth`` chunks of the rankings as one; equal scores by number."""


def _check_weights(given: list[float]) -> list[float]:
    if given and not any(given):
        raise ValueError("all weights are 0: give at least one retriever a weight")
    return given


Weights = Annotated[
    list[Annotated[StrictFloat, Field(ge=0)]],
    AfterValidator(_check_weights),
    Field(description="The weight of each retriever, in their order; none given: all alike."),
]


def _weights(given: Sequence[float], count: int, name: str) -> list[float]:
    if given and len(given) != count:
        raise ConfigurationError(f"{name} has {len(given)} weights for {count} retrievers: give one for each")
    return list(given) or [1.0] * count


@part
class ReciprocalRankFusion:
    """Σ over the retrievers of weight / (constant + rank).

    G. V. Cormack, C. L. A. Clarke, S. Büttcher, *Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank
    Learning Methods*, 2009.
    """

    reads_scores: ClassVar[bool] = False

    _: KW_ONLY
    constant: Annotated[Count, Field(description="How little the first ranks count more than later ones.")] = 60
    weights: Weights = Field(default_factory=list)

    def fuse(self, found: Found, depth: int) -> Ranking:
        """Return the first ``depth`` chunks of the rankings as one; equal scores by number."""
        rankings = found.rankings
        columns = zip(*((r.searches, r.chunks) for r in rankings), strict=True)
        searches, chunks = (np.concatenate(rows) for rows in columns)
        weights = _weights(self.weights, len(rankings), label(self))
        gains = np.concatenate(
            [weight / (self.constant + ranking.ranks) for weight, ranking in zip(weights, rankings, strict=True)]
        )
        size = int(chunks.max(initial=0)) + 1
        pairs, row = np.unique(searches * size + chunks, return_inverse=True)
        scores = np.bincount(row, gains, len(pairs)).astype(np.float64, copy=False)
        search, chunk = np.divmod(pairs, size)
        order = np.lexsort((chunk, -scores, search))
        return Ranking(search[order], chunk[order], scores[order]).first(depth)


class ScoreFusion(ABC):
    """Adds up the retrievers' scores, made comparable, by weights that are scaled to sum up to 1."""

    reads_scores: ClassVar[bool] = True
    weights: Sequence[float]

    def fuse(self, found: Found, depth: int) -> Ranking:
        """Return the first ``depth`` of the chunks that any retriever found; equal scores by number."""
        weights = _weights(self.weights, len(found.rankings), label(self))
        lists = [ranking.by_search(found.searches) for ranking in found.rankings]
        fused = []
        for search in range(found.searches):
            ranked = [numbers[search] for numbers in lists]
            chunks = np.unique(np.concatenate(ranked))
            scores = np.zeros(len(chunks))
            for weight, hits, scoring in zip(weights, ranked, found.scorings, strict=True):
                if scoring is None:
                    comparable = self.by_rank(_ranks(hits, chunks), len(hits), max(found.chunks, len(chunks)))
                else:
                    comparable = self.by_score(scoring, search, chunks)
                scores += weight / sum(weights) * comparable
            order = np.lexsort((chunks, -scores))[:depth]
            fused.append((chunks[order], scores[order]))
        return Ranking.of(fused)

    @abstractmethod
    def by_score(self, scoring: Scoring, search: int, chunks: Numbers) -> Scores:
        """Return one retriever's scores of the candidates as numbers that compare with those of others."""

    @abstractmethod
    def by_rank(self, ranks: Numbers, found: int, chunks: int) -> Scores:
        """Return such numbers for a retriever that found so many of the chunks and tells no scores.

        The rank of a candidate that it did not find is 0.
        """


def _ranks(hits: Numbers, chunks: Numbers) -> Numbers:
    """Return the rank of each chunk among the hits, 0 where it is not."""
    ranks = np.zeros(len(chunks), np.int64)
    ranks[np.searchsorted(chunks, hits)] = np.arange(1, len(hits) + 1)
    return ranks


def standardised(scores: Scores, moments: Moments) -> Scores:
    """Return (score − mean) / deviation; 0 where all scores are the same, and for one that is not a number."""
    mean, deviation = moments
    return np.nan_to_num((scores - mean) / deviation) if deviation else np.zeros(len(scores))


@part
class ZScoreFusion(ScoreFusion):
    """Σ of weight · (score − mean) / deviation, with mean and deviation of the retriever's scores over all chunks.

    Where all chunks have the same score for a query, and for a chunk that a retriever does not have, that is 0. Of a
    retriever without scores rank r of n chunks counts as the normal quantile of 1 − (r − ½) / n, and what it did not
    find as in the middle of the ranks that are left.
    """

    _: KW_ONLY
    weights: Weights = Field(default_factory=list)

    def by_score(self, scoring: Scoring, search: int, chunks: Numbers) -> Scores:
        """Return the scores, standardised."""
        moments = scoring.moments(search)  # first: words have the scores of all chunks then
        return standardised(scoring.scores(search, chunks), moments)

    def by_rank(self, ranks: Numbers, found: int, chunks: int) -> Scores:
        """Return the normal quantiles of the ranks."""
        at = np.where(ranks > 0, ranks - 0.5, (found + chunks) / 2) / chunks
        return np.array([NormalDist().inv_cdf(1 - min(quantile, 1 - 0.5 / chunks)) for quantile in at.tolist()])


@part
class MinMaxFusion(ScoreFusion):
    """Σ of weight · (score − lowest) / (highest − lowest), lowest and highest among the query's candidates.

    Where these are the same, and for a chunk that a retriever does not have, that is 0. Of a retriever without scores
    rank r of m hits counts as 1 − (r − 1) / m, and what it did not find as 0.
    """

    _: KW_ONLY
    weights: Weights = Field(default_factory=list)

    def by_score(self, scoring: Scoring, search: int, chunks: Numbers) -> Scores:
        """Return the scores, scaled to 0 to 1."""
        scores = scoring.scores(search, chunks)
        known = scores[~np.isnan(scores)]
        lowest, highest = known.min(initial=np.inf), known.max(initial=-np.inf)
        return np.nan_to_num((scores - lowest) / (highest - lowest)) if highest > lowest else np.zeros(len(scores))

    def by_rank(self, ranks: Numbers, found: int, chunks: int) -> Scores:
        """Return the ranks, scaled to 0 to 1."""
        return np.where(ranks > 0, 1 - (ranks - 1) / max(found, 1), 0.0)


class ForeignFusion(ForeignFunction):
    """A function that fuses the rankings of one search.

    It is given a list of rankings, each a list of (chunk, score) from the best down, chunks being numbers, and returns
    a mapping from chunks to scores. Raises ``ConfigurationError`` when the object cannot be called.
    """

    kind = "fusion"
    methods = ("fuse",)
    wanted = "a function of rankings"
    reads_scores = False

    def fuse(self, found: Found, depth: int) -> Ranking:
        """Return the first ``depth`` chunks, best first, equal scores by number; raises on anything but scores."""
        rankings, searches = found.rankings, found.searches
        fused = []
        for search in range(searches):
            rows = [ranking.searches == search for ranking in rankings]
            given = [
                list(zip(ranking.chunks[row].tolist(), ranking.scores[row].tolist(), strict=True))
                for ranking, row in zip(rankings, rows, strict=True)
            ]
            scores = self.ask(self._call, given)
            known = {chunk for ranking in given for chunk, _ in ranking}
            if not isinstance(scores, Mapping) or not all(
                chunk in known and isinstance(score, Real) and np.isfinite(float(score))
                for chunk, score in scores.items()
            ):
                raise ConfigurationError(
                    f"the fusion {self.label} gave {preview(repr(scores))}: give a mapping from the chunks that it "
                    "was given to finite scores"
                )
            best = sorted(scores, key=lambda chunk: (-float(scores[chunk]), chunk))[:depth]
            fused.append((np.array(best, np.int64), np.array([float(scores[chunk]) for chunk in best])))
        return Ranking.of(fused)


class HybridRetriever(Generic[C]):
    """Fuses what its retrievers find, each asked for ``fetch_k`` chunks (ten times k and at least 50 unless said).

    ``fusion`` is by z-scores unless said. A retriever that cannot score any chunk, such as one with a reranker, is then
    fused by rank, and the name says so. A chunk is the same for all when its place is. Raises ``ConfigurationError``
    with fewer than two retrievers, on a part that is not what it should be, and on ``fetch_k`` below 1.
    """

    @overload
    def __init__(
        self: "HybridRetriever[PositionAwareChunk]",
        retrievers: Sequence[Retriever[PositionAwareChunk]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None: ...

    @overload
    def __init__(
        self: "HybridRetriever[Chunk]",
        retrievers: Sequence[Retriever[Chunk]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None: ...

    def __init__(
        self,
        retrievers: Sequence[Retriever[Any]],
        reranker: Reranker | None = None,
        *,
        fetch_k: int | None = None,
        fusion: object = None,
    ) -> None:
        if len(retrievers) < 2:
            raise ConfigurationError(f"a hybrid needs two retrievers or more, it was given {len(retrievers)}")
        for retriever in retrievers:
            check_part(retriever, "retriever")
        if reranker is not None:
            check_part(reranker, "reranker")
        if fetch_k is not None:
            check_k(fetch_k, "fetch_k")
        self._retrievers: tuple[Retriever[C], ...] = tuple(retrievers)
        self._reranker = reranker
        self._fetch_k = fetch_k
        self._fusion: Fusion = ZScoreFusion() if fusion is None else FUSION.take(fusion)

    @property
    def name(self) -> str:
        """The names of the parts, and ``fetch_k`` where it is said."""
        depth = f"; fetch_k={self._fetch_k}" if self._fetch_k is not None else ""
        reranker = f" + {self._reranker.name}" if self._reranker else ""
        parts = [
            retriever.name + ("" if self._reads_scores(retriever) else " by rank") for retriever in self._retrievers
        ]
        return f"{label(self._fusion)}({'; '.join(parts)}{depth}){reranker}"

    def _reads_scores(self, retriever: Retriever[C]) -> bool:
        """Return whether a retriever need not be fused by rank for want of scores."""
        return not self._fusion.reads_scores or getattr(retriever, "scores_any_chunk", False)

    @property
    def retrievers(self) -> tuple[Retriever[C], ...]:
        """The parts."""
        return self._retrievers

    def index(self, corpus: Corpus) -> None:
        """Index a corpus in every part."""
        for retriever in self._retrievers:
            retriever.index(corpus)

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit[C]]]:
        """Return for each query the k best chunks of the fused ranking, reranked where there is a reranker.

        Raises ``ConfigurationError`` on k below 1, and when a part does not give hits for every query or the parts
        give chunks of different kinds.
        """
        check_k(k)
        depth = candidates_for(k, self._fetch_k)
        found: list[list[list[Hit[C]]]] = [
            checked_hits(retriever.retrieve(queries, depth), len(queries), retriever.name, Chunk, PositionAwareChunk)
            for retriever in self._retrievers
        ]
        if len({isinstance(hit.chunk, Chunk) for hit in chain.from_iterable(chain.from_iterable(found))}) > 1:
            raise ConfigurationError(f"{self.name} has chunk-level and token-level parts: use retrievers of one type")
        chunks, rankings = number_by_place(found)
        scorings = (
            [self._scoring(retriever, queries, chunks) for retriever in self._retrievers]
            if self._fusion.reads_scores
            else []
        )
        held = max(
            (len(retriever.indexed_chunks()) for retriever in self._retrievers if hasattr(retriever, "indexed_chunks")),
            default=0,
        )
        fused = self._fusion.fuse(Found(rankings, len(queries), scorings, held), depth)
        if self._reranker is not None:
            fused = rerank(fused, self._reranker, [query.text for query in queries], chunks)
        return fused.first(k).hits(chunks, len(queries))

    @staticmethod
    def _scoring(retriever: Any, queries: Sequence[Query], chunks: Sequence[C]) -> Scoring | None:
        """Return how a retriever scores these chunks, where it tells."""
        if not getattr(retriever, "scores_any_chunk", False):
            return None
        numbers = {place_of(chunk): number for number, chunk in enumerate(retriever.indexed_chunks())}
        rows = np.array([numbers.get(place_of(chunk), -1) for chunk in chunks], np.int64)
        return Renumbered(retriever.scoring(queries), rows)


def number_by_place(found: Sequence[Sequence[Sequence[Hit[C]]]]) -> tuple[list[C], list[Ranking]]:
    """Number the chunks of several retrievers' hits by place; a place counts once in a ranking."""
    chunks: dict[tuple[str, int, int], C] = {}
    for hit in chain.from_iterable(chain.from_iterable(found)):
        chunks.setdefault(place_of(hit.chunk), hit.chunk)
    places = sorted(chunks)
    numbers = {place: number for number, place in enumerate(places)}
    rankings = [Ranking.of(_numbered(hits, numbers) for hits in lists) for lists in found]
    return [chunks[place] for place in places], rankings


def _numbered(hits: Sequence[Hit[C]], numbers: Mapping[Any, int]) -> tuple[Numbers, Scores]:
    """Return the chunks and scores of hits; a chunk that is there twice counts where it is first."""
    scores: dict[int, float] = {}
    for hit in hits:
        scores.setdefault(numbers[place_of(hit.chunk)], hit.score)
    return np.array([*scores], np.int64), np.array([*scores.values()], np.float64)
