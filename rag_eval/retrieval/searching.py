"""How a benchmark searches its chunks: by vectors, by words, by a user's retriever, or by several of them fused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY
from numbers import Real
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import PartOf, PartsOf, part, parts_in
from rag_eval.parts.objects import Foreign, Origin
from rag_eval.retrieval import FUSION, RETRIEVER
from rag_eval.retrieval.fusion import fuse
from rag_eval.retrieval.retriever import Ranking


@part
class VectorSearch:
    """The chunks whose vectors are nearest to the query's, by the embedder and the store."""


@part
class WordSearch:
    """The chunks that share most words with the query, by BM25."""


@part
class ReciprocalRankFusion:
    """Σ over the retrievers of 1 / (60 + rank)."""

    def fuse(self, rankings: Sequence[Ranking], searches: int, depth: int) -> Ranking:
        """Return the first ``depth`` chunks of the rankings of so many searches as one; equal scores by number."""
        return fuse(rankings, depth)


class ForeignFusion(Foreign):
    """A function that fuses the rankings of one search.

    It is given a list of rankings, each a list of (chunk, score) from the best down, chunks being numbers, and returns
    a mapping from chunks to scores. Raises ``ConfigurationError`` when the object cannot be called.
    """

    kind = "fusion"

    def __init__(self, source: Any, origin: Origin | None = None, name: str | None = None) -> None:
        super().__init__(source, origin, name)
        call = getattr(source, "fuse", source)
        if isinstance(source, type) or not callable(call):
            raise ConfigurationError(f"{preview(repr(source))} is no fusion: give a function of rankings")
        self._call: Callable[..., Any] = call

    def fuse(self, rankings: Sequence[Ranking], searches: int, depth: int) -> Ranking:
        """Return the first ``depth`` chunks, best first, equal scores by number; raises on anything but scores."""
        found = []
        for search in range(searches):
            rows = [one.searches == search for one in rankings]
            given = [
                list(zip(one.chunks[row].tolist(), one.scores[row].tolist(), strict=True))
                for one, row in zip(rankings, rows, strict=True)
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
            found.append((np.array(best, np.int64), np.array([float(scores[chunk]) for chunk in best])))
        return Ranking.of(found)


@part
class HybridSearch:
    """Several retrievers, fused."""

    _: KW_ONLY
    retrievers: Annotated[list[Any], PartsOf(RETRIEVER), Field(description="What is fused, two or more.")] = Field(
        default_factory=lambda: [VectorSearch(), WordSearch()]
    )
    fusion: Annotated[Any, PartOf(FUSION), Field(description="How rankings become one.")] = Field(
        default_factory=ReciprocalRankFusion
    )

    def __post_init__(self) -> None:
        if len(self.retrievers) < 2 or any(isinstance(one, HybridSearch) for one in self.retrievers):
            raise ConfigurationError("a hybrid needs two retrievers or more, none of them a hybrid itself")
        if len(set(self.retrievers)) < len(self.retrievers):
            raise ConfigurationError("a hybrid has a retriever twice: name each once")


def searches_by_vector(retrieval: object) -> bool:
    """Whether a retriever needs an embedder and a store."""
    return any(isinstance(one, VectorSearch) for one in parts_in(retrieval))
