"""What the configurations of a benchmark share: those of one chunking have chunks, indexes and searches in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from rag_eval.config.models import Configuration
from rag_eval.parts import Searching, label, locations, without
from rag_eval.retrieval.searching import HybridSearch, VectorSearch, WordSearch
from rag_eval.retrieval.selection import Selection


@dataclass(frozen=True)
class IndexSettings:
    """What is built for a retriever: vectors in a store, words of a tokenizer, or nothing."""

    embedder: Any = None
    store: Any = None
    tokenizer: Any = None
    has_sums: bool = False
    """Whether a fusion reads the scores of vectors, and needs their sums."""

    @property
    def is_sharded(self) -> bool:
        """Whether each shard is searched by itself: an approximate index is one, and so is a user's store."""
        is_local = any(locations(self.store).values())
        return self.embedder is not None and not is_local and bool(getattr(self.store, "is_exact", False))


@dataclass(frozen=True)
class QuerySettings:
    """How questions become what is searched: a rewriter, and a selection with filters."""

    rewriter: Any = None
    selection: Selection | None = None


@dataclass(frozen=True)
class SearchSettings:
    """One retriever on one index, and how many hits it fetches."""

    retriever: Any
    index: IndexSettings
    queries: QuerySettings
    embedder: Any
    store: Any
    depth: int


@dataclass(frozen=True)
class SearchPlan:
    """The configurations of a chunking with their searches; what several share is listed once."""

    configurations: list[tuple[Configuration, list[SearchSettings]]]

    @property
    def searches(self) -> list[SearchSettings]:
        return list(dict.fromkeys(one for _, some in self.configurations for one in some))

    @property
    def indexes(self) -> list[IndexSettings]:
        return list(dict.fromkeys(one.index for one in self.searches))

    @property
    def queries(self) -> list[QuerySettings]:
        return list(dict.fromkeys(one.queries for one in self.searches))


class Chunking(BaseModel):
    """The configurations with one chunker and one context, or a whole system."""

    model_config = ConfigDict(frozen=True)

    configurations: list[Configuration]

    @property
    def chunker(self) -> Any:
        return self.configurations[0].chunker

    @property
    def context(self) -> Any:
        return self.configurations[0].context

    @property
    def system(self) -> Any:
        return self.configurations[0].system

    @property
    def name(self) -> str:
        """Return what no other chunking of a benchmark is called."""
        return ", ".join(label(part) for part in (self.system, self.chunker, self.context) if part is not None)

    @property
    def embedders(self) -> list[Any]:
        """Return the embedders, each once."""
        return list(dict.fromkeys(one.embedder for one in self.configurations if one.embedder is not None))

    @cached_property
    def _fused_embedders(self) -> set[Any]:
        return {one.embedder for one in self.configurations if fuses_scores(one)}

    def plan(self, depth: int) -> "SearchPlan":
        """Return the searches of every configuration, which fetch so many hits unless a selection says otherwise."""
        return SearchPlan([(one, self._searches(one, depth)) for one in self.configurations])

    def _searches(self, configuration: Configuration, depth: int) -> list[SearchSettings]:
        selection = configuration.selection
        filters = selection if selection is not None and selection.filters else None
        queries = QuerySettings(configuration.queries, filters)
        if selection is not None and selection.fetch_k is not None:
            depth = selection.fetch_k
        found = []
        for retriever in configuration.searches:
            by_vector = isinstance(retriever, VectorSearch)
            embedder, store = (configuration.embedder, configuration.store) if by_vector else (None, None)
            index = self._index(retriever, embedder, store)
            found.append(SearchSettings(retriever, index, queries, embedder, store, depth))
        return found

    def _index(self, retriever: Any, embedder: Any, store: Any) -> IndexSettings:
        if isinstance(retriever, WordSearch):
            return IndexSettings(tokenizer=retriever.tokenizer)
        if embedder is None:
            return IndexSettings()
        # An index does not depend on what only a search uses; one that a user filled is taken as it is.
        built = store if any(locations(store).values()) else without(store, Searching)
        return IndexSettings(embedder, built, has_sums=embedder in self._fused_embedders)


def fuses_scores(configuration: Configuration) -> bool:
    """Tell whether a configuration fuses the scores of its retrievers, not only their ranks."""
    return isinstance(configuration.retrieval, HybridSearch) and bool(configuration.retrieval.fusion.reads_scores)


def chunkings(configurations: Sequence[Configuration]) -> list[Chunking]:
    """Group configurations by their chunker and context, in the order given; each whole system is by itself."""
    groups: dict[tuple[Any, Any, Any], list[Configuration]] = {}
    for one in configurations:
        groups.setdefault((one.system, one.chunker, one.context), []).append(one)
    return [Chunking(configurations=group) for group in groups.values()]
