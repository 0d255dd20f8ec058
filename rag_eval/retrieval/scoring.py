"""Compute the scores of any chunk, and their mean and deviation over all chunks.

Sums are exact: scores and vectors are first rounded to multiples of a small step, whose sums do not depend on their
order. So every store and every number of shards gives the same moments, bit for bit.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import TableError
from rag_eval.stores.exact_search import exact_scores, row_dots
from rag_eval.stores.rankings import Numbers, Scores
from rag_eval.tables import vector_sums_schema


class Moments(NamedTuple):
    """The mean and standard deviation of a search's scores over all chunks."""

    mean: float
    deviation: float


class Scoring(Protocol):
    """One retriever's scores of any chunks for any search, both by number."""

    def scores(self, search: int, chunks: Numbers) -> Scores:
        """Return the scores of some chunks, NaN for chunks that the retriever does not have."""

    def moments(self, search: int) -> Moments:
        """Return mean and deviation of the scores of all the retriever's chunks."""


SCORE_BITS = 18


def moments_of(scores: Scores) -> Moments:
    """Return mean and deviation of scores, rounded to 2⁻¹⁸ of the highest; 0 and 0 without scores."""
    step = math.frexp(float(np.abs(scores).max(initial=0)))[1] - SCORE_BITS
    whole = np.rint(np.ldexp(scores[scores != 0], -step)).astype(np.int64)
    count, total, squares = max(1, len(scores)), int(whole.sum()), int((whole * whole).sum())
    variance = (count * squares - total * total) / (count * count)  # Python integers have no limit
    return Moments(math.ldexp(total / count, step), math.ldexp(math.sqrt(variance), step))


VECTOR_BITS = 15
"""Rounding of components, to 2⁻¹⁵. A product of two has 30 bits, so that sums over 2²³ vectors are exact in float64."""
VECTORS_AT_ONCE = 2**14


@dataclass(frozen=True)
class VectorSums:
    """Sums over the unit vectors x of all chunks, in steps of 2⁻¹⁵: their number, Σ x and Σ x xᵀ.

    The mean of the similarities to a unit vector q is then q · Σ x / n, and that of their squares qᵀ (Σ x xᵀ) q / n.
    """

    count: int
    sums: NDArray[np.int64]
    products: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Iterable[tuple[Vectors, Numbers]]) -> "VectorSums":
        """Sum unit vectors, each multiplied by its count; raises ``TableError`` without vectors."""
        step = VECTORS_AT_ONCE
        some = (
            cls._of_some(vectors[begin : begin + step], times[begin : begin + step])
            for vectors, times in parts
            for begin in range(0, max(1, len(vectors)), step)
        )
        first = next(some, None)
        if first is None:
            raise TableError("there are no vectors to sum up: embed the chunks first")
        return reduce(cls.plus, some, first)

    @classmethod
    def _of_some(cls, vectors: Vectors, times: Numbers) -> "VectorSums":
        whole = np.rint(np.ldexp(vectors.astype(np.float64), VECTOR_BITS))
        sums = times.astype(np.float64) @ whole
        products = (whole * times[:, None]).T @ whole if (times != 1).any() else whole.T @ whole
        return cls(int(times.sum()), sums.astype(np.int64), products.astype(np.int64))

    def plus(self, other: "VectorSums") -> "VectorSums":
        return VectorSums(self.count + other.count, self.sums + other.sums, self.products + other.products)

    def to_table(self) -> pa.Table:
        """Return a row for each dimension."""
        dimension = len(self.sums)
        schema = vector_sums_schema(dimension)
        products = pa.FixedSizeListArray.from_arrays(
            pa.array(self.products.reshape(-1)), type=schema.field("products").type
        )
        counts = pa.array(np.full(dimension, self.count))
        return pa.Table.from_arrays([counts, pa.array(self.sums), products], schema=schema)

    @classmethod
    def from_tables(cls, tables: Sequence[pa.Table]) -> "VectorSums":
        """Read the sums from a table for each shard."""
        read = []
        for table in tables:
            products = table.column("products").combine_chunks()
            square = products.flatten().to_numpy().reshape(table.num_rows, -1)
            read.append(cls(table.column("count")[0].as_py(), table.column("sum").to_numpy(), square))
        return reduce(cls.plus, read)

    @cached_property
    def _as_numbers(self) -> tuple[Scores, Scores]:
        mean = np.ldexp(self.sums / self.count, -VECTOR_BITS)
        return mean, np.ldexp(self.products / self.count, -2 * VECTOR_BITS)

    def moments(self, unit: Vectors) -> Moments:
        """Return mean and deviation of the similarities of all vectors to a unit vector."""
        sums, products = self._as_numbers
        query = unit.astype(np.float64)
        mean = float(row_dots(query[None], sums[None])[0])
        squares = float(row_dots(query[None], row_dots(products, np.broadcast_to(query, products.shape))[None])[0])
        return Moments(mean, math.sqrt(max(0.0, squares - mean * mean)))


MOST_HELD = 2**24
"""Maximum number of components that stay in memory; larger sets of vectors are read again."""


@dataclass(frozen=True)
class VectorScoring:
    """Cosine similarities to the searches' unit vectors, for any store.

    ``vectors`` returns the unit vectors of chunks by number; there are ``count`` chunks.
    """

    searches: Vectors
    vectors: Callable[[Numbers], Vectors]
    sums: VectorSums
    count: int

    def scores(self, search: int, chunks: Numbers) -> Scores:
        if not len(chunks):
            return np.empty(0)
        units = self._all[chunks] if self.count * self.searches.shape[1] <= MOST_HELD else self.vectors(chunks)
        pairs = np.full(len(chunks), search), np.arange(len(chunks))
        return exact_scores(self.searches, units, *pairs).astype(np.float64)

    def moments(self, search: int) -> Moments:
        return self.sums.moments(self.searches[search])

    @cached_property
    def _all(self) -> Vectors:
        return self.vectors(np.arange(self.count))


@dataclass(frozen=True)
class Renumbered:
    """A scoring with other chunk numbers: ``rows`` has the scoring's number of each chunk, or -1."""

    scoring: Scoring
    rows: Numbers

    def scores(self, search: int, chunks: Numbers) -> Scores:
        rows = self.rows[chunks]
        scores = np.full(len(rows), np.nan)
        scores[rows >= 0] = self.scoring.scores(search, rows[rows >= 0])
        return scores

    def moments(self, search: int) -> Moments:
        return self.scoring.moments(search)
