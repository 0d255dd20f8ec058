"""Search engines: they index chunks at a place of their own, and search there as they do in production."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from rag_eval.embedding.embedder import Vectors
from rag_eval.errors import ConfigurationError, preview
from rag_eval.parts import label
from rag_eval.parts.objects import Foreign, Origin, is_callable_part
from rag_eval.retrieval.foreign_retrieval import ForeignRetriever
from rag_eval.stores.rankings import Ranking

EngineHits = Sequence[tuple[int, float]]
"""The numbers of the chunks that a query found, with their scores, best first."""


@runtime_checkable
class SearchEngine(Protocol):
    """A search engine. It keeps nothing in memory: everything that ``build`` writes is below its folder."""

    @property
    def uses_vectors(self) -> bool:
        """Whether it needs the vectors of chunks and queries."""

    def build(self, location: Path, chunks: pa.Table, vectors: Vectors | None) -> None:
        """Index chunks, with the columns ``number``, ``doc_id`` and ``text``, in an empty folder."""

    def search(
        self, location: Path, queries: Sequence[str], vectors: Vectors | None, limit: int, doc_ids: Sequence[str] | None
    ) -> Sequence[EngineHits]:
        """Return the best chunks for every query, at most ``limit``, of these documents (None: of all)."""


class ForeignEngine(Foreign):
    """A search engine that is not built in: a class with ``build`` and ``search``, or such an object."""

    kind = "retriever"

    @property
    def uses_vectors(self) -> bool:
        return bool(getattr(_class_of(self.source), "uses_vectors", False))

    def build(self, location: Path, chunks: pa.Table, vectors: Vectors | None) -> None:
        self.ask(self._engine.build, location, chunks, vectors)

    def search(
        self, location: Path, queries: Sequence[str], vectors: Vectors | None, limit: int, doc_ids: Sequence[str] | None
    ) -> Sequence[EngineHits]:
        found: Sequence[EngineHits] = self.ask(self._engine.search, location, queries, vectors, limit, doc_ids)
        return found

    @property
    def _engine(self) -> Any:
        return self.ask(self.source) if is_callable_part(self.source) else self.source


def _class_of(source: object) -> object:
    return getattr(source, "func", source)  # a class with its settings


def foreign_retriever(source: object, origin: Origin | None = None) -> ForeignEngine | ForeignRetriever:
    """Return an object that is not built in as a search engine, or else as a retriever of chunks."""
    is_engine = all(callable(getattr(_class_of(source), method, None)) for method in ("build", "search"))
    return ForeignEngine(source, origin) if is_engine else ForeignRetriever(source, origin)


def check_limit(retrieval: object, k: int) -> None:
    """Raise ``ConfigurationError`` if an engine or a system is asked for fewer hits than ``k``."""
    limit = getattr(retrieval, "limit", None)
    if isinstance(limit, int) and limit < k:
        raise ConfigurationError(f"{label(retrieval)} finds {limit} hits and the largest k is {k}: raise its limit")


def searched(
    engine: SearchEngine,
    location: Path,
    queries: Sequence[str],
    vectors: Vectors | None,
    limit: int,
    doc_ids: Sequence[str] | None,
    count: int,
) -> Ranking:
    """Return what an engine finds among ``count`` chunks; raises ``ConfigurationError`` on an invalid answer."""
    if doc_ids is not None and not doc_ids:
        return Ranking.of([(np.empty(0, np.int64), np.empty(0))] * len(queries))
    found = engine.search(location, queries, vectors, limit, doc_ids)
    if len(found) != len(queries):
        raise ConfigurationError(f"{label(engine)} answered {len(found)} of {len(queries)} queries: answer each")
    rankings = []
    for hits in found:
        numbers = np.array([number for number, _ in hits], np.int64)
        unknown = numbers[(numbers < 0) | (numbers >= count)]
        if len(unknown) or len(set(numbers.tolist())) < len(numbers) or len(numbers) > limit:
            raise ConfigurationError(
                f"{label(engine)} returned {preview(str(numbers.tolist()))}: return at most {limit} numbers of chunks "
                f"below {count}, each once"
            )
        rankings.append((numbers, np.array([score for _, score in hits], np.float64)))
    return Ranking.of(rankings)
