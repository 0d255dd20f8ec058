"""Vectors in memory, searched exactly: the default of the library."""

from collections.abc import Iterator, Sequence

import numpy as np

from rag_eval.embedding.embedder import Vectors
from rag_eval.parts import part
from rag_eval.stores.exact_search import BuiltInStore, Mask
from rag_eval.stores.store import AnyChunk, Integers, Places


@part
class InMemoryVectorStore(BuiltInStore):
    """One matrix of unit vectors in memory, searched exactly.

    A search needs memory for one tile of scores and the candidates, never for all queries times all chunks.
    """

    def __post_init__(self) -> None:
        self.clear()

    @property
    def name(self) -> str:
        return "in-memory"

    def chunks(self, numbers: Integers) -> list[AnyChunk]:
        return [self._chunks[number] for number in numbers]

    def clear(self) -> None:
        self._places, self._dimension = Places(), None
        self._chunks: list[AnyChunk] = []
        self._parts: list[Vectors] = []

    def _keep(self, chunks: Sequence[AnyChunk], units: Vectors, places: Places) -> None:
        self._chunks.extend(chunks)
        self._parts.append(units)

    def vectors(self, numbers: Integers) -> Vectors:
        return self._matrix()[numbers]

    def _matrix(self) -> Vectors:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def _tiles(self, among: Mask | None) -> Iterator[tuple[Integers, Vectors]]:
        if among is not None:
            yield from super()._tiles(among)
            return
        matrix = self._matrix()
        for begin in range(0, len(matrix), self._blocks.rows):
            rows = matrix[begin : begin + self._blocks.rows]
            yield np.arange(begin, begin + len(rows)), rows
