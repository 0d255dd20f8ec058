"""What the stores of this library share: the checks, the order and the way from numbers to hits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, TableError
from rag_eval.stores.store import AnyChunk, Integers, Places, SearchResult, StoreHit

ROWS_AT_ONCE = 8192
RECALL_AT = 10
"""Of how many of the nearest chunks an approximate search should find nearly all."""


def unit_vectors(vectors: ArrayLike, what: str, dimension: int | None = None) -> Vectors:
    """The vectors in float32, each scaled to length 1; a zero vector stays zero.

    A row's result depends on that row alone, so that equal vectors stay equal whatever they are given with. Raises
    ``TableError``, naming ``what`` and the row, when there is not one vector a row, when a number is not finite in
    float32, or when the vectors do not have the ``dimension`` asked for.
    """
    try:
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is refused as such
            given: Vectors = np.asarray(vectors).astype(np.float32, order="C", copy=False)
    except (TypeError, ValueError) as error:
        raise TableError(f"the {what} are not an array of numbers: {error}") from None
    if given.ndim != 2 or given.shape[1] == 0:
        raise TableError(f"the {what} have the shape {given.shape}: give one vector a row")
    if dimension is not None and given.shape[1] != dimension:
        raise TableError(
            f"the {what} have {given.shape[1]} dimensions, the store's vectors have {dimension}: "
            "use the embedder the store was filled with"
        )
    units = np.empty(given.shape, np.float32)
    for begin in range(0, len(given), ROWS_AT_ONCE):
        rows = given[begin : begin + ROWS_AT_ONCE].astype(np.float64)
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            row = begin + int(np.argmin(finite))
            raise TableError(f"row {row} of the {what} holds a number that is not finite: look at what was embedded")
        length = np.sqrt(row_dots(rows, rows))
        length[length == 0] = 1
        units[begin : begin + len(rows)] = rows / length[:, None]
    return units


def row_dots(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The dot product of each row of one with the same row of the other.

    Products of float32 numbers are exact in float64, and numpy adds up every row of a contiguous array in the same
    order: equal rows give equal results, bit for bit, wherever they stand.
    """
    dots: NDArray[np.float64] = np.add.reduce(np.multiply(left, right, order="C"), axis=1)
    return dots


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
    """The score of each row of unit vectors with the same row of unit queries, or with the only one."""
    scores = np.empty(len(vectors), np.float32)
    step = max(1, at_once // vectors.shape[1])
    for begin in range(0, len(vectors), step):
        part = slice(begin, begin + step)
        asked = queries if len(queries) == 1 else queries[part]
        dots = row_dots(asked.astype(np.float64), vectors[part].astype(np.float64))
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


Mask = NDArray[np.bool_]
"""Of every chunk, by its number, whether it may be found."""

Tiles = Callable[[], Iterable[tuple[Integers, Vectors]]]
"""Begins a pass: the numbers of chunks and their unit vectors, at most ``Blocks.rows`` at once, none twice."""


def near_pairs(units: Vectors, k: int, tiles: Tiles, blocks: Blocks) -> Iterator[tuple[Integers, Integers]]:
    """Rows of ``units``, and for each the numbers of the chunks that may be among its best k.

    In memory are one tile of scores and the candidates of a block of queries, never all queries times all chunks.
    """
    buffer = np.empty(min(blocks.queries, len(units)) * blocks.rows, np.float32)
    for begin in range(0, len(units), blocks.queries):
        block = slice(begin, min(begin + blocks.queries, len(units)))
        yield from _near(units, block, k, tiles, blocks, buffer)


def _near(
    units: Vectors, block: slice, k: int, tiles: Tiles, blocks: Blocks, buffer: NDArray[np.float32]
) -> Iterator[tuple[Integers, Integers]]:
    """One pass; a block with too many ties is cut in two."""
    pool = _filled(units[block], k, tiles, blocks, buffer)
    if pool is None:
        middle = (block.start + block.stop) // 2
        yield from _near(units, slice(block.start, middle), k, tiles, blocks, buffer)
        yield from _near(units, slice(middle, block.stop), k, tiles, blocks, buffer)
    else:
        yield pool.queries + block.start, pool.numbers


def _filled(queries: Vectors, k: int, tiles: Tiles, blocks: Blocks, buffer: NDArray[np.float32]) -> "_Pool | None":
    """The candidates of the queries; None when several queries have more than memory should hold."""
    pool = _Pool(len(queries), k, np.float32(score_margin(queries.shape[1])))
    for numbers, rows in tiles():
        scores = buffer[: len(queries) * len(rows)].reshape(len(queries), len(rows))
        pool.take(np.matmul(queries, rows.T, out=scores), numbers)
        if pool.size > blocks.candidates and len(queries) > 1:
            return None
    pool.prune()
    return pool


class _Pool:
    """The candidates of a block of queries, and the floor of each query that a candidate must reach.

    No chunk below the floor can matter: it stands a margin below the k-th best seen so far, and rises with it.
    """

    def __init__(self, queries: int, k: int, margin: np.float32) -> None:
        self.queries = np.empty(0, np.int64)
        self.numbers = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self._floor: NDArray[np.float32] | None = None
        self._k, self._margin = k, margin
        self._pruned_size = queries * k

    @property
    def size(self) -> int:
        return len(self.numbers)

    def take(self, scores: NDArray[np.float32], numbers: Integers) -> None:
        """Take from a tile what reaches the floor."""
        width = scores.shape[1]
        if self._floor is None and width > self._k:
            self._floor = np.partition(scores, width - self._k, axis=1)[:, width - self._k] - self._margin
        found = np.arange(scores.size) if self._floor is None else np.flatnonzero(scores >= self._floor[:, None])
        queries, columns = np.divmod(found, width)
        self.queries = np.concatenate([self.queries, queries])
        self.numbers = np.concatenate([self.numbers, numbers[columns]])
        self._scores = np.concatenate([self._scores, scores.ravel()[found]])
        if self.size > 2 * self._pruned_size:  # seldom enough that pruning costs little
            self.prune()

    def prune(self) -> None:
        """Raise the floor to what the best k allow, and let go what is below."""
        order = np.lexsort((-self._scores, self.queries))
        self.queries, self.numbers, self._scores = self.queries[order], self.numbers[order], self._scores[order]
        kth = _positions(self.queries) == self._k - 1
        if not kth.any():
            return
        # Every query has seen the same chunks: all of them have a k-th best, or none.
        self._floor = self._scores[kth] - self._margin
        kept = self._scores >= self._floor[self.queries]
        self.queries, self.numbers, self._scores = self.queries[kept], self.numbers[kept], self._scores[kept]
        self._pruned_size = max(self.size, self._pruned_size)


class BuiltInStore(ABC):
    """A store that finds candidates, exactly or its own way, and leaves their scores and order to the one rule."""

    _places: Places
    _dimension: int | None
    _blocks: Blocks = DEFAULT

    is_exact: ClassVar[bool] = True
    """Whether it finds the best of any chunks, so that the best of all are among the best of each part of them."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The store, and whatever changes what it finds."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, chunks: Sequence[AnyChunk], embeddings: Vectors) -> None:
        """Keep chunks with their vectors, scaled to length 1; nothing is kept when anything is refused.

        Raises ``TableError`` when chunks and vectors differ in number, when the dimension is not the store's, when a
        vector is not finite, when a place is taken already, or when chunks with and without a place are mixed.
        """
        units = self._checked(len(chunks), embeddings)
        if len(chunks):
            places = self._places.with_chunks(chunks)
            self._keep(chunks, units, places)
            self._places, self._dimension = places, units.shape[1]

    def search(self, vector: NDArray[np.float32], k: int) -> list[StoreHit]:
        """The k best chunks, best first; fewer when the store holds fewer.

        Raises ``ConfigurationError`` when k is below 1, ``TableError`` on a vector of another dimension or one that
        is not finite.
        """
        found = self.search_many(np.asarray(vector)[None], k)
        kept = found.numbers[0] >= 0
        numbers, scores = found.numbers[0][kept], found.scores[0][kept].tolist()
        chunks = self.chunks(numbers)
        return [StoreHit(*hit) for hit in zip(chunks, numbers.tolist(), scores, strict=True)]

    def search_many(self, vectors: Vectors, k: int, among: Mask | None = None) -> SearchResult:
        """The k best chunks of every vector at once, of those that ``among`` leaves; raises as ``search`` does.

        To a zero vector all chunks are equal, at score 0: it finds the first k by place.
        """
        if k < 1:
            raise ConfigurationError(f"k is {k}: ask for at least one chunk")
        units = unit_vectors(vectors, "query vectors", self._dimension)
        count = min(k, len(self) if among is None else int(among.sum()))
        blank = ~units.any(axis=1)
        asked = np.flatnonzero(~blank)
        found = self._candidates(units[asked], count, among) if count and len(asked) else iter(())
        parts = (Candidates(asked[part.queries], part.numbers, part.scores) for part in found)
        result = best(parts, self._places.rank, len(units), count, self._blocks.found)
        order = self._places.order
        result.numbers[blank] = (order if among is None else order[among[order]])[:count]
        result.scores[blank] = 0
        return result

    def recall(self, vectors: Vectors, depth: int, k: int = RECALL_AT) -> float | None:
        """The share of the exact best k chunks that are among the first k of a search for ``depth``.

        A chunk as near as the k-th is as good. None where search is exact, and without vectors or chunks.
        """
        units = unit_vectors(vectors, "query vectors", self._dimension)
        units, count = units[units.any(axis=1)], min(k, len(self))
        if self.is_exact or not count or not len(units):
            return None
        nearest = BuiltInStore._candidates(self, units, count, None)
        least = best(nearest, self._places.rank, len(units), count, self._blocks.found).scores[:, -1]
        found = self.search_many(units, max(depth, count)).numbers[:, :count]
        queries, places = np.nonzero(found >= 0)
        near = self._scored(units, queries, found[queries, places])
        return sum(int((part.scores >= least[part.queries]).sum()) for part in near) / (len(units) * count)

    def _tiles(self, among: Mask | None) -> Iterator[tuple[Integers, Vectors]]:
        """All chunks, or those that ``among`` leaves, by their numbers, with their unit vectors."""
        every = np.arange(len(self)) if among is None else np.flatnonzero(among)
        for begin in range(0, len(every), self._blocks.rows):
            numbers = every[begin : begin + self._blocks.rows]
            yield numbers, self.vectors(numbers)

    @abstractmethod
    def chunks(self, numbers: NDArray[np.int64]) -> list[AnyChunk]:
        """The chunks of these numbers, in the order asked for."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all chunks; the next may have another dimension."""

    @abstractmethod
    def _keep(self, chunks: Sequence[AnyChunk], units: Vectors, places: Places) -> None:
        """Keep the chunks and their unit vectors; they are the last rows of ``places``."""

    def _candidates(self, units: Vectors, k: int, among: Mask | None) -> Iterator[Candidates]:
        """Chunks that include the best k of every query, no pair of query and chunk twice; there are at least k."""
        for queries, numbers in near_pairs(units, k, partial(self._tiles, among), self._blocks):
            yield from self._scored(units, queries, numbers)

    @abstractmethod
    def vectors(self, numbers: NDArray[np.int64]) -> Vectors:
        """The unit vectors of the chunks of these numbers, in the order asked for."""

    def _scored(self, units: Vectors, queries: NDArray[np.int64], numbers: NDArray[np.int64]) -> Iterator[Candidates]:
        """Pairs of query and chunk with their exact scores, a bounded number at once."""
        step = max(1, self._blocks.loaded // units.shape[1])
        for begin in range(0, len(numbers), step):
            query, number = queries[begin : begin + step], numbers[begin : begin + step]
            scores = exact_scores(units[query], self.vectors(number), self._blocks.summed)
            yield Candidates(query, number, scores)

    def _checked(self, chunks: int, embeddings: Vectors) -> Vectors:
        if len(embeddings) != chunks:
            raise TableError(f"there are {chunks} chunks and {len(embeddings)} vectors: give one for each")
        if chunks == 0:
            return np.empty((0, 0), np.float32)
        return unit_vectors(embeddings, "embeddings", self._dimension)
