"""Store vectors in a Chroma collection, searched approximately by its HNSW graph. Needs the extra ``chroma``."""

import importlib
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from rag_eval.distribution import install_command
from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError
from rag_eval.parts import part
from rag_eval.stores.exact_search import exact_scores, score_margin
from rag_eval.stores.rankings import BestPairs, Mask, Numbers, Ranking
from rag_eval.stores.store import BuiltInStore

HITS_AT_ONCE = 8192
SPARE = 16


@part
class ChromaVectorStore(BuiltInStore):
    """A Chroma collection of vectors in memory.

    The graph may miss chunks, especially if many vectors are equal. The chunks found are scored and ordered as in every
    other store. Raises ``ConfigurationError`` if chromadb is not installed.
    """

    packages = ("chromadb",)
    is_exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        try:
            chromadb = importlib.import_module("chromadb")
        except ImportError as error:
            raise ConfigurationError(
                f"ChromaVectorStore needs the extra chroma ({error}): {install_command('chroma')}"
            ) from None
        self._client: Any = chromadb.EphemeralClient(settings=chromadb.Settings(anonymized_telemetry=False))
        self._name = f"chunks-{uuid.uuid4().hex}"  # clients in memory share their collections
        self._open()

    def _open(self) -> None:
        self._collection: Any = self._client.create_collection(
            self._name, embedding_function=None, configuration={"hnsw": {"space": "ip"}}
        )
        self._dimension, self._count = None, 0

    @property
    def name(self) -> str:
        return "chroma(hnsw, approximate)"

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        self._client.delete_collection(self._name)
        self._open()

    def vectors(self, numbers: Numbers) -> Vectors:
        wanted, places = np.unique(numbers, return_inverse=True)
        vectors = np.empty((len(wanted), self._dimension or 0), np.float32)
        for batch in self._batches(len(wanted)):
            found = self._collection.get(ids=_ids(wanted[batch]), include=["embeddings"])
            vectors[np.searchsorted(wanted, np.array(found["ids"], np.int64))] = found["embeddings"]
        return vectors[places]

    def _append(self, units: Vectors) -> None:
        numbers = np.arange(self._count, self._count + len(units))
        for batch in self._batches(len(units)):
            self._collection.add(ids=_ids(numbers[batch]), embeddings=units[batch])
        self._count += len(units)

    def _batches(self, count: int) -> Iterator[slice]:
        step = self._client.get_max_batch_size()
        return (slice(begin, begin + step) for begin in range(0, count, step))

    def _nearest(self, units: Vectors, k: int, among: Mask | None) -> Ranking:
        """Request a few more than k from the graph, and twice as many while ties extend beyond that."""
        best, margin = BestPairs(len(units), k), score_margin(units.shape[1])
        allowed = None if among is None else _ids(np.flatnonzero(among))
        todo, depth = np.arange(len(units)), min(k + SPARE, self._count)
        while len(todo):
            tied: list[int] = []
            step = max(1, HITS_AT_ONCE // depth)
            for begin in range(0, len(todo), step):
                batch = todo[begin : begin + step]
                answer = self._collection.query(
                    units[batch], ids=allowed, n_results=depth, include=["distances", "embeddings"]
                )
                columns = (batch.tolist(), answer["ids"], answer["distances"], answer["embeddings"])
                for query, ids, distances, embeddings in zip(*columns, strict=True):
                    if len(ids) == depth < self._count and distances[-1] <= distances[k - 1] + margin:
                        tied.append(query)
                        continue
                    rows, vectors = np.full(len(ids), query), np.array(embeddings, np.float32)
                    scores = exact_scores(units, vectors, rows, np.arange(len(ids)))
                    best.add(rows, np.array(ids, np.int64), scores)
            todo, depth = np.array(tied, np.int64), min(2 * depth, self._count)
        return best.ranking()


def _ids(numbers: Numbers) -> list[str]:
    return [str(number) for number in numbers.tolist()]
