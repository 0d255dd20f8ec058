"""Plan a benchmark: group configurations by chunking, and list the indexes and searches that they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from rag_eval.config.models import Configuration
from rag_eval.embedding.embedder import Embedder
from rag_eval.parts import Searching, label, locations, without
from rag_eval.retrieval.engines import SearchEngine
from rag_eval.retrieval.queries import Rewriter
from rag_eval.retrieval.searching import HybridSearch, SingleSearch, VectorSearch, WordSearch
from rag_eval.retrieval.selection import Selection
from rag_eval.retrieval.tokenizers import Tokenizer
from rag_eval.stores.store import VectorStore


def is_kept_in_files(store: object) -> bool:
    """Return whether a store is kept in files: it has a setting for their location."""
    return bool(locations(store))


@dataclass(frozen=True)
class IndexSettings:
    """The index of a retriever: vectors in a store, words of a tokenizer, an index of a search engine, or none."""

    embedder: Embedder | None = None
    store: VectorStore | None = None
    tokenizer: Tokenizer | None = None
    engine: SearchEngine | None = None

    @property
    def is_kept_in_files(self) -> bool:
        """Return whether the store is kept in files of the workspace; another store is filled for each search."""
        return is_kept_in_files(self.store)

    @property
    def is_sharded(self) -> bool:
        """Return whether each shard has its own index: not if it is approximate, or in a user's store."""
        is_local = any(locations(self.store).values())
        return self.embedder is not None and not is_local and bool(getattr(self.store, "is_exact", False))


@dataclass(frozen=True)
class QuerySettings:
    """How queries are prepared: by a rewriter, and by a selection with filters."""

    rewriter: Rewriter | None = None
    selection: Selection | None = None


@dataclass(frozen=True)
class SearchSettings:
    """One retriever on one index, and how many hits it fetches."""

    retriever: SingleSearch
    index: IndexSettings
    queries: QuerySettings
    depth: int
    store: VectorStore | None = None
    """The store of the index, with the settings of the search."""


@dataclass(frozen=True)
class SearchPlan:
    """The searches of every configuration of a chunking; the properties list shared settings once."""

    configurations: list[tuple[Configuration, list[SearchSettings]]]

    @property
    def searches(self) -> list[SearchSettings]:
        return list(dict.fromkeys(search for _, searches in self.configurations for search in searches))

    @property
    def indexes(self) -> list[IndexSettings]:
        return list(dict.fromkeys(search.index for search in self.searches))

    @property
    def queries(self) -> list[QuerySettings]:
        return list(dict.fromkeys(search.queries for search in self.searches))


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
        """Return the name, which is unique in a benchmark."""
        return ", ".join(label(part) for part in (self.system, self.chunker, self.context) if part is not None)

    @property
    def embedders(self) -> list[Embedder]:
        """Return the distinct embedders."""
        embedders = dict.fromkeys(configuration.embedder for configuration in self.configurations)
        return [embedder for embedder in embedders if embedder is not None]

    @property
    def summed(self) -> list[Embedder]:
        """Return the embedders with vectors to sum."""
        summed = dict.fromkeys(map(summed_embedder, self.configurations))
        return [embedder for embedder in summed if embedder is not None]

    def plan(self, depth: int) -> "SearchPlan":
        """Plan the searches of every configuration; ``depth`` is the number of hits unless a selection sets it."""
        searches = [
            [_search(configuration, retriever, depth) for retriever in configuration.searches]
            for configuration in self.configurations
        ]
        return SearchPlan(list(zip(self.configurations, searches, strict=True)))


def summed_embedder(configuration: Configuration) -> Embedder | None:
    """Return the embedder whose vectors are summed, because a fusion reads their scores; None without such a fusion."""
    retrieval = configuration.retrieval
    reads_scores = isinstance(retrieval, HybridSearch) and retrieval.fusion.reads_scores
    by_vector = any(isinstance(retriever, VectorSearch) for retriever in configuration.searches)
    return configuration.embedder if reads_scores and by_vector else None


def _search(configuration: Configuration, retriever: SingleSearch, depth: int) -> SearchSettings:
    """Return the settings of one search."""
    selection, embedder, store = configuration.selection, configuration.embedder, configuration.store
    depth = (selection and selection.fetch_k) or depth
    queries = QuerySettings(configuration.queries, selection if selection is not None and selection.filters else None)
    if isinstance(retriever, WordSearch):
        return SearchSettings(retriever, IndexSettings(tokenizer=retriever.tokenizer), queries, depth)
    if isinstance(retriever, SearchEngine):
        used = embedder if retriever.uses_vectors else None
        return SearchSettings(retriever, IndexSettings(used, engine=without(retriever, Searching)), queries, depth)
    if not isinstance(retriever, VectorSearch):
        return SearchSettings(retriever, IndexSettings(), queries, depth)
    # Search settings do not change the index. A location names an index that the user filled.
    built = store if any(locations(store).values()) else without(store, Searching)
    return SearchSettings(retriever, IndexSettings(embedder, built), queries, depth, store)


def chunkings(configurations: Sequence[Configuration]) -> list[Chunking]:
    """Group configurations by chunker and context, in order; a whole system is its own group."""
    groups: dict[tuple[Any, Any, Any], list[Configuration]] = {}
    for configuration in configurations:
        key = configuration.system, configuration.chunker, configuration.context
        groups.setdefault(key, []).append(configuration)
    return [Chunking(configurations=group) for group in groups.values()]
