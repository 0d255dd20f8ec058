"""The one rule of order, for every store.

A chunk's score is the dot product of its unit vector with the query's, added up in float64 and rounded to the next
multiple of 2**-24, which float32 holds exactly: what float32 vectors cannot tell apart is equal, in whatever order
the numbers were added up. The best score comes first; equal scores are ordered by document id (code points), then
start, then end; chunks without a place by document id, then their ordinal in it.

Stores find candidates by float32 kernels, whose sums depend on the tile or the batch. Each such sum is off by at most
e = u / (1 - u), u = d * 2**-24, for unit vectors of d dimensions. At least k chunks have a kernel score at or above
the k-th best kernel score s, so the k-th true score is at least s - e, and whatever truly reaches it has a kernel
score of at least s - 2e: the chunks above that floor, scored anew, hold the true best k, however many are tied.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_eval.embedding.base import Vectors
from rag_eval.stores.base import SearchResult
from rag_eval.stores.vectors import row_dots

STEP = 2.0**-24
# Beyond the kernel's sum: LanceDB's 1 - dot and back, the rounding of a score, lengths a little off 1.
SPARE_STEPS = 8


@dataclass(frozen=True, slots=True)
class Blocks:
    """How much a search takes at once, which bounds its memory and changes nothing that it finds.

    ``queries`` and ``rows`` are the sides of a tile of scores; ``candidates`` how many of a block and ``found`` how
    many of all blocks are held before the worst go; ``loaded`` and ``summed`` how many numbers are fetched and added.
    """

    queries: int = 256
    rows: int = 2**14
    candidates: int = 2**21
    found: int = 2**22
    loaded: int = 2**22
    summed: int = 2**17  # what stays in the processor's cache


DEFAULT = Blocks()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Chunks that may be among the best: ``numbers[i]`` at ``scores[i]`` for the query in row ``queries[i]``."""

    queries: NDArray[np.int64]
    numbers: NDArray[np.int64]
    scores: NDArray[np.float32]


def score_margin(dimension: int) -> float:
    """How far below the k-th best kernel score a chunk may stand and still be among the true best k: 2e."""
    lost = dimension * STEP
    return 2 * (lost / (1 - lost) + SPARE_STEPS * STEP)


def exact_scores(queries: Vectors, vectors: Vectors, at_once: int = DEFAULT.summed) -> NDArray[np.float32]:
    """The score of each row of unit vectors with the same row of unit queries."""
    scores = np.empty(len(vectors), np.float32)
    step = max(1, at_once // vectors.shape[1])
    for begin in range(0, len(vectors), step):
        part = slice(begin, begin + step)
        dots = row_dots(queries[part].astype(np.float64), vectors[part].astype(np.float64))
        scores[part] = np.clip(np.rint(dots / STEP), -1 / STEP, 1 / STEP) * STEP + 0.0  # no negative zero
    return scores


def best(
    candidates: Iterable[Candidates], rank: NDArray[np.int64], queries: int, k: int, at_once: int = DEFAULT.found
) -> SearchResult:
    """The k best of each query; ``rank`` is every chunk's position in the order of places, by its number."""
    pool = [Candidates(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))]
    held = 0
    for found in candidates:
        pool.append(found)
        held += len(found.numbers)
        if held > at_once:  # memory follows k, not the number of ties
            pool = [_cut(pool, rank, k)]
            held = len(pool[0].numbers)
    kept = _cut(pool, rank, k)
    result = SearchResult(np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32))
    position = _positions(kept.queries)
    result.numbers[kept.queries, position] = kept.numbers
    result.scores[kept.queries, position] = kept.scores
    return result


def _cut(pool: list[Candidates], rank: NDArray[np.int64], k: int) -> Candidates:
    queries = np.concatenate([found.queries for found in pool])
    numbers = np.concatenate([found.numbers for found in pool])
    scores = np.concatenate([found.scores for found in pool])
    order = np.lexsort((rank[numbers], -scores, queries))
    order = order[_positions(queries[order]) < k]
    return Candidates(queries[order], numbers[order], scores[order])


def _positions(queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of each row within its query, for rows sorted by query."""
    return np.arange(len(queries)) - np.searchsorted(queries, queries)
