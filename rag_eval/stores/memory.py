"""Store vectors in memory and search them exactly: the default in Python."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from rag_eval.embedding.embedder import Vectors
from rag_eval.parts import part
from rag_eval.stores.exact_search import ROWS_AT_ONCE
from rag_eval.stores.rankings import Numbers
from rag_eval.stores.store import BuiltInStore


@part
class InMemoryVectorStore(BuiltInStore):
    """A matrix of unit vectors in memory, searched exactly.

    A search needs memory for one tile of scores and the candidates, not for all queries times all chunks.
    """

    is_reference: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.clear()

    @property
    def name(self) -> str:
        return "in-memory"

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def clear(self) -> None:
        self._dimension = None
        self._parts: list[Vectors] = []

    def vectors(self, numbers: Numbers) -> Vectors:
        return self._matrix[numbers]

    def _append(self, units: Vectors) -> None:
        self._parts.append(units)

    @property
    def _matrix(self) -> Vectors:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def _tiles(self) -> Iterator[tuple[Numbers, Vectors]]:
        for begin in range(0, len(self), ROWS_AT_ONCE):
            rows = self._matrix[begin : begin + ROWS_AT_ONCE]
            yield np.arange(begin, begin + len(rows)), rows
